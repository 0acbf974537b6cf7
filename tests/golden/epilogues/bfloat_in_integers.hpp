// bfloat_in_integers: C = alpha * A * B + beta * C; bfloat16, sums in float32; 16-bit floats in
// integers
//
// Tile       16x16 of C per group, 2x2 per work-item, 8 along K per step
// Work-items 8x8 per group
// A          USM, loads of single elements, to local memory
// B          USM, loads of 4 elements, to local memory
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {8, 8}, global range {(m + 15) / 16 * 8, (n + 15) / 16 * 8}
// Needs      512 bytes of local memory
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef bfloat_in_integers_HPP
#define bfloat_in_integers_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace bfloat_in_integers_detail {

constexpr int BM = 16, BN = 16, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_M = 8, THREADS_N = 8; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
constexpr int THREADS = THREADS_M * THREADS_N; // work-items of a group
static_assert(BM == 16 && BN == 16,
              "BM and BN cannot change here: emit it again with --set tile=1x2");
static_assert(THREADS_M == 8 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=4x8");
static_assert(BM * BK % THREADS == 0, "BM * BK must be a multiple of THREADS");
static_assert(THREADS % BK == 0, "THREADS must be a multiple of BK");
static_assert(BN * BK % 4 == 0, "BN * BK must be a multiple of 4");

// bfloat16 by its bits, the upper half of a float's.
inline float bfloat16_bits_to_float(std::uint16_t bits)
{
    return sycl::bit_cast<float>(unsigned(bits) << 16);
}

// A float as the bits of bfloat16, rounded to nearest, ties to even; NaN stays NaN.
inline std::uint16_t float_to_bfloat16_bits(float value)
{
    const unsigned bits = sycl::bit_cast<unsigned>(value);
    const unsigned rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    const unsigned kept = value == value ? rounded : bits | 0x400000u;
    return static_cast<std::uint16_t>(kept >> 16);
}

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef unsigned short ushort4 __attribute__((vector_size(8), aligned(2), may_alias));
inline void copy4(std::uint16_t *to, const std::uint16_t *from)
{
    *reinterpret_cast<ushort4 *>(to) = *reinterpret_cast<const ushort4 *>(from);
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const std::uint16_t *__restrict a, int lda, const std::uint16_t *__restrict b,
                      int ldb, float beta, std::uint16_t *__restrict c, int ldc,
                      std::uint16_t (&a_shared)[BM][BK], std::uint16_t (&b_shared)[BK][BN])
{
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));
    const int row0 = int(item.get_group(0)) * BM;
    const int col0 = int(item.get_group(1)) * BN;
    const int row = row0 + local_row;
    const int col = col0 + local_col;
    const int k_main = k - k % BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_row = local_index / BK;
    const int a_k = local_index % BK;
    const int b_k = local_index / (BN / 4);
    const int b_col = local_index % (BN / 4) * 4;

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
        #pragma GCC unroll int(BM * BK / THREADS)
        for (int i = 0; i < BM * BK / THREADS; ++i) {
            a_shared[a_row + i * (THREADS / BK)][a_k] =
                a[std::min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k0 + a_k];
        }
        #pragma GCC unroll int((BN * BK / 4 + THREADS - 1) / THREADS)
        for (int i = 0; i < (BN * BK / 4 + THREADS - 1) / THREADS; ++i) {
            if (local_index + i * THREADS < BN * BK / 4) {
                if (k0 + b_k + i * (THREADS * 4 / BN) < k && col0 + b_col + 4 <= n) {
                    copy4(&b_shared[b_k + i * (THREADS * 4 / BN)][b_col],
                          &b[(k0 + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col]);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        b_shared[b_k + i * (THREADS * 4 / BN)][b_col + e] =
                            k0 + b_k + i * (THREADS * 4 / BN) < k
                                ? b[(k0 + b_k + i * (THREADS * 4 / BN)) * ldb +
                                    std::min(col0 + b_col + e, n - 1)]
                                : std::uint16_t();
                    }
                }
            }
        }
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll 2
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = bfloat16_bits_to_float(a_shared[local_row + i * THREADS_M][kk]);
            }
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                b_frag[j] = bfloat16_bits_to_float(b_shared[kk][local_col + j * THREADS_N]);
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
        #pragma GCC unroll int(BM * BK / THREADS)
        for (int i = 0; i < BM * BK / THREADS; ++i) {
            a_shared[a_row + i * (THREADS / BK)][a_k] =
                k_main + a_k < k
                    ? a[std::min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k_main + a_k]
                    : std::uint16_t();
        }
        #pragma GCC unroll int((BN * BK / 4 + THREADS - 1) / THREADS)
        for (int i = 0; i < (BN * BK / 4 + THREADS - 1) / THREADS; ++i) {
            if (local_index + i * THREADS < BN * BK / 4) {
                if (k_main + b_k + i * (THREADS * 4 / BN) < k && col0 + b_col + 4 <= n) {
                    copy4(&b_shared[b_k + i * (THREADS * 4 / BN)][b_col],
                          &b[(k_main + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col]);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        b_shared[b_k + i * (THREADS * 4 / BN)][b_col + e] =
                            k_main + b_k + i * (THREADS * 4 / BN) < k
                                ? b[(k_main + b_k + i * (THREADS * 4 / BN)) * ldb +
                                    std::min(col0 + b_col + e, n - 1)]
                                : std::uint16_t();
                    }
                }
            }
        }
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll 2
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = bfloat16_bits_to_float(a_shared[local_row + i * THREADS_M][kk]);
            }
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                b_frag[j] = bfloat16_bits_to_float(b_shared[kk][local_col + j * THREADS_N]);
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

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        if (row + i * THREADS_M < m) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    const float c_value =
                        beta == 0.0f
                            ? alpha * acc[i][j]
                            : sycl::fma(beta,
                                        bfloat16_bits_to_float(
                                            c[(row + i * THREADS_M) * ldc + col + j * THREADS_N]),
                                        alpha * acc[i][j]);
                    c[(row + i * THREADS_M) * ldc + col + j * THREADS_N] =
                        float_to_bfloat16_bits(c_value);
                }
            }
        }
    }
}

} // namespace bfloat_in_integers_detail

namespace bfloat_in_integers_detail {

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

} // namespace bfloat_in_integers_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event bfloat_in_integers(sycl::queue &queue, int m, int n, int k, float alpha,
                                      const std::uint16_t *a, int lda, const std::uint16_t *b,
                                      int ldb, float beta, std::uint16_t *c, int ldc,
                                      const std::vector<sycl::event> &depends_on = {})
{
    using namespace bfloat_in_integers_detail;

    if (m < 1 || n < 1) {
        return queue.submit([&](sycl::handler &handler) { handler.depends_on(depends_on); });
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        throw sycl::exception(sycl::make_error_code(sycl::errc::invalid),
                              "the arguments break the requirements in the head comment");
    }
    return queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(THREADS_M, THREADS_N);
        const sycl::range<2> groups((m + BM - 1) / BM, (n + BN - 1) / BN);
        handler.depends_on(depends_on);
        const sycl::local_accessor<std::uint16_t[BM][BK], 0> a_shared(handler);
        const sycl::local_accessor<std::uint16_t[BK][BN], 0> b_shared(handler);
        handler.parallel_for<bfloat_in_integers_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(8, 8)]] {
                bfloat_in_integers_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c,
                                                     ldc, a_shared, b_shared);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
