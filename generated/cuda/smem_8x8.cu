// smem_8x8: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per thread, 16x16 threads per block (128x128 of C), 8 along K per iteration
// A          global memory, loads of 4 elements, through shared memory
// B          global memory, loads of 4 elements, through shared memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (16, 16), grid ((n + 127) / 128, (m + 127) / 128)
// Needs      8,192 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c smem_8x8.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace smem_8x8_detail {

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

} // namespace smem_8x8_detail

extern "C" __global__ void __launch_bounds__(256)
smem_8x8(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
         const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    using namespace smem_8x8_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * 128;
    const int col0 = int(blockIdx.x) * 128;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % 8;
    const int local_index = local_row * 16 + local_col;
    const int a_row = local_index / 2;
    const int a_k = local_index % 2 * 4;
    const int b_k = local_index / 32;
    const int b_col = local_index % 32 * 4;

    __shared__ __align__(16) float a_shared[128][8];
    __shared__ __align__(16) float b_shared[8][128];
    float acc[8][8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 8 along K.
    for (int k0 = 0; k0 < k_main; k0 += 8) {
        __syncthreads();
        if (lda % 4 == 0) {
            copy4(&a_shared[a_row][a_k], &a[min(row0 + a_row, m - 1) * lda + k0 + a_k]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_shared[a_row][a_k + e] = a[min(row0 + a_row, m - 1) * lda + k0 + a_k + e];
            }
        }
        if (ldb % 4 == 0 && col0 + b_col + 4 <= n) {
            copy4(&b_shared[b_k][b_col], &b[(k0 + b_k) * ldb + col0 + b_col]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                b_shared[b_k][b_col + e] = b[(k0 + b_k) * ldb + min(col0 + b_col + e, n - 1)];
            }
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[8];
            __align__(16) float b_frag[8];
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                a_frag[i] = a_shared[local_row * 4 + i / 4 * 64 + i % 4][kk];
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                copy4(&b_frag[j * 4], &b_shared[kk][local_col * 4 + j * 64]);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 8; ++j) {
                    acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        __syncthreads();
        if (lda % 4 == 0 && k_main + a_k + 4 <= k) {
            copy4(&a_shared[a_row][a_k], &a[min(row0 + a_row, m - 1) * lda + k_main + a_k]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_shared[a_row][a_k + e] =
                    k_main + a_k + e < k ? a[min(row0 + a_row, m - 1) * lda + k_main + a_k + e]
                                         : 0.0f;
            }
        }
        if (ldb % 4 == 0 && k_main + b_k < k && col0 + b_col + 4 <= n) {
            copy4(&b_shared[b_k][b_col], &b[(k_main + b_k) * ldb + col0 + b_col]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                b_shared[b_k][b_col + e] =
                    k_main + b_k < k ? b[(k_main + b_k) * ldb + min(col0 + b_col + e, n - 1)]
                                     : 0.0f;
            }
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[8];
            __align__(16) float b_frag[8];
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                a_frag[i] = a_shared[local_row * 4 + i / 4 * 64 + i % 4][kk];
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                copy4(&b_frag[j * 4], &b_shared[kk][local_col * 4 + j * 64]);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 8; ++j) {
                    acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int c_row = row + i / 4 * 64 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                if (col + j / 4 * 64 + j % 4 < n) {
                    c[c_row * ldc + col + j / 4 * 64 + j % 4] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fmaf(beta, c[c_row * ldc + col + j / 4 * 64 + j % 4],
                                         alpha * acc[i][j]);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace smem_8x8_detail {

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

} // namespace smem_8x8_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t smem_8x8_launch(int m, int n, int k, float alpha, const float *a, int lda,
                                       const float *b, int ldb, float beta, float *c, int ldc,
                                       cudaStream_t stream)
{
    using namespace smem_8x8_detail;

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
    const dim3 grid((n + 127) / 128, (m + 127) / 128);
    const dim3 block(16, 16);
    smem_8x8<<<grid, block, 0, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
