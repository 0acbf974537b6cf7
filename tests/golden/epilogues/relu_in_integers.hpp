// relu_in_integers: C = alpha * A * B + beta * C, then relu; float16, sums in float32; 16-bit
// floats in integers
//
// Tile       32x32 of C per group, 4x4 per work-item, 8 along K per step
// Work-items 8x8 per group
// A          USM, loads of 4 elements, to local memory, transposed
// B          USM, loads of 4 elements, to local memory
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Epilogue   relu: 0 if acc < 0 else acc
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {8, 8}, global range {(m + 31) / 32 * 8, (n + 31) / 32 * 8}
// Needs      1,024 bytes of local memory
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef relu_in_integers_HPP
#define relu_in_integers_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace relu_in_integers_detail {

constexpr int BM = 32, BN = 32, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_M = 8, THREADS_N = 8; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
constexpr int THREADS = THREADS_M * THREADS_N; // work-items of a group
static_assert(THREADS_M == 8 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=4x8");
static_assert(TM % 4 == 0 && TN % 4 == 0 && BK % 4 == 0, "TM, TN and BK must be multiples of 4");
static_assert(BM * BK % (THREADS * 4) == 0 && BN * BK % (THREADS * 4) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 4");
static_assert(THREADS * 4 % BK == 0, "THREADS * 4 must be a multiple of BK");
static_assert(THREADS * 4 % BN == 0, "THREADS * 4 must be a multiple of BN");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM == 4 && TN == 4, "TM and TN must be 4 here: emit it again with --set tile=8x4");

// float16 by its bits: sign, five bits of exponent, ten of fraction.
inline float half_bits_to_float(std::uint16_t bits)
{
    const unsigned sign = (bits & 0x8000u) << 16;
    const unsigned magnitude = bits & 0x7fffu;
    if (magnitude < 0x400u) { // in steps of 2^-24, too small for an exponent of its own
        const float small = float(magnitude) * 5.9604644775390625e-8f;
        return sign ? -small : small;
    }
    // Infinities and NaN have the largest exponent here and there.
    const unsigned exponent = magnitude < 0x7c00u ? 0x38000000u : 0x70000000u;
    return sycl::bit_cast<float>(sign | ((magnitude << 13) + exponent));
}

// A float as the bits of float16, rounded to nearest, ties to even; NaN stays NaN.
inline std::uint16_t float_to_half_bits(float value)
{
    const unsigned bits = sycl::bit_cast<unsigned>(value);
    const unsigned sign = bits >> 16 & 0x8000u;
    const unsigned magnitude = bits & 0x7fffffffu;
    unsigned kept = 0x7e00u;
    if (magnitude < 0x38800000u) { // below 2^-14: a sum with 0.5 is rounded to steps of 2^-24
        kept = sycl::bit_cast<unsigned>(sycl::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    } else if (magnitude < 0x477ff000u) {
        kept = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    } else if (magnitude <= 0x7f800000u) { // from 65520 on
        kept = 0x7c00u;
    }
    return static_cast<std::uint16_t>(sign | kept);
}

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef unsigned short ushort4 __attribute__((vector_size(8), aligned(2), may_alias));
inline void copy4(std::uint16_t *to, const std::uint16_t *from)
{
    *reinterpret_cast<ushort4 *>(to) = *reinterpret_cast<const ushort4 *>(from);
}

// 4 neighbouring elements to registers, converted to their type.
inline void copy4(float *to, const std::uint16_t *from)
{
    std::uint16_t elements[4];
    copy4(elements, from);
    for (int e = 0; e < 4; ++e) {
        to[e] = half_bits_to_float(elements[e]);
    }
}

// 4 neighbouring elements from registers, in the type of memory.
inline void copy4(std::uint16_t *to, const float *from)
{
    std::uint16_t elements[4];
    for (int e = 0; e < 4; ++e) {
        elements[e] = float_to_half_bits(from[e]);
    }
    copy4(to, elements);
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const std::uint16_t *__restrict a, int lda, const std::uint16_t *__restrict b,
                      int ldb, float beta, std::uint16_t *__restrict c, int ldc,
                      std::uint16_t (&a_shared)[BK][BM], std::uint16_t (&b_shared)[BK][BN])
{
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));
    const int row0 = int(item.get_group(0)) * BM;
    const int col0 = int(item.get_group(1)) * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_row = local_index / (BK / 4);
    const int a_k = local_index % (BK / 4) * 4;
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
        #pragma GCC unroll int(BM * BK / (THREADS * 4))
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            std::uint16_t a_vector[4];
            copy4(a_vector,
                  &a[std::min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda + k0 + a_k]);
            #pragma GCC unroll 4
            for (int e = 0; e < 4; ++e) {
                a_shared[a_k + e][a_row + i * (THREADS * 4 / BK)] = a_vector[e];
            }
        }
        #pragma GCC unroll int(BN * BK / (THREADS * 4))
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            if (col0 + b_col + 4 <= n) {
                copy4(&b_shared[b_k + i * (THREADS * 4 / BN)][b_col],
                      &b[(k0 + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col]);
            } else {
                #pragma GCC unroll 4
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k + i * (THREADS * 4 / BN)][b_col + e] =
                        b[(k0 + b_k + i * (THREADS * 4 / BN)) * ldb +
                          std::min(col0 + b_col + e, n - 1)];
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
                copy4(&a_frag[i * 4], &a_shared[kk][local_row * 4 + i * 4]);
            }
            #pragma GCC unroll TN / 4
            for (int j = 0; j < TN / 4; ++j) {
                copy4(&b_frag[j * 4], &b_shared[kk][local_col * 4 + j * 4]);
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
            std::uint16_t a_vector[4];
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
                            : std::uint16_t();
                }
            }
            #pragma GCC unroll 4
            for (int e = 0; e < 4; ++e) {
                a_shared[a_k + e][a_row + i * (THREADS * 4 / BK)] = a_vector[e];
            }
        }
        #pragma GCC unroll int(BN * BK / (THREADS * 4))
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
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
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll 4
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM / 4
            for (int i = 0; i < TM / 4; ++i) {
                copy4(&a_frag[i * 4], &a_shared[kk][local_row * 4 + i * 4]);
            }
            #pragma GCC unroll TN / 4
            for (int j = 0; j < TN / 4; ++j) {
                copy4(&b_frag[j * 4], &b_shared[kk][local_col * 4 + j * 4]);
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

    // C = alpha * A * B + beta * C, then relu; C is not read where beta is zero.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        if (row + i < m) {
            #pragma GCC unroll TN / 4
            for (int j = 0; j < TN / 4; ++j) {
                if (col + j * 4 + 4 <= n) {
                    float c_values[4];
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        float c_old[4];
                        copy4(c_old, &c[(row + i) * ldc + col + j * 4]);
                        #pragma GCC unroll 4
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = sycl::fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        const float value = c_values[e];
                        c_values[e] = value < 0.0f ? 0.0f : value;
                    }
                    copy4(&c[(row + i) * ldc + col + j * 4], c_values);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 4 + e < n) {
                            const float value =
                                beta == 0.0f ? alpha * acc[i][j * 4 + e]
                                             : sycl::fma(beta,
                                                         half_bits_to_float(
                                                             c[(row + i) * ldc + col + j * 4 + e]),
                                                         alpha * acc[i][j * 4 + e]);
                            const float c_value = value < 0.0f ? 0.0f : value;
                            c[(row + i) * ldc + col + j * 4 + e] = float_to_half_bits(c_value);
                        }
                    }
                }
            }
        }
    }
}

} // namespace relu_in_integers_detail

namespace relu_in_integers_detail {

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

} // namespace relu_in_integers_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event relu_in_integers(sycl::queue &queue, int m, int n, int k, float alpha,
                                    const std::uint16_t *a, int lda, const std::uint16_t *b,
                                    int ldb, float beta, std::uint16_t *c, int ldc,
                                    const std::vector<sycl::event> &depends_on = {})
{
    using namespace relu_in_integers_detail;

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
        const sycl::local_accessor<std::uint16_t[BK][BM], 0> a_shared(handler);
        const sycl::local_accessor<std::uint16_t[BK][BN], 0> b_shared(handler);
        handler.parallel_for<relu_in_integers_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(8, 8)]] {
                relu_in_integers_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c,
                                                   ldc, a_shared, b_shared);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
