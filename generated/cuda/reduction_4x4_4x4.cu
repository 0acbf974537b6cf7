// reduction_4x4_4x4: C = alpha * A * B + beta * C; float32
//
// Schedule   4x4 of C per thread, 4x4 threads per block (16x16 of C), 32 along K per iteration,
//            each step in 8 slices with threads of their own, K in 4 parts that are added to C as
//            they come
// A          global memory, loads of 4 elements
// B          global memory, loads of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     reduction_4x4_4x4_start: block (256, 1), grid (m * ((n + 255) / 256), 1)
//            reduction_4x4_4x4: block (4, 32), grid ((m + 15) / 16 * ((n + 15) / 16) * 4, 1)
// Needs      8,192 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c reduction_4x4_4x4.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace reduction_4x4_4x4_detail {

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// Adds an element to global memory, in one step.
__device__ __forceinline__ void atomic_add(float *to, const float *from)
{
    atomicAdd(to, *from);
}

} // namespace reduction_4x4_4x4_detail

extern "C" __global__ void __launch_bounds__(256)
reduction_4x4_4x4_start(int m, int n, float beta, float *__restrict__ c, int ldc)
{
    const int blocks_across = (n + 255) / 256;
    const int row = int(blockIdx.x) / blocks_across;
    const int col = int(blockIdx.x) % blocks_across * 256 + int(threadIdx.x);

    if (col < n) {
        // What the parts of K are added to.
        c[row * ldc + col] = beta == 0.0f ? 0.0f : beta * c[row * ldc + col];
    }
}

extern "C" __global__ void __launch_bounds__(128)
reduction_4x4_4x4(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                  const float *__restrict__ b, int ldb, float *__restrict__ c, int ldc)
{
    using namespace reduction_4x4_4x4_detail;

    const int slice = int(threadIdx.y) / 4;
    const int local_row = int(threadIdx.y) % 4;
    const int local_col = int(threadIdx.x);
    const int blocks_down = (m + 15) / 16;
    const int blocks_across = (n + 15) / 16;
    const int block = int(blockIdx.x) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * 16;
    const int col0 = block_col * 16;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_part = (k + 127) / 128 * 32;
    const int k_begin = int(blockIdx.x) / (blocks_down * blocks_across) * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int k_main = min(k - k % 32, k_end);
    const int local_index = int(threadIdx.y) * 4 + int(threadIdx.x);

    float acc[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 32 along K.
    for (int k0 = k_begin; k0 < k_main; k0 += 32) {
        __align__(16) float a_frag[4][4];
        __align__(16) float b_frag[4][4];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (lda % 4 == 0) {
                copy4(a_frag[i], &a[min(row + i, m - 1) * lda + k0 + slice * 4]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a_frag[i][e] = a[min(row + i, m - 1) * lda + k0 + slice * 4 + e];
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (ldb % 4 == 0 && col + 4 <= n) {
                copy4(b_frag[i], &b[(k0 + slice * 4 + i) * ldb + col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_frag[i][e] = b[(k0 + slice * 4 + i) * ldb + min(col + e, n - 1)];
                }
            }
        }
        #pragma unroll
        for (int p = 0; p < 4; ++p) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fmaf(a_frag[i][p], b_frag[p][j], acc[i][j]);
                }
            }
        }
    }
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K; what lies past it counts as zero.
        __align__(16) float a_frag[4][4];
        __align__(16) float b_frag[4][4];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (lda % 4 == 0 && k_main + slice * 4 + 4 <= k) {
                copy4(a_frag[i], &a[min(row + i, m - 1) * lda + k_main + slice * 4]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a_frag[i][e] =
                        k_main + slice * 4 + e < k
                            ? a[min(row + i, m - 1) * lda + k_main + slice * 4 + e]
                            : 0.0f;
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (ldb % 4 == 0 && k_main + slice * 4 + i < k && col + 4 <= n) {
                copy4(b_frag[i], &b[(k_main + slice * 4 + i) * ldb + col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_frag[i][e] =
                        k_main + slice * 4 + i < k
                            ? b[(k_main + slice * 4 + i) * ldb + min(col + e, n - 1)]
                            : 0.0f;
                }
            }
        }
        #pragma unroll
        for (int p = 0; p < 4; ++p) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fmaf(a_frag[i][p], b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // Every slice's sum is put down; then each work-item adds up a part of the block.
    __shared__ __align__(16) float partial[8][16][16];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        __align__(16) float partial_values[4];
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            partial_values[e] = alpha * acc[i][e];
        }
        copy4(&partial[slice][local_row * 4 + i][local_col * 4], partial_values);
    }
    __syncthreads();

    const int sum_row = local_index / 16;
    const int sum_col = local_index % 16;
    const int first_col = col0 + sum_col;

    float total[2];
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        total[i] = partial[0][sum_row + i * 8][sum_col];
        #pragma unroll
        for (int s = 1; s < 8; ++s) {
            const float term = partial[s][sum_row + i * 8][sum_col];
            total[i] += term;
        }
    }

    // This part's share is added to C.
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int c_row = row0 + sum_row + i * 8;
        if (c_row < m && first_col < n) {
            atomic_add(&c[c_row * ldc + first_col], &total[i]);
        }
    }
}

#ifndef __CUDACC_RTC__
namespace reduction_4x4_4x4_detail {

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

} // namespace reduction_4x4_4x4_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t reduction_4x4_4x4_launch(int m, int n, int k, float alpha, const float *a,
                                                int lda, const float *b, int ldb, float beta,
                                                float *c, int ldc, cudaStream_t stream)
{
    using namespace reduction_4x4_4x4_detail;

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
    {
        const dim3 grid(m * ((n + 255) / 256), 1);
        const dim3 block(256, 1);
        reduction_4x4_4x4_start<<<grid, block, 0, stream>>>(
            m, n, beta, c, ldc);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const dim3 grid((m + 15) / 16 * ((n + 15) / 16) * 4, 1);
        const dim3 block(4, 32);
        reduction_4x4_4x4<<<grid, block, 0, stream>>>(
            m, n, k, alpha, a, lda, b, ldb, c, ldc);
        return cudaGetLastError();
    }
}
#endif
