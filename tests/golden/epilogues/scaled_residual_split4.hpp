// scaled_residual_split4: C = alpha * A * B + beta * C, then scale, row_scale, residual, clamp(-4,
// 4), a formula; float16, sums in float32
//
// Tile       32x32 of C per group, 4x4 per work-item, 4 along K per step
// Work-items 8x8 per group
// A          USM, loads of single elements
// B          USM, loads of single elements
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
// Launch     scaled_residual_split4: local range {8, 8}, global range {8, (m + 31) / 32 * ((n + 31)
//                / 32) * 32}
//            scaled_residual_split4_total: local range {1, 256}, global range {1, m * ((n + 255) /
//                256) * 256}
// Needs      a workspace of m * n * 4 elements
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef scaled_residual_split4_HPP
#define scaled_residual_split4_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace scaled_residual_split4_detail {

constexpr int BM = 32, BN = 32, BK = 4; // block tile: BM x BN of C, BK along K per step
constexpr int SPLIT_K = 4; // parts of K (split-K)
constexpr int THREADS_M = 8, THREADS_N = 8; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
static_assert(BM == 32 && BN == 32,
              "BM and BN cannot change here: emit it again with --set tile=2x4");
static_assert(BK == 4, "BK cannot change here: emit it again with --set block_k=8");
static_assert(SPLIT_K == 4, "SPLIT_K cannot change here: emit it again with --set split_k=8");
static_assert(THREADS_M == 8 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=4x8");

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const sycl::half *__restrict a, int lda, const sycl::half *__restrict b,
                      int ldb, float *__restrict workspace)
{
    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int part = int(item.get_group(1)) / (blocks_down * blocks_across);
    const int block = int(item.get_group(1)) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int row = row0 + int(item.get_local_id(0));
    const int col = col0 + int(item.get_local_id(1));
    const int k_part = (k + SPLIT_K * BK - 1) / (SPLIT_K * BK) * BK;
    const int k_begin = part * k_part;
    const int k_end = std::min(k, k_begin + k_part);
    const int k_main = std::min(k - k % BK, k_end);

    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    for (int k0 = k_begin; k0 < k_main; k0 += BK) {
        #pragma GCC unroll BK
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = float(a[std::min(row + i * THREADS_M, m - 1) * lda + k0 + kk]);
            }
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                b_frag[j] = float(b[(k0 + kk) * ldb + std::min(col + j * THREADS_N, n - 1)]);
            }
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = sycl::fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K; what lies past it counts as zero.
        #pragma GCC unroll BK
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = k_main + kk < k
                                ? float(a[std::min(row + i * THREADS_M, m - 1) * lda + k_main + kk])
                                : 0.0f;
            }
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                b_frag[j] =
                    k_main + kk < k
                        ? float(b[(k_main + kk) * ldb + std::min(col + j * THREADS_N, n - 1)])
                        : 0.0f;
            }
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = sycl::fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // Split-K: this part's partial sums.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        if (row + i * THREADS_M < m) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    workspace[part * (m * n) + (row + i * THREADS_M) * n + col + j * THREADS_N] =
                        alpha * acc[i][j];
                }
            }
        }
    }
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class total_kernel;

// What each work-item does.
inline void total_work_item(sycl::nd_item<2> item, int m, int n, const float *__restrict workspace,
                            float beta, sycl::half *__restrict c, int ldc,
                            const sycl::half *__restrict scale,
                            const sycl::half *__restrict row_scale,
                            const sycl::half *__restrict residual, int ldr)
{
    const int blocks_across = (n + 255) / 256;
    const int row = int(item.get_group(1)) / blocks_across;
    const int col = int(item.get_group(1)) % blocks_across * 256 + int(item.get_local_id(1));

    if (col < n) {
        // Reduction of split-K: the partial sums in order.
        float total = workspace[row * n + col];
        #pragma GCC unroll SPLIT_K - 1
        for (int s = 1; s < SPLIT_K; ++s) {
            total += workspace[s * (m * n) + row * n + col];
        }
        const float value =
            beta == 0.0f ? total : sycl::fma(beta, float(c[row * ldc + col]), total);
        const float after_residual =
            value * float(scale[col]) * float(row_scale[row]) + float(residual[row * ldr + col]);
        const float after_clamp = after_residual < -4.0f  ? -4.0f
                                  : after_residual > 4.0f ? 4.0f
                                                          : after_residual;
        const float c_value = row != col ? sycl::fmax(after_clamp, 0.5f * float(c[row * ldc + col]))
                                         : sycl::tanh(after_clamp);
        c[row * ldc + col] = sycl::half(c_value);
    }
}

} // namespace scaled_residual_split4_detail

namespace scaled_residual_split4_detail {

// Loops step past the end of a size: from here on, 32 bits might not hold where they stop.
constexpr long long TOO_MANY = (1LL << 31) - 1024;

// Whether lines do not overlap, at `pitch` elements from one to the next, and 32-bit indices reach
// the whole matrix.
inline bool is_in_reach(long long lines, long long length, long long pitch)
{
    if (lines < 1 || length < 1) {
        return true;
    }
    return lines < TOO_MANY && length < TOO_MANY && (lines == 1 || pitch >= length) &&
           (lines - 1) * pitch + length < 1LL << 31;
}

} // namespace scaled_residual_split4_detail

// Queues the kernels; matrices and the workspace are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event scaled_residual_split4(sycl::queue &queue, int m, int n, int k, float alpha,
                                          const sycl::half *a, int lda, const sycl::half *b,
                                          int ldb, float *workspace, float beta, sycl::half *c,
                                          int ldc, const sycl::half *scale,
                                          const sycl::half *row_scale, const sycl::half *residual,
                                          int ldr, const std::vector<sycl::event> &depends_on = {})
{
    using namespace scaled_residual_split4_detail;

    if (m < 1 || n < 1) {
        return queue.submit([&](sycl::handler &handler) { handler.depends_on(depends_on); });
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        !is_in_reach(m, n, ldr) || 1LL * m * n * SPLIT_K >= 1LL << 31) {
        throw sycl::exception(sycl::make_error_code(sycl::errc::invalid),
                              "the arguments break the requirements in the head comment");
    }
    const sycl::event product = queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(THREADS_M, THREADS_N);
        const sycl::range<2> groups(1, (m + BM - 1) / BM * ((n + BN - 1) / BN) * SPLIT_K);
        handler.depends_on(depends_on);
        handler.parallel_for<scaled_residual_split4_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(8, 8)]] {
                scaled_residual_split4_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb,
                                                         workspace);
            });
    });
    return queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(1, 256);
        const sycl::range<2> groups(1, m * ((n + 255) / 256));
        handler.depends_on(product);
        handler.parallel_for<scaled_residual_split4_detail::total_kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(1, 256)]] {
                scaled_residual_split4_detail::total_work_item(item, m, n, workspace, beta, c, ldc,
                                                               scale, row_scale, residual, ldr);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
