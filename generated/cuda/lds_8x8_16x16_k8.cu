// lds_8x8_16x16_k8: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per block, 8x8 per thread, 8 along K per step
// Threads    16x16 per block
// A          global memory, loads of 4 elements, to shared memory, transposed
// B          global memory, loads of 4 elements, to shared memory
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (16, 16), grid ((n + 127) / 128, (m + 127) / 128) of at most 65,535 along y
// Needs      8,192 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c lds_8x8_16x16_k8.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace lds_8x8_16x16_k8_detail {

constexpr int BM = 128, BN = 128, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_M = 16, THREADS_N = 16; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset lds_8x8_16x16_k8 --backend cuda --set group=8x16");
static_assert(TM % 4 == 0 && TN % 4 == 0 && BK % 4 == 0, "TM, TN and BK must be multiples of 4");
static_assert(BM * BK % (THREADS * 4) == 0 && BN * BK % (THREADS * 4) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 4");
static_assert(THREADS * 4 % BK == 0, "THREADS * 4 must be a multiple of BK");
static_assert(THREADS * 4 % BN == 0, "THREADS * 4 must be a multiple of BN");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 4 && TN > 4,
              "TM and TN must exceed 4 here: "
              "gemmgen emit --preset lds_8x8_16x16_k8 --backend cuda --set tile=4x8");

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

static_assert(sizeof(float[BK][BM]) + sizeof(float[BK][BN]) <= 49152,
              "an array of a fixed size has no room for it: emit a kernel with these constants");

} // namespace lds_8x8_16x16_k8_detail

extern "C" __global__ void __launch_bounds__(lds_8x8_16x16_k8_detail::THREADS)
lds_8x8_16x16_k8(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                 const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    using namespace lds_8x8_16x16_k8_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * BM;
    const int col0 = int(blockIdx.x) * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_row = local_index / (BK / 4);
    const int a_k = local_index % (BK / 4) * 4;
    const int b_k = local_index / (BN / 4);
    const int b_col = local_index % (BN / 4) * 4;

    __shared__ __align__(16) float a_shared[BK][BM];
    __shared__ __align__(16) float b_shared[BK][BN];
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
        #pragma unroll
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            __align__(16) float a_vector[4];
            if (lda % 4 == 0) {
                copy4(a_vector,
                      &a[min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda + k0 + a_k]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a_vector[e] =
                        a[min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda + k0 + a_k + e];
                }
            }
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_shared[a_k + e][a_row + i * (THREADS * 4 / BK)] = a_vector[e];
            }
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            if (ldb % 4 == 0 && col0 + b_col + 4 <= n) {
                copy4(&b_shared[b_k + i * (THREADS * 4 / BN)][b_col],
                      &b[(k0 + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k + i * (THREADS * 4 / BN)][b_col + e] =
                        b[(k0 + b_k + i * (THREADS * 4 / BN)) * ldb + min(col0 + b_col + e, n - 1)];
                }
            }
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            __align__(16) float a_frag[TM];
            __align__(16) float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM / 4; ++i) {
                copy4(&a_frag[i * 4], &a_shared[kk][local_row * 4 + i * THREADS_M * 4]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                copy4(&b_frag[j * 4], &b_shared[kk][local_col * 4 + j * THREADS_N * 4]);
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
        #pragma unroll
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            __align__(16) float a_vector[4];
            if (lda % 4 == 0 && k_main + a_k + 4 <= k) {
                copy4(a_vector,
                      &a[min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda + k_main + a_k]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a_vector[e] = k_main + a_k + e < k
                                      ? a[min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda +
                                          k_main + a_k + e]
                                      : 0.0f;
                }
            }
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_shared[a_k + e][a_row + i * (THREADS * 4 / BK)] = a_vector[e];
            }
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            if (ldb % 4 == 0 && k_main + b_k + i * (THREADS * 4 / BN) < k &&
                col0 + b_col + 4 <= n) {
                copy4(&b_shared[b_k + i * (THREADS * 4 / BN)][b_col],
                      &b[(k_main + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k + i * (THREADS * 4 / BN)][b_col + e] =
                        k_main + b_k + i * (THREADS * 4 / BN) < k
                            ? b[(k_main + b_k + i * (THREADS * 4 / BN)) * ldb +
                                min(col0 + b_col + e, n - 1)]
                            : 0.0f;
                }
            }
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            __align__(16) float a_frag[TM];
            __align__(16) float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM / 4; ++i) {
                copy4(&a_frag[i * 4], &a_shared[kk][local_row * 4 + i * THREADS_M * 4]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                copy4(&b_frag[j * 4], &b_shared[kk][local_col * 4 + j * THREADS_N * 4]);
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
        const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j / 4 * THREADS_N * 4 + j % 4 < n) {
                    c[c_row * ldc + col + j / 4 * THREADS_N * 4 + j % 4] =
                        beta == 0.0f
                            ? alpha * acc[i][j]
                            : fmaf(beta, c[c_row * ldc + col + j / 4 * THREADS_N * 4 + j % 4],
                                   alpha * acc[i][j]);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace lds_8x8_16x16_k8_detail {

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

} // namespace lds_8x8_16x16_k8_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t lds_8x8_16x16_k8_launch(int m, int n, int k, float alpha, const float *a,
                                               int lda, const float *b, int ldb, float beta,
                                               float *c, int ldc, cudaStream_t stream)
{
    using namespace lds_8x8_16x16_k8_detail;

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
    lds_8x8_16x16_k8<<<grid, block, 0, stream>>>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
