// scaled_residual_split4: C = alpha * A * B + beta * C, then scale, row_scale, residual, clamp(-4,
// 4), a formula; float16, sums in float32
//
// Tile       32x32 of C per block, 4x4 per thread, 4 along K per step
// Threads    8x8 per block
// A          global memory, loads of single elements
// B          global memory, loads of single elements
// Multiply   fused multiply-add
// C          stores of single elements, to the workspace
// Grid       split-K: 4 parts, added up by a second kernel
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; the workspace less than 2^31
//            elements
// Epilogue   scale: acc * scale
//            row_scale: acc * row_scale
//            residual: acc + residual
//            clamp: -4 if acc < -4 else 4 if acc > 4 else acc
//            expr: max(acc, 0.5 * c) if row != col else tanh(acc)
// Takes      scale: an element for each column of C
//            row_scale: an element for each row of C
//            residual: an element for each element of C, stored as C is, and no part of it
// Unread     A and B where k is 0: pass k = 0 where alpha is 0
// Launch     scaled_residual_split4: block (8, 8), grid ((m + 31) / 32 * ((n + 31) / 32) * 4, 1)
//            scaled_residual_split4_total: block (256, 1), grid (m * ((n + 255) / 256), 1)
// Needs      a workspace of m * n * 4 elements
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c scaled_residual_split4.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_fp16.h>

namespace scaled_residual_split4_detail {

constexpr int BM = 32, BN = 32, BK = 4; // block tile: BM x BN of C, BK along K per step
constexpr int SPLIT_K = 4; // parts of K (split-K)
constexpr int THREADS_M = 8, THREADS_N = 8; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(BM == 32 && BN == 32,
              "BM and BN cannot change here: emit it again with --set tile=2x4");
static_assert(BK == 4, "BK cannot change here: emit it again with --set block_k=8");
static_assert(SPLIT_K == 4, "SPLIT_K cannot change here: emit it again with --set split_k=8");
static_assert(THREADS_M == 8 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=4x8");

} // namespace scaled_residual_split4_detail

extern "C" __global__ void __launch_bounds__(scaled_residual_split4_detail::THREADS)
scaled_residual_split4(int m, int n, int k, float alpha, const __half *__restrict__ a, int lda,
                       const __half *__restrict__ b, int ldb, float *__restrict__ workspace)
{
    using namespace scaled_residual_split4_detail;

    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int part = int(blockIdx.x) / (blocks_down * blocks_across);
    const int block = int(blockIdx.x) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int row = row0 + int(threadIdx.y);
    const int col = col0 + int(threadIdx.x);
    const int k_part = (k + SPLIT_K * BK - 1) / (SPLIT_K * BK) * BK;
    const int k_begin = part * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int k_main = min(k - k % BK, k_end);

    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    for (int k0 = k_begin; k0 < k_main; k0 += BK) {
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = float(a[min(row + i * THREADS_M, m - 1) * lda + k0 + kk]);
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[j] = float(b[(k0 + kk) * ldb + min(col + j * THREADS_N, n - 1)]);
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
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K; what lies past it counts as zero.
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = k_main + kk < k
                                ? float(a[min(row + i * THREADS_M, m - 1) * lda + k_main + kk])
                                : 0.0f;
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[j] = k_main + kk < k
                                ? float(b[(k_main + kk) * ldb + min(col + j * THREADS_N, n - 1)])
                                : 0.0f;
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

    // Split-K: this part's partial sums.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i * THREADS_M < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    workspace[part * (m * n) + (row + i * THREADS_M) * n + col + j * THREADS_N] =
                        alpha * acc[i][j];
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
scaled_residual_split4_total(int m, int n, const float *__restrict__ workspace, float beta,
                             __half *__restrict__ c, int ldc, const __half *__restrict__ scale,
                             const __half *__restrict__ row_scale,
                             const __half *__restrict__ residual, int ldr)
{
    using namespace scaled_residual_split4_detail;

    const int blocks_across = (n + 255) / 256;
    const int row = int(blockIdx.x) / blocks_across;
    const int col = int(blockIdx.x) % blocks_across * 256 + int(threadIdx.x);

    if (col < n) {
        // Reduction of split-K: the partial sums in order.
        float total = workspace[row * n + col];
        #pragma unroll
        for (int s = 1; s < SPLIT_K; ++s) {
            total += workspace[s * (m * n) + row * n + col];
        }
        const float value = beta == 0.0f ? total : fmaf(beta, float(c[row * ldc + col]), total);
        const float after_residual =
            value * float(scale[col]) * float(row_scale[row]) + float(residual[row * ldr + col]);
        const float after_clamp = after_residual < -4.0f  ? -4.0f
                                  : after_residual > 4.0f ? 4.0f
                                                          : after_residual;
        const float c_value =
            row != col ? fmaxf(after_clamp, 0.5f * float(c[row * ldc + col])) : tanhf(after_clamp);
        c[row * ldc + col] = __half(c_value);
    }
}

#ifndef __CUDACC_RTC__
namespace scaled_residual_split4_detail {

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

} // namespace scaled_residual_split4_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t
scaled_residual_split4_launch(int m, int n, int k, float alpha, const __half *a, int lda,
                              const __half *b, int ldb, float *workspace, float beta, __half *c,
                              int ldc, const __half *scale, const __half *row_scale,
                              const __half *residual, int ldr, cudaStream_t stream)
{
    using namespace scaled_residual_split4_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 2) || !is_aligned(b, 2) || !is_aligned(workspace, 4) || !is_aligned(c, 2) ||
        !is_aligned(scale, 2) || !is_aligned(row_scale, 2) || !is_aligned(residual, 2)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        !is_in_reach(m, n, ldr) || 1LL * m * n * SPLIT_K >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    {
        const dim3 grid((m + BM - 1) / BM * ((n + BN - 1) / BN) * SPLIT_K, 1);
        const dim3 block(THREADS_N, THREADS_M);
        scaled_residual_split4<<<grid, block, 0, stream>>>(m, n, k, alpha, a, lda, b, ldb,
                                                           workspace);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const dim3 grid(m * ((n + 255) / 256), 1);
        const dim3 block(256, 1);
        scaled_residual_split4_total<<<grid, block, 0, stream>>>(m, n, workspace, beta, c, ldc,
                                                                 scale, row_scale, residual, ldr);
        return cudaGetLastError();
    }
}
#endif
