// L3_SIMD_16x2_4x8: C = alpha * A * B + beta * C; float32
//
// Tile       64x16 of C per block, 16x2 per thread, 32 along K per step
// Threads    4x8 per block
// A          global memory, loads of single elements, passed around the warp by shuffles
// B          global memory, loads of single elements
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (8, 4), grid ((n + 15) / 16, (m + 63) / 64) of at most 65,535 along y
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c L3_SIMD_16x2_4x8.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace L3_SIMD_16x2_4x8_detail {

constexpr int BM = 64, BN = 16; // block tile of C
constexpr int THREADS_M = 4, THREADS_N = 8; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(BM == 64 && BN == 16,
              "BM and BN cannot change here: "
              "gemmgen emit --preset L3_SIMD_16x2_4x8 --backend cuda --set tile=16x4");
static_assert(THREADS_M == 4 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset L3_SIMD_16x2_4x8 --backend cuda --set group=2x8");

} // namespace L3_SIMD_16x2_4x8_detail

extern "C" __global__ void __launch_bounds__(L3_SIMD_16x2_4x8_detail::THREADS)
L3_SIMD_16x2_4x8(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                 const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    using namespace L3_SIMD_16x2_4x8_detail;

    const int lane = int(threadIdx.x);
    const int row = int(blockIdx.y) * BM + int(threadIdx.y) * 16;
    const int col = int(blockIdx.x) * BN + lane;
    const int k_main = k - k % 32;

    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 32 along K.
    for (int k0 = 0; k0 < k_main; k0 += 32) {
        float b_frag[32][TN];
        #pragma unroll
        for (int i = 0; i < 32; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[i][j] = b[(k0 + i) * ldb + min(col + j * THREADS_N, n - 1)];
            }
        }
        float a_frag[TM][4];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                a_frag[i][j] = a[min(row + i, m - 1) * lda + k0 + lane + j * 8];
            }
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < 32; ++p) {
                const float a_value = __shfl_sync(0xffffffffu, a_frag[i][p / 8], p % 8, 8);
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fmaf(a_value, b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // The rest of K; what lies past it counts as zero.
    for (int k0 = k_main; k0 < k; k0 += 8) {
        float b_frag[8][TN];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[i][j] =
                    k0 + i < k ? b[(k0 + i) * ldb + min(col + j * THREADS_N, n - 1)] : 0.0f;
            }
        }
        float a_frag[TM];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            a_frag[i] = k0 + lane < k ? a[min(row + i, m - 1) * lda + k0 + lane] : 0.0f;
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < 8; ++p) {
                const float a_value = __shfl_sync(0xffffffffu, a_frag[i], p, 8);
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fmaf(a_value, b_frag[p][j], acc[i][j]);
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
                if (col + j * THREADS_N < n) {
                    c[(row + i) * ldc + col + j * THREADS_N] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fmaf(beta, c[(row + i) * ldc + col + j * THREADS_N],
                                            alpha * acc[i][j]);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace L3_SIMD_16x2_4x8_detail {

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

} // namespace L3_SIMD_16x2_4x8_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t L3_SIMD_16x2_4x8_launch(int m, int n, int k, float alpha, const float *a,
                                               int lda, const float *b, int ldb, float beta,
                                               float *c, int ldc, cudaStream_t stream)
{
    using namespace L3_SIMD_16x2_4x8_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 4) || !is_aligned(b, 4) || !is_aligned(c, 4)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    const dim3 block(THREADS_N, THREADS_M);
    L3_SIMD_16x2_4x8<<<grid, block, 0, stream>>>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
