// mbarrier_8x16_16x16_packed: C = alpha * A * B + beta * C; float32
//
// Schedule   8x16 of C per thread, 16x16 threads per block (128x256 of C), 8 along K per iteration,
//            16 tiles in shared memory at a time, handed over by 4 with a pair of mbarriers,
//            operands read from shared memory a step ahead, the next tile's before this one's last
//            step, warps of 4x8 threads, neighbouring lanes in different rows, blocks in bands of 8
//            rows, stores of 4 elements, every other row of the arithmetic backwards
// A          packed into whole tiles by a kernel before; global memory, asynchronous copies of 4
//            elements, to shared memory, transposed
// B          packed into whole tiles by a kernel before; global memory, asynchronous copies of 4
//            elements, to shared memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     mbarrier_8x16_16x16_packed_pack: block (32, 8), grid (((k + 31) / 32 * 32 + 31) / 32 *
//                (((m + 127) / 128 * 128 + 31) / 32) + ((k + 31) / 32 * 32 + 31) / 32 * (((n + 255)
//                / 256 * 256 + 31) / 32), 1)
//            mbarrier_8x16_16x16_packed: block (16, 16), grid ((m + 127) / 128 * ((n + 255) / 256),
//                1)
// Needs      196,608 bytes of shared memory
//            a_packed of (k + 31) / 32 * 32 * ((m + 127) / 128 * 128) elements, aligned to 16 bytes
//            b_packed of (k + 31) / 32 * 32 * ((n + 255) / 256 * 256) elements, aligned to 16 bytes
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_90 -Werror all-warnings -c mbarrier_8x16_16x16_packed.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "mbarrier_8x16_16x16_packed needs sm_90 or later, for mbarrier.try_wait and griddepcontrol"
#endif

namespace mbarrier_8x16_16x16_packed_detail {

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// Begins a copy of 16 bytes to shared memory.
__device__ __forceinline__ void async_copy4(float *to, const float *from)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 ::"r"(address), "l"(from) : "memory");
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

} // namespace mbarrier_8x16_16x16_packed_detail

extern "C" __global__ void __launch_bounds__(256)
mbarrier_8x16_16x16_packed_pack(int m, int n, int k, const float *__restrict__ a, int lda,
                                const float *__restrict__ b, int ldb, float *__restrict__ a_packed,
                                float *__restrict__ b_packed)
{
    using namespace mbarrier_8x16_16x16_packed_detail;

    kernels_release();

    const int m_whole = (m + 127) / 128 * 128;
    const int n_whole = (n + 255) / 256 * 256;
    const int k_whole = (k + 31) / 32 * 32;
    const int a_blocks = (k_whole + 31) / 32 * ((m_whole + 31) / 32);
    const int block = int(blockIdx.x) < a_blocks ? int(blockIdx.x) : int(blockIdx.x) - a_blocks;
    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);

    __shared__ float a_tile[32][33];
    if (int(blockIdx.x) < a_blocks) {
        const int a_slow = block / ((m_whole + 31) / 32) * 32;
        const int a_fast = block % ((m_whole + 31) / 32) * 32;

        // Read by lines, written by lines: turned in between.
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            a_tile[i * 8 + local_row][local_col] =
                a_fast + i * 8 + local_row < m && a_slow + local_col < k
                    ? a[(a_fast + i * 8 + local_row) * lda + a_slow + local_col]
                    : 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (a_slow + i * 8 + local_row < k_whole && a_fast + local_col < m_whole) {
                a_packed[(a_slow + i * 8 + local_row) * m_whole + a_fast + local_col] =
                    a_tile[local_col][i * 8 + local_row];
            }
        }
    } else {
        const int b_slow = block / ((n_whole + 31) / 32) * 32;
        const int b_fast = block % ((n_whole + 31) / 32) * 32;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (b_slow + i * 8 + local_row < k_whole && b_fast + local_col < n_whole) {
                b_packed[(b_slow + i * 8 + local_row) * n_whole + b_fast + local_col] =
                    b_slow + i * 8 + local_row < k && b_fast + local_col < n
                        ? b[(b_slow + i * 8 + local_row) * ldb + b_fast + local_col]
                        : 0.0f;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
mbarrier_8x16_16x16_packed(int m, int n, int k, float alpha, const float *a_packed,
                           const float *b_packed, float beta, float *__restrict__ c, int ldc)
{
    using namespace mbarrier_8x16_16x16_packed_detail;

    const int local_index = int(threadIdx.y) * 16 + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int local_row = warp / 2 * 4 + lane / 16 * 2 + (lane / 8 + lane / 2 + lane) % 2;
    const int local_col = warp % 2 * 8 + lane % 8;
    const int blocks_down = (m + 127) / 128;
    const int blocks_across = (n + 255) / 256;
    const int block = int(blockIdx.x);
    const int band_row = block / (blocks_across * 8) * 8;
    const int in_band = block % (blocks_across * 8);
    const int block_row = band_row + in_band % min(8, blocks_down - band_row);
    const int block_col = in_band / min(8, blocks_down - band_row);
    const int row0 = block_row * 128;
    const int col0 = block_col * 256;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int m_whole = (m + 127) / 128 * 128;
    const int n_whole = (n + 255) / 256 * 256;
    const int k_whole = (k + 31) / 32 * 32;
    const int a_packed_k = local_index / 32;
    const int a_packed_row = local_index % 32 * 4;
    const int b_packed_k = local_index / 64;
    const int b_packed_row = local_index % 64 * 4;

    auto &a_shared = *reinterpret_cast<float(*)[16][8][128]>(shared);
    __align__(16) float a_frag[2][8];
    auto &b_shared = *reinterpret_cast<float(*)[16][8][256]>(shared + 65536);
    __align__(16) float b_frag[2][16];
    float acc[8][16];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    __shared__ unsigned long long tiles_full[4];
    if (local_index < 4) {
        mbarrier_init(&tiles_full[local_index], 256);
    }
    __shared__ unsigned long long tiles_empty[4];
    if (local_index < 4) {
        mbarrier_init(&tiles_empty[local_index], 256);
    }
    __syncthreads();
    kernels_await();
    for (int k_batch = 0; k_batch < min(64, k_whole); k_batch += 32) {
        #pragma unroll
        for (int t = 0; t < 4; ++t) {
            async_copy4(&a_shared[k_batch / 8 % 16 + t][a_packed_k][a_packed_row],
                &a_packed[(k_batch + t * 8 + a_packed_k) * m_whole + row0 + a_packed_row]);
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                async_copy4(&b_shared[k_batch / 8 % 16 + t][b_packed_k + i * 4][b_packed_row],
                    &b_packed[(k_batch + t * 8 + b_packed_k + i * 4) * n_whole + col0
                        + b_packed_row]);
            }
        }
        mbarrier_arrive_copies(&tiles_full[k_batch / 32 % 4]);
    }

    // Pointers to the operands that are read here, in the slot that is read.
    const float *a_tile = &a_shared[0][0][local_row * 4];
    const float *b_tile = &b_shared[0][0][local_col * 4];
    int slot = 0;
    if (0 < k_whole) {
        mbarrier_wait(&tiles_full[0], 0);
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            copy4(&a_frag[0][i * 4], &a_tile[i * 64]);
        }
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            copy4(&b_frag[0][j * 4], &b_tile[j * 64]);
        }
    }
    for (int k_batch = 0; k_batch < k_whole; k_batch += 32) {
        if (k_batch + 96 <= k_whole) {
            mbarrier_wait(&tiles_empty[(k_batch / 32 + 2) % 4], ((k_batch / 32 + 2) / 4 + 1) % 2);
            #pragma unroll
            for (int t = 0; t < 4; ++t) {
                async_copy4(&a_shared[(k_batch / 8 + 8) % 16 + t][a_packed_k][a_packed_row],
                    &a_packed[(k_batch + t * 8 + a_packed_k + 64) * m_whole + row0 + a_packed_row]);
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    async_copy4(
                        &b_shared[(k_batch / 8 + 8) % 16 + t][b_packed_k + i * 4][b_packed_row],
                        &b_packed[(k_batch + t * 8 + b_packed_k + i * 4 + 64) * n_whole + col0
                            + b_packed_row]);
                }
            }
            mbarrier_arrive_copies(&tiles_full[(k_batch / 32 + 2) % 4]);
        }
        if (k_batch + 32 < k_whole) {
            mbarrier_wait(&tiles_full[(k_batch / 32 + 1) % 4], (k_batch / 32 + 1) / 4 % 2);
        }
        for (int k0 = k_batch; k0 < k_batch + 32; k0 += 8) {
            #pragma unroll
            for (int kk = 0; kk < 7; ++kk) {
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    copy4(&a_frag[(kk + 1) % 2][i * 4], &a_tile[(kk + 1) * 128 + i * 64]);
                }
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    copy4(&b_frag[(kk + 1) % 2][j * 4], &b_tile[(kk + 1) * 256 + j * 64]);
                }
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 16; ++j) {
                        const int turn = i % 2 == 0 ? j : 15 - j;
                        acc[i][turn] = fmaf(a_frag[kk % 2][i], b_frag[kk % 2][turn], acc[i][turn]);
                    }
                }
            }
            const bool last = slot == 15;
            slot = last ? 0 : slot + 1;
            a_tile += last ? -15360 : 1024;
            b_tile += last ? -30720 : 2048;
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                copy4(&a_frag[0][i * 4], &a_tile[i * 64]);
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                copy4(&b_frag[0][j * 4], &b_tile[j * 64]);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 16; ++j) {
                    const int turn = i % 2 == 0 ? j : 15 - j;
                    acc[i][turn] = fmaf(a_frag[1][i], b_frag[1][turn], acc[i][turn]);
                }
            }
        }
        mbarrier_arrive(&tiles_empty[k_batch / 32 % 4]);
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int c_row = row + i / 4 * 64 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (col + j * 64 + 4 <= n && ldc % 4 == 0) {
                    __align__(16) float c_values[4];
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        __align__(16) float c_old[4];
                        copy4(c_old, &c[c_row * ldc + col + j * 64]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = fmaf(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy4(&c[c_row * ldc + col + j * 64], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 64 + e < n) {
                            c[c_row * ldc + col + j * 64 + e] =
                                beta == 0.0f ? alpha * acc[i][j * 4 + e]
                                             : fmaf(beta, c[c_row * ldc + col + j * 64 + e],
                                                 alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace mbarrier_8x16_16x16_packed_detail {

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

} // namespace mbarrier_8x16_16x16_packed_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t mbarrier_8x16_16x16_packed_launch(int m, int n, int k, float alpha,
                                                         const float *a, int lda, const float *b,
                                                         int ldb, float *a_packed, float *b_packed,
                                                         float beta, float *c, int ldc,
                                                         cudaStream_t stream)
{
    using namespace mbarrier_8x16_16x16_packed_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(a_packed, 16) ||
        !is_aligned(b_packed, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        1LL * (k + 31) / 32 * 32 * ((m + 127) / 128 * 128) >= 1LL << 31 ||
        1LL * (k + 31) / 32 * 32 * ((n + 255) / 256 * 256) >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    if (k > 0) {
        const dim3 grid(((k + 31) / 32 * 32 + 31) / 32 * (((m + 127) / 128 * 128 + 31) / 32) + ((k + 31) / 32 * 32 + 31) / 32 * (((n + 255) / 256 * 256 + 31) / 32), 1);
        const dim3 block(32, 8);
        mbarrier_8x16_16x16_packed_pack<<<grid, block, 0, stream>>>(
            m, n, k, a, lda, b, ldb, a_packed, b_packed);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const cudaError_t allowed = cudaFuncSetAttribute(
            mbarrier_8x16_16x16_packed, cudaFuncAttributeMaxDynamicSharedMemorySize, 196608);
        if (allowed != cudaSuccess) {
            return allowed;
        }
        const dim3 grid((m + 127) / 128 * ((n + 255) / 256), 1);
        const dim3 block(16, 16);
        // It may begin while the kernel before ends, which it awaits.
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = 196608;
        config.stream = stream;
        config.attrs = &early;
        config.numAttrs = 1;
        return cudaLaunchKernelEx(&config, mbarrier_8x16_16x16_packed,
            m, n, k, alpha, a_packed, b_packed, beta, c, ldc);
    }
}
#endif
