// swiglu_8x8: C = alpha * A * B, then swiglu, residual; float32
//
// Tile       64x64 of C per group, 8x4 per work-item, 8 along K per step
// Work-items 8x16 per group
// A          USM, loads of 4 elements, to local memory, transposed
// B          USM, loads of 4 elements, to local memory
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Epilogue   swiglu: acc / (1 + exp(-acc)) * up
//            residual: acc + residual
// Takes      B: 2 n columns; acc is the sum of column j of them, up that of column n + j
//            residual: an element for each element of C, stored as C is, and no part of it
// Unread     A and B where k is 0: pass k = 0 where alpha is 0
// Launch     local range {8, 16}, global range {(m + 63) / 64 * 8, (n + 63) / 64 * 16}
// Needs      6,144 bytes of local memory
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef swiglu_8x8_HPP
#define swiglu_8x8_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace swiglu_8x8_detail {

constexpr int BM = 64, BN = 128, BK = 8; // block tile: BM x BN of A * B, BK along K per step
constexpr int THREADS_M = 8, THREADS_N = 16; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of A * B of a work-item
constexpr int THREADS = THREADS_M * THREADS_N; // work-items of a group
static_assert(THREADS_M == 8 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=4x16");
static_assert(TM % 4 == 0 && BK % 4 == 0, "TM and BK must be multiples of 4");
static_assert(BM * BK % (THREADS * 4) == 0, "BM * BK must be a multiple of THREADS * 4");
static_assert(THREADS * 4 % BK == 0, "THREADS * 4 must be a multiple of BK");
static_assert(BN * BK % (THREADS * 8) == 0, "BN * BK must be a multiple of THREADS * 8");
static_assert(THREADS * 8 % BN == 0, "THREADS * 8 must be a multiple of BN");
static_assert(TN % 8 == 0, "TN must be a multiple of 8");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 4, "TM must exceed 4 here: emit it again with --set tile=4x8");
static_assert(TN == 8, "TN must be 8 here: emit it again with --set tile=4x8");
static_assert(TN == 8, "TN must be 8: each half of it is one vector");

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
inline void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float *__restrict c, int ldc, const float *__restrict residual, int ldr,
                      float (&a_shared)[BK][BM], float (&b_shared)[BK][BN])
{
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));
    const int row0 = int(item.get_group(0)) * BM;
    const int col0 = int(item.get_group(1)) * (BN / 2);
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_row = local_index / (BK / 4);
    const int a_k = local_index % (BK / 4) * 4;
    const int b_k = local_index / (BN / 8);
    const int b_col = local_index % (BN / 8) * 4;

    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    for (int k0 = 0; k0 < k_main; k0 += BK) {
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll int(BM * BK / (THREADS * 4))
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            float a_vector[4];
            copy4(a_vector,
                  &a[std::min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda + k0 + a_k]);
            #pragma GCC unroll 4
            for (int e = 0; e < 4; ++e) {
                a_shared[a_k + e][a_row + i * (THREADS * 4 / BK)] = a_vector[e];
            }
        }
        #pragma GCC unroll int(BN * BK / (THREADS * 8))
        for (int i = 0; i < BN * BK / (THREADS * 8); ++i) {
            if (col0 + b_col + 4 <= n * 2) {
                copy4(&b_shared[b_k + i * (THREADS * 8 / BN)][b_col],
                      &b[(k0 + b_k + i * (THREADS * 8 / BN)) * ldb + col0 + b_col]);
            } else {
                #pragma GCC unroll 4
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k + i * (THREADS * 8 / BN)][b_col + e] =
                        b[(k0 + b_k + i * (THREADS * 8 / BN)) * ldb +
                          std::min(col0 + b_col + e, n * 2 - 1)];
                }
            }
        }
        #pragma GCC unroll int(BN * BK / (THREADS * 8))
        for (int i = 0; i < BN * BK / (THREADS * 8); ++i) {
            if (col0 + b_col + 4 <= n) {
                copy4(&b_shared[b_k + i * (THREADS * 8 / BN)][b_col + BN / 2],
                      &b[(k0 + b_k + i * (THREADS * 8 / BN)) * ldb + n + col0 + b_col]);
            } else {
                #pragma GCC unroll 4
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k + i * (THREADS * 8 / BN)][b_col + e + BN / 2] =
                        b[(k0 + b_k + i * (THREADS * 8 / BN)) * ldb +
                          std::min(n + col0 + b_col + e, n * 2 - 1)];
                }
            }
        }
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll 4
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM / 4
            for (int i = 0; i < TM / 4; ++i) {
                copy4(&a_frag[i * 4], &a_shared[kk][local_row * 4 + i * THREADS_M * 4]);
            }
            #pragma GCC unroll TN / 4
            for (int j = 0; j < TN / 4; ++j) {
                copy4(&b_frag[j * 4], &b_shared[kk][local_col * 4 + j * THREADS_N * 4]);
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
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll int(BM * BK / (THREADS * 4))
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            float a_vector[4];
            if (k_main + a_k + 4 <= k) {
                copy4(a_vector, &a[std::min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda +
                                   k_main + a_k]);
            } else {
                #pragma GCC unroll 4
                for (int e = 0; e < 4; ++e) {
                    a_vector[e] =
                        k_main + a_k + e < k
                            ? a[std::min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda +
                                k_main + a_k + e]
                            : 0.0f;
                }
            }
            #pragma GCC unroll 4
            for (int e = 0; e < 4; ++e) {
                a_shared[a_k + e][a_row + i * (THREADS * 4 / BK)] = a_vector[e];
            }
        }
        #pragma GCC unroll int(BN * BK / (THREADS * 8))
        for (int i = 0; i < BN * BK / (THREADS * 8); ++i) {
            if (k_main + b_k + i * (THREADS * 8 / BN) < k && col0 + b_col + 4 <= n * 2) {
                copy4(&b_shared[b_k + i * (THREADS * 8 / BN)][b_col],
                      &b[(k_main + b_k + i * (THREADS * 8 / BN)) * ldb + col0 + b_col]);
            } else {
                #pragma GCC unroll 4
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k + i * (THREADS * 8 / BN)][b_col + e] =
                        k_main + b_k + i * (THREADS * 8 / BN) < k
                            ? b[(k_main + b_k + i * (THREADS * 8 / BN)) * ldb +
                                std::min(col0 + b_col + e, n * 2 - 1)]
                            : 0.0f;
                }
            }
        }
        #pragma GCC unroll int(BN * BK / (THREADS * 8))
        for (int i = 0; i < BN * BK / (THREADS * 8); ++i) {
            if (k_main + b_k + i * (THREADS * 8 / BN) < k && col0 + b_col + 4 <= n) {
                copy4(&b_shared[b_k + i * (THREADS * 8 / BN)][b_col + BN / 2],
                      &b[(k_main + b_k + i * (THREADS * 8 / BN)) * ldb + n + col0 + b_col]);
            } else {
                #pragma GCC unroll 4
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k + i * (THREADS * 8 / BN)][b_col + e + BN / 2] =
                        k_main + b_k + i * (THREADS * 8 / BN) < k
                            ? b[(k_main + b_k + i * (THREADS * 8 / BN)) * ldb +
                                std::min(n + col0 + b_col + e, n * 2 - 1)]
                            : 0.0f;
                }
            }
        }
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll 4
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM / 4
            for (int i = 0; i < TM / 4; ++i) {
                copy4(&a_frag[i * 4], &a_shared[kk][local_row * 4 + i * THREADS_M * 4]);
            }
            #pragma GCC unroll TN / 4
            for (int j = 0; j < TN / 4; ++j) {
                copy4(&b_frag[j * 4], &b_shared[kk][local_col * 4 + j * THREADS_N * 4]);
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

    // swiglu: one element of C of the sums in both halves of B's columns.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN / 2
        for (int j = 0; j < TN / 2; ++j) {
            const float gate = alpha * acc[i][j];
            const float up = alpha * acc[i][j + TN / 2];
            acc[i][j] = gate / (1.0f + sycl::exp(-gate)) * up;
        }
    }

    // C = alpha * A * B, then swiglu, residual.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
        if (c_row < m) {
            #pragma GCC unroll TN / 8
            for (int j = 0; j < TN / 8; ++j) {
                if (col + j * 4 + 4 <= n) {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        acc[i][j * 4 + e] += residual[c_row * ldr + col + j * 4 + e];
                    }
                    copy4(&c[c_row * ldc + col + j * 4], &acc[i][j * 4]);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 4 + e < n) {
                            const int c_col = col + j * 4 + e;
                            c[c_row * ldc + c_col] =
                                acc[i][j * 4 + e] + residual[c_row * ldr + c_col];
                        }
                    }
                }
            }
        }
    }
}

} // namespace swiglu_8x8_detail

namespace swiglu_8x8_detail {

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

} // namespace swiglu_8x8_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event swiglu_8x8(sycl::queue &queue, int m, int n, int k, float alpha, const float *a,
                              int lda, const float *b, int ldb, float *c, int ldc,
                              const float *residual, int ldr,
                              const std::vector<sycl::event> &depends_on = {})
{
    using namespace swiglu_8x8_detail;

    if (m < 1 || n < 1) {
        return queue.submit([&](sycl::handler &handler) { handler.depends_on(depends_on); });
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (k < 0 || n >= 1 << 30 || !is_in_reach(m, k, lda) || !is_in_reach(k, n * 2, ldb) ||
        !is_in_reach(m, n, ldc) || !is_in_reach(m, n, ldr)) {
        throw sycl::exception(sycl::make_error_code(sycl::errc::invalid),
                              "the arguments break the requirements in the head comment");
    }
    return queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(THREADS_M, THREADS_N);
        const sycl::range<2> groups((m + BM - 1) / BM, (n + BN / 2 - 1) / (BN / 2));
        handler.depends_on(depends_on);
        const sycl::local_accessor<float[BK][BM], 0> a_shared(handler);
        const sycl::local_accessor<float[BK][BN], 0> b_shared(handler);
        handler.parallel_for<swiglu_8x8_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(8, 16)]] {
                swiglu_8x8_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, c, ldc, residual,
                                             ldr, a_shared, b_shared);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
