// int8_weights: C = alpha * A * B, then scale, bias, silu; float32, B stored in int8
//
// Schedule   4x4 of C per thread, 8x8 threads per block (32x32 of C), 8 along K per iteration
// A          global memory, loads of 4 elements, through shared memory, transposed
// B          global memory, loads of 4 elements, through shared memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Epilogue   scale: acc * scale
//            bias: acc + bias
//            silu: acc / (1 + exp(-acc))
// Takes      bias: an element for each column of C
//            scale: an element for each column of C
// Unread     A and B where k is 0, which serves for alpha = 0 as well
// Launch     block (8, 8), grid ((n + 31) / 32, (m + 31) / 32)
// Needs      1,280 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c int8_weights.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace int8_weights_detail {

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// 4 neighbouring elements; both addresses are multiples of 4 bytes.
__device__ __forceinline__ void copy4(signed char *to, const signed char *from)
{
    *reinterpret_cast<unsigned *>(to) = *reinterpret_cast<const unsigned *>(from);
}

// 4 neighbouring elements to registers, in their type; `from` is a multiple of 4 bytes.
__device__ __forceinline__ void copy4(float *to, const signed char *from)
{
    __align__(4) signed char elements[4];
    copy4(elements, from);
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
        to[e] = float(elements[e]);
    }
}

} // namespace int8_weights_detail

extern "C" __global__ void __launch_bounds__(64)
int8_weights(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
             const signed char *__restrict__ b, int ldb, float *__restrict__ c, int ldc,
             const float *__restrict__ bias, const float *__restrict__ scale)
{
    using namespace int8_weights_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * 32;
    const int col0 = int(blockIdx.x) * 32;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % 8;
    const int local_index = local_row * 8 + local_col;
    const int a_row = local_index / 2;
    const int a_k = local_index % 2 * 4;
    const int b_k = local_index / 8;
    const int b_col = local_index % 8 * 4;

    __shared__ __align__(16) float a_shared[8][32];
    __shared__ __align__(16) signed char b_shared[8][32];
    float acc[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 8 along K.
    for (int k0 = 0; k0 < k_main; k0 += 8) {
        __syncthreads();
        __align__(16) float a_vector[4];
        if (lda % 4 == 0) {
            copy4(a_vector, &a[min(row0 + a_row, m - 1) * lda + k0 + a_k]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_vector[e] = a[min(row0 + a_row, m - 1) * lda + k0 + a_k + e];
            }
        }
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            a_shared[a_k + e][a_row] = a_vector[e];
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
            __align__(16) float a_frag[4];
            __align__(16) float b_frag[4];
            copy4(a_frag, &a_shared[kk][local_row * 4]);
            copy4(b_frag, &b_shared[kk][local_col * 4]);
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        __syncthreads();
        __align__(16) float a_vector[4];
        if (lda % 4 == 0 && k_main + a_k + 4 <= k) {
            copy4(a_vector, &a[min(row0 + a_row, m - 1) * lda + k_main + a_k]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_vector[e] =
                    k_main + a_k + e < k ? a[min(row0 + a_row, m - 1) * lda + k_main + a_k + e]
                                         : 0.0f;
            }
        }
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            a_shared[a_k + e][a_row] = a_vector[e];
        }
        if (ldb % 4 == 0 && k_main + b_k < k && col0 + b_col + 4 <= n) {
            copy4(&b_shared[b_k][b_col], &b[(k_main + b_k) * ldb + col0 + b_col]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                b_shared[b_k][b_col + e] =
                    k_main + b_k < k ? b[(k_main + b_k) * ldb + min(col0 + b_col + e, n - 1)] : 0;
            }
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < 8; ++kk) {
            __align__(16) float a_frag[4];
            __align__(16) float b_frag[4];
            copy4(a_frag, &a_shared[kk][local_row * 4]);
            copy4(b_frag, &b_shared[kk][local_col * 4]);
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B, then scale, bias, silu.
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (col + j < n) {
                    const int c_col = col + j;
                    const float after_bias = alpha * acc[i][j] * scale[c_col] + bias[c_col];
                    c[(row + i) * ldc + c_col] = after_bias / (1.0f + expf(-after_bias));
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace int8_weights_detail {

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

} // namespace int8_weights_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t int8_weights_launch(int m, int n, int k, float alpha, const float *a,
                                           int lda, const signed char *b, int ldb, float *c,
                                           int ldc, const float *bias, const float *scale,
                                           cudaStream_t stream)
{
    using namespace int8_weights_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16) || !is_aligned(bias, 4) ||
        !is_aligned(scale, 4)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    const dim3 grid((n + 31) / 32, (m + 31) / 32);
    const dim3 block(8, 8);
    int8_weights<<<grid, block, 0, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, c, ldc, bias, scale);
    return cudaGetLastError();
}
#endif
