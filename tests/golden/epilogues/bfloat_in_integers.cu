// bfloat_in_integers: C = alpha * A * B + beta * C; bfloat16, sums in float32
//
// Schedule   2x2 of C per thread, 8x8 threads per block (16x16 of C), 8 along K per iteration
// A          global memory, loads of single elements, through shared memory
// B          global memory, loads of 4 elements, through shared memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (8, 8), grid ((n + 15) / 16, (m + 15) / 16)
// Needs      512 bytes of shared memory
//            matrices that begin on multiples of 8 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c bfloat_in_integers.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_bf16.h>

namespace bfloat_in_integers_detail {

// 4 neighbouring elements; both addresses are multiples of 8 bytes.
__device__ __forceinline__ void copy4(__nv_bfloat16 *to, const __nv_bfloat16 *from)
{
    *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(from);
}

} // namespace bfloat_in_integers_detail

extern "C" __global__ void __launch_bounds__(64)
bfloat_in_integers(int m, int n, int k, float alpha, const __nv_bfloat16 *__restrict__ a, int lda,
                   const __nv_bfloat16 *__restrict__ b, int ldb, float beta,
                   __nv_bfloat16 *__restrict__ c, int ldc)
{
    using namespace bfloat_in_integers_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * 16;
    const int col0 = int(blockIdx.x) * 16;
    const int row = row0 + local_row;
    const int col = col0 + local_col;
    const int k_main = k - k % 8;
    const int local_index = local_row * 8 + local_col;
    const int a_row = local_index / 8;
    const int a_k = local_index % 8;
    const int b_k = local_index / 4;
    const int b_col = local_index % 4 * 4;

    __shared__ __nv_bfloat16 a_shared[16][8];
    __shared__ __align__(16) __nv_bfloat16 b_shared[8][16];
    float acc[2][2];
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 8 along K.
    for (int k0 = 0; k0 < k_main; k0 += 8) {
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            a_shared[a_row + i * 8][a_k] = a[min(row0 + a_row + i * 8, m - 1) * lda + k0 + a_k];
        }
        if (local_index < 32) {
            if (ldb % 4 == 0 && k0 + b_k < k && col0 + b_col + 4 <= n) {
                copy4(&b_shared[b_k][b_col], &b[(k0 + b_k) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k][b_col + e] =
                        k0 + b_k < k ? b[(k0 + b_k) * ldb + min(col0 + b_col + e, n - 1)]
                                     : __nv_bfloat16();
                }
            }
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[2];
            float b_frag[2];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                a_frag[i] = float(a_shared[local_row + i * 8][kk]);
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                b_frag[j] = float(b_shared[kk][local_col + j * 8]);
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            a_shared[a_row + i * 8][a_k] =
                k_main + a_k < k ? a[min(row0 + a_row + i * 8, m - 1) * lda + k_main + a_k]
                                 : __nv_bfloat16();
        }
        if (local_index < 32) {
            if (ldb % 4 == 0 && k_main + b_k < k && col0 + b_col + 4 <= n) {
                copy4(&b_shared[b_k][b_col], &b[(k_main + b_k) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k][b_col + e] =
                        k_main + b_k < k ? b[(k_main + b_k) * ldb + min(col0 + b_col + e, n - 1)]
                                         : __nv_bfloat16();
                }
            }
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[2];
            float b_frag[2];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                a_frag[i] = float(a_shared[local_row + i * 8][kk]);
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                b_frag[j] = float(b_shared[kk][local_col + j * 8]);
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (row + i * 8 < m) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (col + j * 8 < n) {
                    const float c_value =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fmaf(beta, float(c[(row + i * 8) * ldc + col + j * 8]),
                                         alpha * acc[i][j]);
                    c[(row + i * 8) * ldc + col + j * 8] = __nv_bfloat16(c_value);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace bfloat_in_integers_detail {

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

} // namespace bfloat_in_integers_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t bfloat_in_integers_launch(int m, int n, int k, float alpha,
                                                 const __nv_bfloat16 *a, int lda,
                                                 const __nv_bfloat16 *b, int ldb, float beta,
                                                 __nv_bfloat16 *c, int ldc, cudaStream_t stream)
{
    using namespace bfloat_in_integers_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 8) || !is_aligned(b, 8) || !is_aligned(c, 8)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    const dim3 grid((n + 15) / 16, (m + 15) / 16);
    const dim3 block(8, 8);
    bfloat_in_integers<<<grid, block, 0, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
