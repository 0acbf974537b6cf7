// L3_SLM_8x8_8x16: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per thread, 8x16 threads per block (64x128 of C), 8 along K per iteration,
//            stores of 4 elements
// A          global memory, loads of 4 elements, through shared memory
// B          global memory, loads of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (16, 8), grid ((n + 127) / 128, (m + 63) / 64)
// Needs      2,048 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c L3_SLM_8x8_8x16.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace L3_SLM_8x8_8x16_detail {

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

} // namespace L3_SLM_8x8_8x16_detail

extern "C" __global__ void __launch_bounds__(128)
L3_SLM_8x8_8x16(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    using namespace L3_SLM_8x8_8x16_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * 64;
    const int row = row0 + local_row * 8;
    const int col = int(blockIdx.x) * 128 + local_col * 4;
    const int k_main = k - k % 8;
    const int local_index = local_row * 16 + local_col;
    const int a_row = local_index / 2;
    const int a_k = local_index % 2 * 4;

    __shared__ __align__(16) float a_shared[64][8];
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
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[8];
            __align__(16) float b_frag[8];
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                a_frag[i] = a_shared[local_row * 8 + i][kk];
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (ldb % 4 == 0 && col + j * 64 + 4 <= n) {
                    copy4(&b_frag[j * 4], &b[(k0 + kk) * ldb + col + j * 64]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_frag[j * 4 + e] = b[(k0 + kk) * ldb + min(col + j * 64 + e, n - 1)];
                    }
                }
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
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[8];
            __align__(16) float b_frag[8];
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                a_frag[i] = a_shared[local_row * 8 + i][kk];
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (ldb % 4 == 0 && k_main + kk < k && col + j * 64 + 4 <= n) {
                    copy4(&b_frag[j * 4], &b[(k_main + kk) * ldb + col + j * 64]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_frag[j * 4 + e] =
                            k_main + kk < k ? b[(k_main + kk) * ldb + min(col + j * 64 + e, n - 1)]
                                            : 0.0f;
                    }
                }
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
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (col + j * 64 + 4 <= n && ldc % 4 == 0) {
                    __align__(16) float c_values[4];
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        __align__(16) float c_old[4];
                        copy4(c_old, &c[(row + i) * ldc + col + j * 64]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = fmaf(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy4(&c[(row + i) * ldc + col + j * 64], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 64 + e < n) {
                            c[(row + i) * ldc + col + j * 64 + e] =
                                beta == 0.0f ? alpha * acc[i][j * 4 + e]
                                             : fmaf(beta, c[(row + i) * ldc + col + j * 64 + e],
                                                 alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace L3_SLM_8x8_8x16_detail {

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

} // namespace L3_SLM_8x8_8x16_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t L3_SLM_8x8_8x16_launch(int m, int n, int k, float alpha, const float *a,
                                              int lda, const float *b, int ldb, float beta,
                                              float *c, int ldc, cudaStream_t stream)
{
    using namespace L3_SLM_8x8_8x16_detail;

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
    const dim3 grid((n + 127) / 128, (m + 63) / 64);
    const dim3 block(16, 8);
    L3_SLM_8x8_8x16<<<grid, block, 0, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
