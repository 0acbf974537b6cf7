// mbarrier_8x8_2x16_split8: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per thread, 2x16 threads per block (16x128 of C), 32 along K per iteration, 4
//            tiles in shared memory at a time, handed over by 1 with a pair of mbarriers, each step
//            in 4 slices with threads of their own, operands read from shared memory a step ahead,
//            the next tile's before this one's last step, warps of 2x16 threads, neighbouring lanes
//            in different rows, K in 8 parts that a second kernel adds up, stores of 4 elements,
//            every other row of the arithmetic backwards
// A          global memory, asynchronous copies of single elements, to shared memory, transposed,
//            rows padded by 4
// B          global memory, asynchronous copies of 4 elements, to shared memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; the workspace less than 2^31
//            elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     mbarrier_8x8_2x16_split8: block (16, 8), grid ((m + 15) / 16 * ((n + 127) / 128) * 8,
//                1)
//            mbarrier_8x8_2x16_split8_total: block (256, 1), grid (m * ((n + 255) / 256), 1)
// Needs      75,776 bytes of shared memory
//            a workspace of m * ((n + 3) / 4 * 4) * 8 elements, aligned to 16 bytes
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_90 -Werror all-warnings -c mbarrier_8x8_2x16_split8.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "mbarrier_8x8_2x16_split8 needs sm_90 or later, for mbarrier.try_wait and griddepcontrol"
#endif

namespace mbarrier_8x8_2x16_split8_detail {

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// Begins a copy of 4 bytes to shared memory.
__device__ __forceinline__ void async_copy(float *to, const float *from)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 ::"r"(address), "l"(from) : "memory");
}

// Begins a copy of 4 bytes to shared memory; past `inside` elements it writes zeros.
__device__ __forceinline__ void async_copy_inside(float *to, const float *from, int inside)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 ::"r"(address), "l"(from), "r"(inside * 4) : "memory");
}

// Begins a copy of 16 bytes to shared memory; past `inside` elements it writes zeros.
__device__ __forceinline__ void async_copy4_inside(float *to, const float *from, int inside)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(address), "l"(from), "r"(inside * 4) : "memory");
}

// Makes a barrier in shared memory ready, whose phases are over when `arrivals` threads have come.
__device__ __forceinline__ void mbarrier_init(unsigned long long *barrier, int arrivals)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 ::"r"(address), "r"(arrivals) : "memory");
}

// This thread has come.
__device__ __forceinline__ void mbarrier_arrive(unsigned long long *barrier)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
}

// This thread comes when all copies that it has begun are there.
__device__ __forceinline__ void mbarrier_arrive_copies(unsigned long long *barrier)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address) : "memory");
}

// Waits until the phase of this parity is over.
__device__ __forceinline__ void mbarrier_wait(unsigned long long *barrier, int parity)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    unsigned over;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(over) : "r"(address), "r"(parity) : "memory");
    } while (!over);
}

// Lets the next kernel's blocks begin, once every block of this one has come here.
__device__ __forceinline__ void kernels_release()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the kernel before is over; what it has written is there.
__device__ __forceinline__ void kernels_await()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// What the launch brings.
extern __shared__ __align__(16) unsigned char shared[];

} // namespace mbarrier_8x8_2x16_split8_detail

extern "C" __global__ void __launch_bounds__(128)
mbarrier_8x8_2x16_split8(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                         const float *__restrict__ b, int ldb, float *__restrict__ workspace)
{
    using namespace mbarrier_8x8_2x16_split8_detail;

    const int local_index = int(threadIdx.y) * 16 + int(threadIdx.x);
    const int slice = local_index / 32;
    const int warp = local_index % 32 / 32;
    const int lane = local_index % 32;
    const int local_row = warp * 2 + lane / 32 * 2 + (lane / 16 + lane / 2 + lane) % 2;
    const int local_col = lane % 16;
    const int blocks_down = (m + 15) / 16;
    const int blocks_across = (n + 127) / 128;
    const int part = int(blockIdx.x) / (blocks_down * blocks_across);
    const int block = int(blockIdx.x) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * 16;
    const int col0 = block_col * 128;
    const int k_part = (k + 255) / 256 * 32;
    const int k_begin = part * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int ld_workspace = (n + 3) / 4 * 4;
    const int a_row = local_index / 32;
    const int a_k = local_index % 32;
    const int b_k = local_index / 32;
    const int b_col = local_index % 32 * 4;

    kernels_release();
    auto &a_shared = *reinterpret_cast<float(*)[4][32][20]>(shared);
    __align__(16) float a_frag[2][8];
    auto &b_shared = *reinterpret_cast<float(*)[4][32][128]>(shared + 10240);
    __align__(16) float b_frag[2][8];
    float acc[8][8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Along K; copies bring zeros for what lies past it.
    __shared__ unsigned long long tiles_full[4];
    if (local_index < 4) {
        mbarrier_init(&tiles_full[local_index], 128);
    }
    __shared__ unsigned long long tiles_empty[4];
    if (local_index < 4) {
        mbarrier_init(&tiles_empty[local_index], 128);
    }
    __syncthreads();
    for (int k_batch = k_begin; k_batch < min(k_begin + 64, k_end); k_batch += 32) {
        if (k_batch + 32 <= k_end && ldb % 4 == 0) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                async_copy(&a_shared[(k_batch - k_begin) / 32 % 4][a_k][a_row + i * 4],
                    &a[min(row0 + a_row + i * 4, m - 1) * lda + k_batch + a_k]);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int b_inside =
                    col0 + b_col + 4 <= n ? 4 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                async_copy4_inside(&b_shared[(k_batch - k_begin) / 32 % 4][b_k + i * 4][b_col],
                    &b[(k_batch + b_k + i * 4) * ldb + col0 + b_col], b_inside);
            }
        } else {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int a_inside = k_batch + a_k < k ? 1 : 0;
                async_copy_inside(&a_shared[(k_batch - k_begin) / 32 % 4][a_k][a_row + i * 4],
                    &a[min(row0 + a_row + i * 4, m - 1) * lda + k_batch + a_k], a_inside);
            }
            #pragma unroll
            for (int i = 0; i < 32; ++i) {
                const int b_inside = k_batch + i < k ? 1 : 0;
                async_copy_inside(&b_shared[(k_batch - k_begin) / 32 % 4][i][local_index],
                    &b[(k_batch + i) * ldb + min(col0 + local_index, n - 1)], b_inside);
            }
        }
        mbarrier_arrive_copies(&tiles_full[(k_batch - k_begin) / 32 % 4]);
    }

    // Pointers to the operands that are read here, in the slot that is read.
    const float *a_tile = &a_shared[0][slice * 8][local_row * 4];
    const float *b_tile = &b_shared[0][slice * 8][local_col * 4];
    int slot = 0;
    if (k_begin < k_end) {
        mbarrier_wait(&tiles_full[0], 0);
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            copy4(&a_frag[0][i * 4], &a_tile[i * 8]);
        }
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            copy4(&b_frag[0][j * 4], &b_tile[j * 64]);
        }
    }
    for (int k_batch = k_begin; k_batch < k_end; k_batch += 32) {
        if (k_batch + 64 < k_end) {
            mbarrier_wait(&tiles_empty[(k_batch + 64 - k_begin) / 32 % 4],
                ((k_batch + 64 - k_begin) / 32 / 4 + 1) % 2);
            if (k_batch + 96 <= k_end && ldb % 4 == 0) {
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    async_copy(&a_shared[(k_batch + 64 - k_begin) / 32 % 4][a_k][a_row + i * 4],
                        &a[min(row0 + a_row + i * 4, m - 1) * lda + k_batch + a_k + 64]);
                }
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const int b_inside =
                        col0 + b_col + 4 <= n ? 4 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                    async_copy4_inside(
                        &b_shared[(k_batch + 64 - k_begin) / 32 % 4][b_k + i * 4][b_col],
                        &b[(k_batch + b_k + i * 4 + 64) * ldb + col0 + b_col], b_inside);
                }
            } else {
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int a_inside = k_batch + a_k + 64 < k ? 1 : 0;
                    async_copy_inside(
                        &a_shared[(k_batch + 64 - k_begin) / 32 % 4][a_k][a_row + i * 4],
                        &a[min(row0 + a_row + i * 4, m - 1) * lda + k_batch + a_k + 64], a_inside);
                }
                #pragma unroll
                for (int i = 0; i < 32; ++i) {
                    const int b_inside = k_batch + i + 64 < k ? 1 : 0;
                    async_copy_inside(&b_shared[(k_batch + 64 - k_begin) / 32 % 4][i][local_index],
                        &b[(k_batch + i + 64) * ldb + min(col0 + local_index, n - 1)], b_inside);
                }
            }
            mbarrier_arrive_copies(&tiles_full[(k_batch + 64 - k_begin) / 32 % 4]);
        }
        if (k_batch + 32 < k_end) {
            mbarrier_wait(&tiles_full[(k_batch + 32 - k_begin) / 32 % 4],
                (k_batch + 32 - k_begin) / 32 / 4 % 2);
        }
        for (int k0 = k_batch; k0 < min(k_batch + 32, k_end); k0 += 32) {
            #pragma unroll
            for (int kk = 0; kk < 7; ++kk) {
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    copy4(&a_frag[(kk + 1) % 2][i * 4], &a_tile[(kk + 1) * 20 + i * 8]);
                }
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    copy4(&b_frag[(kk + 1) % 2][j * 4], &b_tile[(kk + 1) * 128 + j * 64]);
                }
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 8; ++j) {
                        const int turn = i % 2 == 0 ? j : 7 - j;
                        acc[i][turn] = fmaf(a_frag[kk % 2][i], b_frag[kk % 2][turn], acc[i][turn]);
                    }
                }
            }
            const bool last = slot == 3;
            slot = last ? 0 : slot + 1;
            a_tile += last ? -1920 : 640;
            b_tile += last ? -12288 : 4096;
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                copy4(&a_frag[0][i * 4], &a_tile[i * 8]);
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                copy4(&b_frag[0][j * 4], &b_tile[j * 64]);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 8; ++j) {
                    const int turn = i % 2 == 0 ? j : 7 - j;
                    acc[i][turn] = fmaf(a_frag[1][i], b_frag[1][turn], acc[i][turn]);
                }
            }
        }
        mbarrier_arrive(&tiles_empty[(k_batch - k_begin) / 32 % 4]);
    }

    // Every slice's sum to where the tiles were; then each one adds up a part of the block.
    __syncthreads();
    auto &partial = *reinterpret_cast<float(*)[4][16][128]>(shared);
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int partial_row = local_row * 4 + i / 4 * 8 + i % 4;
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            __align__(16) float partial_values[4];
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                partial_values[e] = alpha * acc[i][j * 4 + e];
            }
            copy4(&partial[slice][partial_row][local_col * 4 + j * 64], partial_values);
        }
    }
    __syncthreads();

    const int sum_row = local_index / 32;
    const int sum_col = local_index % 32;
    const int first_col = col0 + sum_col * 4;

    __align__(16) float total[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        copy4(total[i], &partial[0][sum_row + i * 4][sum_col * 4]);
        #pragma unroll
        for (int s = 1; s < 4; ++s) {
            __align__(16) float term[4];
            copy4(term, &partial[s][sum_row + i * 4][sum_col * 4]);
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                total[i][e] += term[e];
            }
        }
    }

    // This part's share of C.
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int workspace_row = row0 + sum_row + i * 4;
        if (workspace_row < m) {
            if (first_col + 4 <= n) {
                copy4(
                    &workspace[part * (m * ld_workspace) + workspace_row * ld_workspace
                        + first_col], total[i]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    if (first_col + e < n) {
                        workspace[part * (m * ld_workspace) + workspace_row * ld_workspace
                            + first_col + e] =
                            total[i][e];
                    }
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
mbarrier_8x8_2x16_split8_total(int m, int n, const float *workspace, float beta,
                               float *__restrict__ c, int ldc)
{
    using namespace mbarrier_8x8_2x16_split8_detail;

    const int ld_workspace = (n + 3) / 4 * 4;
    const int blocks_across = (n + 255) / 256;
    const int row = int(blockIdx.x) / blocks_across;
    const int col = int(blockIdx.x) % blocks_across * 256 + int(threadIdx.x);

    kernels_await();
    if (col < n) {
        // The parts of K, one after the other.
        float total = workspace[row * ld_workspace + col];
        #pragma unroll
        for (int s = 1; s < 8; ++s) {
            const float term = workspace[s * (m * ld_workspace) + row * ld_workspace + col];
            total += term;
        }
        c[row * ldc + col] = beta == 0.0f ? total : fmaf(beta, c[row * ldc + col], total);
    }
}

#ifndef __CUDACC_RTC__
namespace mbarrier_8x8_2x16_split8_detail {

// Whether a matrix begins on a multiple of so many bytes.
static bool is_aligned(const void *matrix, size_t bytes)
{
    return reinterpret_cast<size_t>(matrix) % bytes == 0;
}

// Whether lines lie apart, `pitch` elements from one to the next, and 32-bit indices reach all of
// a matrix.
static bool is_in_reach(long long lines, long long length, long long pitch)
{
    if (lines < 1 || length < 1) {
        return true;
    }
    return (lines == 1 || pitch >= length) && (lines - 1) * pitch + length < 1LL << 31;
}

} // namespace mbarrier_8x8_2x16_split8_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t mbarrier_8x8_2x16_split8_launch(int m, int n, int k, float alpha,
                                                       const float *a, int lda, const float *b,
                                                       int ldb, float *workspace, float beta,
                                                       float *c, int ldc, cudaStream_t stream)
{
    using namespace mbarrier_8x8_2x16_split8_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(workspace, 16) ||
        !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        1LL * m * ((n + 3) / 4 * 4) * 8 >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    {
        const cudaError_t allowed = cudaFuncSetAttribute(
            mbarrier_8x8_2x16_split8, cudaFuncAttributeMaxDynamicSharedMemorySize, 75776);
        if (allowed != cudaSuccess) {
            return allowed;
        }
        const dim3 grid((m + 15) / 16 * ((n + 127) / 128) * 8, 1);
        const dim3 block(16, 8);
        mbarrier_8x8_2x16_split8<<<grid, block, 75776, stream>>>(
            m, n, k, alpha, a, lda, b, ldb, workspace);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const dim3 grid(m * ((n + 255) / 256), 1);
        const dim3 block(256, 1);
        // It may begin while the kernel before ends, which it awaits.
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = 0;
        config.stream = stream;
        config.attrs = &early;
        config.numAttrs = 1;
        return cudaLaunchKernelEx(&config, mbarrier_8x8_2x16_split8_total,
            m, n, workspace, beta, c, ldc);
    }
}
#endif
