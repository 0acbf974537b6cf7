// gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5: C = alpha * A * prologue(B) + beta * C; float16, B
// stored in int4, two elements a byte along K, ldb in bytes, sums in float32; B col-major
//
// Schedule   --method gemv --tile 2x4 --group 1x1 --set block_k=4096 --set a.width=8 --set
//            b.width=32 --set sliced_k=4
// Tile       2x4 of C per group, 2x4 per work-item, 4096 along K per step
// Work-items 128 per group, 4 slices of each step along K (sliced-K), each of 32 lanes, sub-groups
//            of 32
// A          USM, loads of 8 elements
// B          USM, loads of 32 elements
// Multiply   fused multiply-add
// C          slices added up in local memory, stores of single elements
// Sizes      any m, n, k; leading dimensions multiples of 16; every matrix spans less than 2^31
//            elements
// Prologue   B: b * b_scale_128
// Takes      b_scale_128: an element for each group of 128 rows, and each column, of B
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {4, 32}, global range {(m + 1) / 2 * 4, (n + 3) / 4 * 32}
// Needs      128 bytes of local memory
//            sub-groups of 32
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_HPP
#define gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail {

constexpr int BM = 2, BN = 4; // block tile of C
constexpr int SLICES = 4; // parts of a block's K (sliced-K)
constexpr int LANES_K = 32, LOAD_K = 32; // lanes along K, and elements of a lane's load along K
constexpr int TM = BM, TN = BN; // tile of C of a work-item
static_assert(BM == 2 && BN == 4,
              "BM and BN cannot change here: emit it again with --set tile=4x4");
static_assert(SLICES == 4, "SLICES cannot change here: emit it again with --set sliced_k=2");
static_assert(LANES_K == 32,
              "LANES_K cannot change here: emit it again with --set lanes_along_k=16");
static_assert(LOAD_K == 32, "LOAD_K cannot change here: emit it again with --set b.width=16");

// One of the two int4 in a byte: 0 for its low half, 1 for the high one.
inline float nibble(signed char pair, int place)
{
    return (float)(((pair >> 4 * place & 15) ^ 8) - 8);
}

// 8 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef unsigned short ushort8 __attribute__((vector_size(16), aligned(2), may_alias));
inline void copy8(sycl::half *to, const sycl::half *from)
{
    *reinterpret_cast<ushort8 *>(to) = *reinterpret_cast<const ushort8 *>(from);
}

// 16 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef signed char schar16 __attribute__((vector_size(16), aligned(1), may_alias));
inline void copy16(signed char *to, const signed char *from)
{
    *reinterpret_cast<schar16 *>(to) = *reinterpret_cast<const schar16 *>(from);
}

// 8 neighbouring elements to registers, converted to their type.
inline void copy8(float *to, const sycl::half *from)
{
    sycl::half elements[8];
    copy8(elements, from);
    for (int e = 0; e < 8; ++e) {
        to[e] = float(elements[e]);
    }
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const sycl::half *__restrict a, int lda, const signed char *__restrict b,
                      int ldb, float beta, sycl::half *__restrict c, int ldc,
                      const float *__restrict b_scale_128, float (&partial)[SLICES][BM][BN])
{
    const sycl::sub_group sub_group = item.get_sub_group();
    const int slice = int(item.get_local_id(0));
    const int lane_k = int(item.get_local_id(1));
    const int row0 = int(item.get_group(0)) * BM;
    const int col0 = int(item.get_group(1)) * BN;
    const int local_index = int(item.get_local_id(0)) * LANES_K + int(item.get_local_id(1));

    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Each lane goes along K by LOAD_K elements at a time.
    for (int k0 = (slice * LANES_K + lane_k) * LOAD_K; k0 < k - (LOAD_K - 1);
         k0 += SLICES * LANES_K * LOAD_K) {
        float a_frag[TM][LOAD_K];
        float b_frag[TN][LOAD_K];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll LOAD_K / 8
            for (int j = 0; j < LOAD_K / 8; ++j) {
                copy8(&a_frag[i][j * 8], &a[std::min(row0 + i, m - 1) * lda + k0 + j * 8]);
            }
        }
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            signed char b_pairs[16];
            copy16(b_pairs, &b[std::min(col0 + j, n - 1) * ldb + k0 / 2]);
            #pragma GCC unroll 32
            for (int e = 0; e < 32; ++e) {
                b_frag[j][e] = nibble(b_pairs[e / 2], e % 2);
            }
        }
        float step_sums[TM][TN];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                step_sums[i][j] = 0.0f;
            }
        }
        #pragma GCC unroll LOAD_K
        for (int p = 0; p < LOAD_K; ++p) {
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    step_sums[i][j] = sycl::fma(a_frag[i][p], b_frag[j][p], step_sums[i][j]);
                }
            }
        }

        // Elements of a load share their scale, which multiplies their sums.
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                acc[i][j] =
                    sycl::fma(step_sums[i][j],
                              b_scale_128[k0 / 128 * n + std::min(col0 + j, n - 1)], acc[i][j]);
            }
        }
    }

    // What is left of K: a lane has one element of it.
    const int k_left = k - k % LOAD_K + slice * LANES_K + lane_k;

    if (k_left < k) {
        float a_frag[TM];
        float b_frag[TN];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            a_frag[i] = float(a[std::min(row0 + i, m - 1) * lda + k_left]);
        }
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            b_frag[j] = nibble(b[std::min(col0 + j, n - 1) * ldb + k_left / 2], k_left % 2);
        }
        float step_sums[TM][TN];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                step_sums[i][j] = 0.0f;
            }
        }
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                step_sums[i][j] = sycl::fma(a_frag[i], b_frag[j], step_sums[i][j]);
            }
        }

        // Elements of a load share their scale, which multiplies their sums.
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                acc[i][j] =
                    sycl::fma(step_sums[i][j],
                              b_scale_128[k_left / 128 * n + std::min(col0 + j, n - 1)], acc[i][j]);
            }
        }
    }

    // Butterfly reduction: lanes exchange halves of their sums, and each ends with its own.
    const bool is_low_16 = lane_k / 16 % 2 == 0;

    #pragma GCC unroll TN
    for (int j = 0; j < TN; ++j) {
        const float received =
            sycl::permute_group_by_xor(sub_group, is_low_16 ? acc[TM / 2][j] : acc[0][j], 16);
        acc[0][j] = (is_low_16 ? acc[0][j] : acc[TM / 2][j]) + received;
    }

    const bool is_low_8 = lane_k / 8 % 2 == 0;

    #pragma GCC unroll TN / 2
    for (int j = 0; j < TN / 2; ++j) {
        const float received =
            sycl::permute_group_by_xor(sub_group, is_low_8 ? acc[0][j + TN / 2] : acc[0][j], 8);
        acc[0][j] = (is_low_8 ? acc[0][j] : acc[0][j + TN / 2]) + received;
    }

    const bool is_low_4 = lane_k / 4 % 2 == 0;
    const float received =
        sycl::permute_group_by_xor(sub_group, is_low_4 ? acc[0][TN / 4] : acc[0][0], 4);

    acc[0][0] = (is_low_4 ? acc[0][0] : acc[0][TN / 4]) + received;
    acc[0][0] += sycl::permute_group_by_xor(sub_group, acc[0][0], 2);
    acc[0][0] += sycl::permute_group_by_xor(sub_group, acc[0][0], 1);

    // Every slice writes its partial sums; then they are added up.
    if (lane_k % 4 == 0) {
        partial[slice][lane_k / 16][lane_k / 4 % 4] = alpha * acc[0][0];
    }
    sycl::group_barrier(item.get_group());

    const int sum_row = local_index / BN;
    const int sum_col = local_index % BN;
    const int first_col = col0 + sum_col;

    if (local_index < BM * BN) {
        float total = partial[0][sum_row][sum_col];
        #pragma GCC unroll SLICES - 1
        for (int s = 1; s < SLICES; ++s) {
            total += partial[s][sum_row][sum_col];
        }

        // C = alpha * A * prologue(B) + beta * C; C is not read where beta is zero.
        const int c_row = row0 + sum_row;
        if (c_row < m && first_col < n) {
            const float c_value =
                beta == 0.0f ? total : sycl::fma(beta, float(c[c_row * ldc + first_col]), total);
            c[c_row * ldc + first_col] = sycl::half(c_value);
        }
    }
}

} // namespace gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail

namespace gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail {

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

} // namespace gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5(
    sycl::queue &queue, int m, int n, int k, float alpha, const sycl::half *a, int lda,
    const signed char *b, int ldb, float beta, sycl::half *c, int ldc, const float *b_scale_128,
    const std::vector<sycl::event> &depends_on = {})
{
    using namespace gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail;

    if (m < 1 || n < 1) {
        return queue.submit([&](sycl::handler &handler) { handler.depends_on(depends_on); });
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (k < 0 || lda % 16 != 0 || ldb % 16 != 0 || ldc % 16 != 0 || !is_in_reach(m, k, lda) ||
        !is_in_reach(n, (k + 1) / 2, ldb) || !is_in_reach(m, n, ldc)) {
        throw sycl::exception(sycl::make_error_code(sycl::errc::invalid),
                              "the arguments break the requirements in the head comment");
    }
    return queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(SLICES, LANES_K);
        const sycl::range<2> groups((m + BM - 1) / BM, (n + BN - 1) / BN);
        handler.depends_on(depends_on);
        const sycl::local_accessor<float[SLICES][BM][BN], 0> partial(handler);
        handler.parallel_for<gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item)
                [[sycl::reqd_work_group_size(4, 32)]] [[sycl::reqd_sub_group_size(32)]] {
                    gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail::work_item(
                        item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, b_scale_128, partial);
                });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
