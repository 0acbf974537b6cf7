// L3_SLM_8x8_16x16: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per block, 8x8 per thread, 8 along K per step
// Threads    16x16 per block
// A          global memory, loads of 4 elements, to shared memory
// B          global memory, loads of 4 elements
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (16, 16), grid ((n + 127) / 128, (m + 127) / 128) of at most 65,535 along y
// Needs      4,096 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c L3_SLM_8x8_16x16.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace L3_SLM_8x8_16x16_detail {

constexpr int BM = 128, BN = 128, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_M = 16, THREADS_N = 16; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(BM == 128 && BN == 128,
              "BM and BN cannot change here: "
              "gemmgen emit --preset L3_SLM_8x8_16x16 --backend cuda --set tile=8x4");
static_assert(BK == 8, "BK cannot change here: "
                       "gemmgen emit --preset L3_SLM_8x8_16x16 --backend cuda --set block_k=16");
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset L3_SLM_8x8_16x16 --backend cuda --set group=8x16");

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

} // namespace L3_SLM_8x8_16x16_detail

extern "C" __global__ void __launch_bounds__(L3_SLM_8x8_16x16_detail::THREADS)
L3_SLM_8x8_16x16(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                 const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    using namespace L3_SLM_8x8_16x16_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * BM;
    const int row = row0 + local_row * 8;
    const int col = int(blockIdx.x) * BN + local_col * 4;
    const int k_main = k - k % BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_row = local_index / (BK / 4);
    const int a_k = local_index % (BK / 4) * 4;

    __shared__ __align__(16) float a_shared[BM][BK];
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    for (int k0 = 0; k0 < k_main; k0 += BK) {
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
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            __align__(16) float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = a_shared[local_row * 8 + i][kk];
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                if (ldb % 4 == 0 && col + j * THREADS_N * 4 + 4 <= n) {
                    copy4(&b_frag[j * 4], &b[(k0 + kk) * ldb + col + j * THREADS_N * 4]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_frag[j * 4 + e] =
                            b[(k0 + kk) * ldb + min(col + j * THREADS_N * 4 + e, n - 1)];
                    }
                }
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
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
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            __align__(16) float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = a_shared[local_row * 8 + i][kk];
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                if (ldb % 4 == 0 && k_main + kk < k && col + j * THREADS_N * 4 + 4 <= n) {
                    copy4(&b_frag[j * 4], &b[(k_main + kk) * ldb + col + j * THREADS_N * 4]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_frag[j * 4 + e] =
                            k_main + kk < k
                                ? b[(k_main + kk) * ldb + min(col + j * THREADS_N * 4 + e, n - 1)]
                                : 0.0f;
                    }
                }
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                if (col + j * THREADS_N * 4 + 4 <= n && ldc % 4 == 0) {
                    __align__(16) float c_values[4];
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        __align__(16) float c_old[4];
                        copy4(c_old, &c[(row + i) * ldc + col + j * THREADS_N * 4]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = fmaf(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy4(&c[(row + i) * ldc + col + j * THREADS_N * 4], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * THREADS_N * 4 + e < n) {
                            c[(row + i) * ldc + col + j * THREADS_N * 4 + e] =
                                beta == 0.0f
                                    ? alpha * acc[i][j * 4 + e]
                                    : fmaf(beta, c[(row + i) * ldc + col + j * THREADS_N * 4 + e],
                                           alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace L3_SLM_8x8_16x16_detail {

// Whether a matrix is aligned to `bytes` bytes.
static bool is_aligned(const void *matrix, size_t bytes)
{
    return reinterpret_cast<size_t>(matrix) % bytes == 0;
}

// Loops step past the end of a size: from here on, 32 bits might not hold where they stop.
constexpr long long TOO_MANY = (1LL << 31) - 1024;

// Whether lines do not overlap, at `pitch` elements from one to the next, and 32-bit indices reach
// the whole matrix.
static bool is_in_reach(long long lines, long long length, long long pitch)
{
    if (lines < 1 || length < 1) {
        return true;
    }
    return lines < TOO_MANY && length < TOO_MANY && (lines == 1 || pitch >= length) &&
           (lines - 1) * pitch + length < 1LL << 31;
}

} // namespace L3_SLM_8x8_16x16_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t L3_SLM_8x8_16x16_launch(int m, int n, int k, float alpha, const float *a,
                                               int lda, const float *b, int ldb, float beta,
                                               float *c, int ldc, cudaStream_t stream)
{
    using namespace L3_SLM_8x8_16x16_detail;

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
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    const dim3 block(THREADS_N, THREADS_M);
    L3_SLM_8x8_16x16<<<grid, block, 0, stream>>>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
