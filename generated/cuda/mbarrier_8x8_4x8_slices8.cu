// mbarrier_8x8_4x8_slices8: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per thread, 4x8 threads per block (32x64 of C), 64 along K per iteration, 6
//            tiles in shared memory at a time, handed over by 1 with a pair of mbarriers, each step
//            in 8 slices with threads of their own, operands read from shared memory a step ahead,
//            the next tile's before this one's last step, warps of 4x8 threads, neighbouring lanes
//            in different rows, stores of 4 elements, every other row of the arithmetic backwards
// A          global memory, asynchronous copies of single elements, to shared memory, transposed,
//            rows padded by 4
// B          global memory, asynchronous copies of 4 elements, to shared memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (8, 32), grid ((n + 63) / 64, (m + 31) / 32)
// Needs      153,600 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_90 -Werror all-warnings -c mbarrier_8x8_4x8_slices8.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "mbarrier_8x8_4x8_slices8 needs sm_90 or later, for mbarrier.try_wait"
#endif

namespace mbarrier_8x8_4x8_slices8_detail {

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

// What the launch brings.
extern __shared__ __align__(16) unsigned char shared[];

} // namespace mbarrier_8x8_4x8_slices8_detail

extern "C" __global__ void __launch_bounds__(256)
mbarrier_8x8_4x8_slices8(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                         const float *__restrict__ b, int ldb, float beta, float *__restrict__ c,
                         int ldc)
{
    using namespace mbarrier_8x8_4x8_slices8_detail;

    const int local_index = int(threadIdx.y) * 8 + int(threadIdx.x);
    const int slice = local_index / 32;
    const int warp = local_index % 32 / 32;
    const int lane = local_index % 32;
    const int local_row = warp * 4 + lane / 16 * 2 + (lane / 8 + lane / 2 + lane) % 2;
    const int local_col = lane % 8;
    const int row0 = int(blockIdx.y) * 32;
    const int col0 = int(blockIdx.x) * 64;
    const int a_row = local_index / 64;
    const int a_k = local_index % 64;
    const int b_k = local_index / 16;
    const int b_col = local_index % 16 * 4;
    const int b_k_by1 = local_index / 64;
    const int b_col_by1 = local_index % 64;

    auto &a_shared = *reinterpret_cast<float(*)[6][64][36]>(shared);
    __align__(16) float a_frag[2][8];
    auto &b_shared = *reinterpret_cast<float(*)[6][64][64]>(shared + 55296);
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
    __shared__ unsigned long long tiles_full[6];
    if (local_index < 6) {
        mbarrier_init(&tiles_full[local_index], 256);
    }
    __shared__ unsigned long long tiles_empty[6];
    if (local_index < 6) {
        mbarrier_init(&tiles_empty[local_index], 256);
    }
    __syncthreads();
    for (int k_batch = 0; k_batch < min(256, k); k_batch += 64) {
        if (k_batch + 64 <= k && ldb % 4 == 0) {
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                async_copy(&a_shared[k_batch / 64 % 6][a_k][a_row + i * 4],
                    &a[min(row0 + a_row + i * 4, m - 1) * lda + k_batch + a_k]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int b_inside =
                    col0 + b_col + 4 <= n ? 4 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                async_copy4_inside(&b_shared[k_batch / 64 % 6][b_k + i * 16][b_col],
                    &b[(k_batch + b_k + i * 16) * ldb + col0 + b_col], b_inside);
            }
        } else {
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int a_inside = k_batch + a_k < k ? 1 : 0;
                async_copy_inside(&a_shared[k_batch / 64 % 6][a_k][a_row + i * 4],
                    &a[min(row0 + a_row + i * 4, m - 1) * lda + k_batch + a_k], a_inside);
            }
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                const int b_inside = k_batch + b_k_by1 + i * 4 < k ? 1 : 0;
                async_copy_inside(&b_shared[k_batch / 64 % 6][b_k_by1 + i * 4][b_col_by1],
                    &b[(k_batch + b_k_by1 + i * 4) * ldb + min(col0 + b_col_by1, n - 1)], b_inside);
            }
        }
        mbarrier_arrive_copies(&tiles_full[k_batch / 64 % 6]);
    }

    // Pointers to the operands that are read here, in the slot that is read.
    const float *a_tile = &a_shared[0][slice * 8][local_row * 4];
    const float *b_tile = &b_shared[0][slice * 8][local_col * 4];
    int slot = 0;
    if (0 < k) {
        mbarrier_wait(&tiles_full[0], 0);
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            copy4(&a_frag[0][i * 4], &a_tile[i * 16]);
        }
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            copy4(&b_frag[0][j * 4], &b_tile[j * 32]);
        }
    }
    for (int k_batch = 0; k_batch < k; k_batch += 64) {
        if (k_batch + 256 < k) {
            mbarrier_wait(&tiles_empty[(k_batch / 64 + 4) % 6], ((k_batch / 64 + 4) / 6 + 1) % 2);
            if (k_batch + 320 <= k && ldb % 4 == 0) {
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    async_copy(&a_shared[(k_batch / 64 + 4) % 6][a_k][a_row + i * 4],
                        &a[min(row0 + a_row + i * 4, m - 1) * lda + k_batch + a_k + 256]);
                }
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int b_inside =
                        col0 + b_col + 4 <= n ? 4 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                    async_copy4_inside(&b_shared[(k_batch / 64 + 4) % 6][b_k + i * 16][b_col],
                        &b[(k_batch + b_k + i * 16 + 256) * ldb + col0 + b_col], b_inside);
                }
            } else {
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const int a_inside = k_batch + a_k + 256 < k ? 1 : 0;
                    async_copy_inside(&a_shared[(k_batch / 64 + 4) % 6][a_k][a_row + i * 4],
                        &a[min(row0 + a_row + i * 4, m - 1) * lda + k_batch + a_k + 256], a_inside);
                }
                #pragma unroll
                for (int i = 0; i < 16; ++i) {
                    const int b_inside = k_batch + b_k_by1 + i * 4 + 256 < k ? 1 : 0;
                    async_copy_inside(&b_shared[(k_batch / 64 + 4) % 6][b_k_by1 + i * 4][b_col_by1],
                        &b[(k_batch + b_k_by1 + i * 4 + 256) * ldb + min(col0 + b_col_by1, n - 1)],
                        b_inside);
                }
            }
            mbarrier_arrive_copies(&tiles_full[(k_batch / 64 + 4) % 6]);
        }
        if (k_batch + 64 < k) {
            mbarrier_wait(&tiles_full[(k_batch / 64 + 1) % 6], (k_batch / 64 + 1) / 6 % 2);
        }
        for (int k0 = k_batch; k0 < min(k_batch + 64, k); k0 += 64) {
            #pragma unroll
            for (int kk = 0; kk < 7; ++kk) {
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    copy4(&a_frag[(kk + 1) % 2][i * 4], &a_tile[(kk + 1) * 36 + i * 16]);
                }
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    copy4(&b_frag[(kk + 1) % 2][j * 4], &b_tile[(kk + 1) * 64 + j * 32]);
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
            const bool last = slot == 5;
            slot = last ? 0 : slot + 1;
            a_tile += last ? -11520 : 2304;
            b_tile += last ? -20480 : 4096;
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                copy4(&a_frag[0][i * 4], &a_tile[i * 16]);
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                copy4(&b_frag[0][j * 4], &b_tile[j * 32]);
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
        mbarrier_arrive(&tiles_empty[k_batch / 64 % 6]);
    }

    // Every slice's sum to where the tiles were; then each one adds up a part of the block.
    __syncthreads();
    auto &partial = *reinterpret_cast<float(*)[8][32][64]>(shared);
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int partial_row = local_row * 4 + i / 4 * 16 + i % 4;
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            __align__(16) float partial_values[4];
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                partial_values[e] = alpha * acc[i][j * 4 + e];
            }
            copy4(&partial[slice][partial_row][local_col * 4 + j * 32], partial_values);
        }
    }
    __syncthreads();

    const int sum_row = local_index / 16;
    const int sum_col = local_index % 16;
    const int first_col = col0 + sum_col * 4;

    __align__(16) float total[2][4];
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        copy4(total[i], &partial[0][sum_row + i * 16][sum_col * 4]);
        #pragma unroll
        for (int s = 1; s < 8; ++s) {
            __align__(16) float term[4];
            copy4(term, &partial[s][sum_row + i * 16][sum_col * 4]);
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                total[i][e] += term[e];
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int c_row = row0 + sum_row + i * 16;
        if (c_row < m) {
            if (first_col + 4 <= n && ldc % 4 == 0) {
                if (beta != 0.0f) {
                    __align__(16) float c_old[4];
                    copy4(c_old, &c[c_row * ldc + first_col]);
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        total[i][e] = fmaf(beta, c_old[e], total[i][e]);
                    }
                }
                copy4(&c[c_row * ldc + first_col], total[i]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    if (first_col + e < n) {
                        c[c_row * ldc + first_col + e] =
                            beta == 0.0f ? total[i][e]
                                         : fmaf(beta, c[c_row * ldc + first_col + e], total[i][e]);
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace mbarrier_8x8_4x8_slices8_detail {

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

} // namespace mbarrier_8x8_4x8_slices8_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t mbarrier_8x8_4x8_slices8_launch(int m, int n, int k, float alpha,
                                                       const float *a, int lda, const float *b,
                                                       int ldb, float beta, float *c, int ldc,
                                                       cudaStream_t stream)
{
    using namespace mbarrier_8x8_4x8_slices8_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    const cudaError_t allowed = cudaFuncSetAttribute(
        mbarrier_8x8_4x8_slices8, cudaFuncAttributeMaxDynamicSharedMemorySize, 153600);
    if (allowed != cudaSuccess) {
        return allowed;
    }
    const dim3 grid((n + 63) / 64, (m + 31) / 32);
    const dim3 block(8, 32);
    mbarrier_8x8_4x8_slices8<<<grid, block, 153600, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
