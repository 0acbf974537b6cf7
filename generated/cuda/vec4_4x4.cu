// vec4_4x4: C = alpha * A * B + beta * C; float32
//
// Tile       64x64 of C per block, 4x4 per thread, 4 along K per step
// Threads    16x16 per block
// A          global memory, loads of 4 elements
// B          global memory, loads of 4 elements
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (16, 16), grid ((n + 63) / 64, (m + 63) / 64) of at most 65,535 along y
// Needs      matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c vec4_4x4.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace vec4_4x4_detail {

constexpr int BM = 64, BN = 64, BK = 4; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_M = 16, THREADS_N = 16; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(BM == 64 && BN == 64, "BM and BN cannot change here: "
                                    "gemmgen emit --preset vec4_4x4 --backend cuda --set tile=8x4");
static_assert(BK == 4, "BK cannot change here: "
                       "gemmgen emit --preset vec4_4x4 --backend cuda --set block_k=8");
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset vec4_4x4 --backend cuda --set group=8x16");

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

} // namespace vec4_4x4_detail

extern "C" __global__ void __launch_bounds__(vec4_4x4_detail::THREADS)
vec4_4x4(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
         const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    using namespace vec4_4x4_detail;

    const int row = int(blockIdx.y) * BM + int(threadIdx.y) * 4;
    const int col = int(blockIdx.x) * BN + int(threadIdx.x) * 4;
    const int k_main = k - k % BK;

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
        __align__(16) float a_frag[TM][4];
        __align__(16) float b_frag[4][TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            if (lda % 4 == 0) {
                copy4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a_frag[i][e] = a[min(row + i, m - 1) * lda + k0 + e];
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (ldb % 4 == 0 && col + 4 <= n) {
                copy4(b_frag[i], &b[(k0 + i) * ldb + col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_frag[i][e] = b[(k0 + i) * ldb + min(col + e, n - 1)];
                }
            }
        }
        #pragma unroll
        for (int p = 0; p < 4; ++p) {
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fmaf(a_frag[i][p], b_frag[p][j], acc[i][j]);
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        __align__(16) float a_frag[TM][4];
        __align__(16) float b_frag[4][TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_frag[i][e] = k_main + e < k ? a[min(row + i, m - 1) * lda + k_main + e] : 0.0f;
            }
        }
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (ldb % 4 == 0 && k_main + i < k && col + 4 <= n) {
                copy4(b_frag[i], &b[(k_main + i) * ldb + col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_frag[i][e] =
                        k_main + i < k ? b[(k_main + i) * ldb + min(col + e, n - 1)] : 0.0f;
                }
            }
        }
        #pragma unroll
        for (int p = 0; p < 4; ++p) {
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fmaf(a_frag[i][p], b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j < n) {
                    c[(row + i) * ldc + col + j] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fmaf(beta, c[(row + i) * ldc + col + j], alpha * acc[i][j]);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace vec4_4x4_detail {

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

} // namespace vec4_4x4_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t vec4_4x4_launch(int m, int n, int k, float alpha, const float *a, int lda,
                                       const float *b, int ldb, float beta, float *c, int ldc,
                                       cudaStream_t stream)
{
    using namespace vec4_4x4_detail;

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
    vec4_4x4<<<grid, block, 0, stream>>>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
