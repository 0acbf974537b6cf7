// bfloat_in_integers: C = alpha * A * B + beta * C; bfloat16, sums in float32
//
// Tile       16x16 of C per block, 2x2 per thread, 8 along K per step
// Threads    8x8 per block
// A          global memory, loads of single elements, to shared memory
// B          global memory, loads of 4 elements, to shared memory
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (8, 8), grid ((n + 15) / 16, (m + 15) / 16) of at most 65,535 along y
// Needs      512 bytes of shared memory
//            matrices that begin on multiples of 8 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c bfloat_in_integers.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_bf16.h>

namespace bfloat_in_integers_detail {

constexpr int BM = 16, BN = 16, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_M = 8, THREADS_N = 8; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(BM == 16 && BN == 16,
              "BM and BN cannot change here: emit it again with --set tile=1x2");
static_assert(THREADS_M == 8 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=4x8");
static_assert(BM * BK % THREADS == 0, "BM * BK must be a multiple of THREADS");
static_assert(THREADS % BK == 0, "THREADS must be a multiple of BK");
static_assert(BN * BK % 4 == 0, "BN * BK must be a multiple of 4");

// 4 neighbouring elements; both addresses are multiples of 8 bytes.
__device__ __forceinline__ void copy4(__nv_bfloat16 *to, const __nv_bfloat16 *from)
{
    *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(from);
}

static_assert(sizeof(__nv_bfloat16[BM][BK]) + sizeof(__nv_bfloat16[BK][BN]) <= 49152,
              "an array of a fixed size has no room for it: emit a kernel with these constants");

} // namespace bfloat_in_integers_detail

extern "C" __global__ void __launch_bounds__(bfloat_in_integers_detail::THREADS)
bfloat_in_integers(int m, int n, int k, float alpha, const __nv_bfloat16 *__restrict__ a, int lda,
                   const __nv_bfloat16 *__restrict__ b, int ldb, float beta,
                   __nv_bfloat16 *__restrict__ c, int ldc)
{
    using namespace bfloat_in_integers_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * BM;
    const int col0 = int(blockIdx.x) * BN;
    const int row = row0 + local_row;
    const int col = col0 + local_col;
    const int k_main = k - k % BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_row = local_index / BK;
    const int a_k = local_index % BK;
    const int b_k = local_index / (BN / 4);
    const int b_col = local_index % (BN / 4) * 4;

    __shared__ __nv_bfloat16 a_shared[BM][BK];
    __shared__ __align__(16) __nv_bfloat16 b_shared[BK][BN];
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
        for (int i = 0; i < BM * BK / THREADS; ++i) {
            a_shared[a_row + i * (THREADS / BK)][a_k] =
                a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k0 + a_k];
        }
        #pragma unroll
        for (int i = 0; i < (BN * BK / 4 + THREADS - 1) / THREADS; ++i) {
            if (local_index + i * THREADS < BN * BK / 4) {
                if (ldb % 4 == 0 && k0 + b_k + i * (THREADS * 4 / BN) < k &&
                    col0 + b_col + 4 <= n) {
                    copy4(&b_shared[b_k + i * (THREADS * 4 / BN)][b_col],
                          &b[(k0 + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_shared[b_k + i * (THREADS * 4 / BN)][b_col + e] =
                            k0 + b_k + i * (THREADS * 4 / BN) < k
                                ? b[(k0 + b_k + i * (THREADS * 4 / BN)) * ldb +
                                    min(col0 + b_col + e, n - 1)]
                                : __nv_bfloat16();
                    }
                }
            }
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = float(a_shared[local_row + i * THREADS_M][kk]);
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[j] = float(b_shared[kk][local_col + j * THREADS_N]);
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
        for (int i = 0; i < BM * BK / THREADS; ++i) {
            a_shared[a_row + i * (THREADS / BK)][a_k] =
                k_main + a_k < k
                    ? a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k_main + a_k]
                    : __nv_bfloat16();
        }
        #pragma unroll
        for (int i = 0; i < (BN * BK / 4 + THREADS - 1) / THREADS; ++i) {
            if (local_index + i * THREADS < BN * BK / 4) {
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
                                : __nv_bfloat16();
                    }
                }
            }
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = float(a_shared[local_row + i * THREADS_M][kk]);
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[j] = float(b_shared[kk][local_col + j * THREADS_N]);
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
        if (row + i * THREADS_M < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    const float c_value =
                        beta == 0.0f
                            ? alpha * acc[i][j]
                            : fmaf(beta,
                                   float(c[(row + i * THREADS_M) * ldc + col + j * THREADS_N]),
                                   alpha * acc[i][j]);
                    c[(row + i * THREADS_M) * ldc + col + j * THREADS_N] = __nv_bfloat16(c_value);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace bfloat_in_integers_detail {

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

} // namespace bfloat_in_integers_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
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
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    const dim3 block(THREADS_N, THREADS_M);
    bfloat_in_integers<<<grid, block, 0, stream>>>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
