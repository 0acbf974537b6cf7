// lds_8x8_16x16_k16_double: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per thread, 16x16 threads per block (128x128 of C), 16 along K per iteration,
//            2 tiles in shared memory at a time, the next tile loaded into registers before the
//            current one's arithmetic
// A          global memory, loads of 4 elements, through shared memory, transposed
// B          global memory, loads of 4 elements, through shared memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (16, 16), grid ((n + 127) / 128, (m + 127) / 128)
// Needs      32,768 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c lds_8x8_16x16_k16_double.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace lds_8x8_16x16_k16_double_detail {

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

} // namespace lds_8x8_16x16_k16_double_detail

extern "C" __global__ void __launch_bounds__(256)
lds_8x8_16x16_k16_double(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                         const float *__restrict__ b, int ldb, float beta, float *__restrict__ c,
                         int ldc)
{
    using namespace lds_8x8_16x16_k16_double_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * 128;
    const int col0 = int(blockIdx.x) * 128;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % 16;
    const int local_index = local_row * 16 + local_col;
    const int a_row = local_index / 4;
    const int a_k = local_index % 4 * 4;
    const int b_k = local_index / 32;
    const int b_col = local_index % 32 * 4;

    __shared__ __align__(16) float a_shared[2][16][128];
    __align__(16) float a_next[2][4];
    __shared__ __align__(16) float b_shared[2][16][128];
    __align__(16) float b_next[2][4];
    float acc[8][8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 16 along K.
    if (16 <= k_main) {
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            __align__(16) float a_vector[4];
            if (lda % 4 == 0) {
                copy4(a_vector, &a[min(row0 + a_row + i * 64, m - 1) * lda + a_k]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a_vector[e] = a[min(row0 + a_row + i * 64, m - 1) * lda + a_k + e];
                }
            }
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_shared[0][a_k + e][a_row + i * 64] = a_vector[e];
            }
        }
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (ldb % 4 == 0 && col0 + b_col + 4 <= n) {
                copy4(&b_shared[0][b_k + i * 8][b_col], &b[(b_k + i * 8) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[0][b_k + i * 8][b_col + e] =
                        b[(b_k + i * 8) * ldb + min(col0 + b_col + e, n - 1)];
                }
            }
        }
    }
    for (int k0 = 0; k0 < k_main; k0 += 16) {
        const int slot = k0 / 16 % 2;
        const int next_slot = (k0 / 16 + 1) % 2;
        __syncthreads();
        if (k0 + 32 <= k_main) {
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                if (lda % 4 == 0) {
                    copy4(a_next[i], &a[min(row0 + a_row + i * 64, m - 1) * lda + k0 + a_k + 16]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        a_next[i][e] =
                            a[min(row0 + a_row + i * 64, m - 1) * lda + k0 + a_k + e + 16];
                    }
                }
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                if (ldb % 4 == 0 && col0 + b_col + 4 <= n) {
                    copy4(b_next[i], &b[(k0 + b_k + i * 8 + 16) * ldb + col0 + b_col]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_next[i][e] =
                            b[(k0 + b_k + i * 8 + 16) * ldb + min(col0 + b_col + e, n - 1)];
                    }
                }
            }
        }
        #pragma unroll 8
        for (int kk = 0; kk < 16; ++kk) {
            __align__(16) float a_frag[8];
            __align__(16) float b_frag[8];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                copy4(&a_frag[i * 4], &a_shared[slot][kk][local_row * 4 + i * 64]);
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                copy4(&b_frag[j * 4], &b_shared[slot][kk][local_col * 4 + j * 64]);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 8; ++j) {
                    acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
        if (k0 + 32 <= k_main) {
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a_shared[next_slot][a_k + e][a_row + i * 64] = a_next[i][e];
                }
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                copy4(&b_shared[next_slot][b_k + i * 8][b_col], b_next[i]);
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            __align__(16) float a_vector[4];
            if (lda % 4 == 0 && k_main + a_k + 4 <= k) {
                copy4(a_vector, &a[min(row0 + a_row + i * 64, m - 1) * lda + k_main + a_k]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a_vector[e] =
                        k_main + a_k + e < k
                            ? a[min(row0 + a_row + i * 64, m - 1) * lda + k_main + a_k + e]
                            : 0.0f;
                }
            }
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_shared[0][a_k + e][a_row + i * 64] = a_vector[e];
            }
        }
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (ldb % 4 == 0 && k_main + b_k + i * 8 < k && col0 + b_col + 4 <= n) {
                copy4(&b_shared[0][b_k + i * 8][b_col],
                    &b[(k_main + b_k + i * 8) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[0][b_k + i * 8][b_col + e] =
                        k_main + b_k + i * 8 < k
                            ? b[(k_main + b_k + i * 8) * ldb + min(col0 + b_col + e, n - 1)]
                            : 0.0f;
                }
            }
        }
        __syncthreads();
        #pragma unroll 8
        for (int kk = 0; kk < 16; ++kk) {
            __align__(16) float a_frag[8];
            __align__(16) float b_frag[8];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                copy4(&a_frag[i * 4], &a_shared[0][kk][local_row * 4 + i * 64]);
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                copy4(&b_frag[j * 4], &b_shared[0][kk][local_col * 4 + j * 64]);
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
namespace lds_8x8_16x16_k16_double_detail {

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

} // namespace lds_8x8_16x16_k16_double_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t lds_8x8_16x16_k16_double_launch(int m, int n, int k, float alpha,
                                                       const float *a, int lda, const float *b,
                                                       int ldb, float beta, float *c, int ldc,
                                                       cudaStream_t stream)
{
    using namespace lds_8x8_16x16_k16_double_detail;

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
    lds_8x8_16x16_k16_double<<<grid, block, 0, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
