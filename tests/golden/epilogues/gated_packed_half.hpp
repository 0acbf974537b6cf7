// gated_packed_half: C = alpha * prologue(A) * prologue(B) + beta * C; float16, sums in float32
//
// Tile       32x32 of C per group, 4x4 per work-item, 8 along K per step
// Work-items 8x8 per group
// A          USM, prepacked by a kernel before, loads of 4 elements, to local memory
// B          USM, prepacked by a kernel before, loads of 4 elements, to local memory
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Prologue   A: a / (1 + exp(-a))
//            B: b * b_factor
// Takes      b_factor: an element for all of B
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     gated_packed_half_pack: local range {8, 32}, global range {8, (((k + 7) / 8 * 8 + 31)
//                / 32 * ((m + 31) / 32) + ((k + 7) / 8 * 8 + 31) / 32 * ((n + 31) / 32)) * 32}
//            gated_packed_half: local range {8, 8}, global range {(m + 31) / 32 * 8, (n + 31) / 32
//                * 8}
// Needs      2,112 bytes of local memory
//            a_packed of (k + 7) / 8 * 8 * ((m + 31) / 32 * 32) elements
//            b_packed of (k + 7) / 8 * 8 * ((n + 31) / 32 * 32) elements
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef gated_packed_half_HPP
#define gated_packed_half_HPP

#include <sycl/sycl.hpp>

#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace gated_packed_half_detail {

constexpr int BM = 32, BN = 32, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_M = 8, THREADS_N = 8; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
constexpr int THREADS = THREADS_M * THREADS_N; // work-items of a group
static_assert(THREADS_M == 8 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=4x8");
static_assert(TM % 4 == 0 && TN % 4 == 0, "TM and TN must be multiples of 4");
static_assert(BM * BK % (THREADS * 4) == 0 && BN * BK % (THREADS * 4) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 4");
static_assert(THREADS * 4 % BM == 0, "THREADS * 4 must be a multiple of BM");
static_assert(THREADS * 4 % BN == 0, "THREADS * 4 must be a multiple of BN");
static_assert(BM % 32 == 0 && BN % 32 == 0, "BM and BN must be multiples of 32");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM == 4 && TN == 4, "TM and TN must be 4 here: emit it again with --set tile=8x4");

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef unsigned short ushort4 __attribute__((vector_size(8), aligned(2), may_alias));
inline void copy4(sycl::half *to, const sycl::half *from)
{
    *reinterpret_cast<ushort4 *>(to) = *reinterpret_cast<const ushort4 *>(from);
}

// 4 neighbouring elements to registers, converted to their type.
inline void copy4(float *to, const sycl::half *from)
{
    sycl::half elements[4];
    copy4(elements, from);
    for (int e = 0; e < 4; ++e) {
        to[e] = float(elements[e]);
    }
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class pack_kernel;

// What each work-item does.
inline void pack_work_item(sycl::nd_item<2> item, int m, int n, int k,
                           const sycl::half *__restrict a, int lda, const sycl::half *__restrict b,
                           int ldb, sycl::half *__restrict a_packed,
                           sycl::half *__restrict b_packed, const float *__restrict b_factor,
                           sycl::half (&a_tile)[32][33])
{
    const int m_whole = (m + BM - 1) / BM * BM;
    const int n_whole = (n + BN - 1) / BN * BN;
    const int k_whole = (k + BK - 1) / BK * BK;
    const int a_blocks = (k_whole + 31) / 32 * ((m_whole + 31) / 32);
    const int block = int(item.get_group(1)) < a_blocks ? int(item.get_group(1))
                                                        : int(item.get_group(1)) - a_blocks;
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));

    if (int(item.get_group(1)) < a_blocks) {
        const int a_slow = block / ((m_whole + 31) / 32) * 32;
        const int a_fast = block % ((m_whole + 31) / 32) * 32;

        // Transposed through a tile, so that reads and writes are both contiguous.
        #pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const float a_element =
                float(a_fast + i * 8 + local_row < m && a_slow + local_col < k
                          ? a[(a_fast + i * 8 + local_row) * lda + a_slow + local_col]
                          : sycl::half());
            a_tile[i * 8 + local_row][local_col] =
                a_fast + i * 8 + local_row < m && a_slow + local_col < k
                    ? sycl::half(a_element / (1.0f + sycl::exp(-a_element)))
                    : sycl::half();
        }
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            if (a_slow + i * 8 + local_row < k_whole && a_fast + local_col < m_whole) {
                a_packed[(a_slow + i * 8 + local_row) * m_whole + a_fast + local_col] =
                    a_tile[local_col][i * 8 + local_row];
            }
        }
    } else {
        const int b_slow = block / ((n_whole + 31) / 32) * 32;
        const int b_fast = block % ((n_whole + 31) / 32) * 32;
        #pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            if (b_slow + i * 8 + local_row < k_whole && b_fast + local_col < n_whole) {
                b_packed[(b_slow + i * 8 + local_row) * n_whole + b_fast + local_col] =
                    b_slow + i * 8 + local_row < k && b_fast + local_col < n
                        ? sycl::half(
                              float(b[(b_slow + i * 8 + local_row) * ldb + b_fast + local_col]) *
                              b_factor[0])
                        : sycl::half();
            }
        }
    }
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const sycl::half *__restrict a_packed, const sycl::half *__restrict b_packed,
                      float beta, sycl::half *__restrict c, int ldc, sycl::half (&a_shared)[BK][BM],
                      sycl::half (&b_shared)[BK][BN])
{
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));
    const int row0 = int(item.get_group(0)) * BM;
    const int col0 = int(item.get_group(1)) * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int m_whole = (m + BM - 1) / BM * BM;
    const int n_whole = (n + BN - 1) / BN * BN;
    const int k_whole = (k + BK - 1) / BK * BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_packed_k = local_index / (BM / 4);
    const int a_packed_row = local_index % (BM / 4) * 4;
    const int b_packed_k = local_index / (BN / 4);
    const int b_packed_row = local_index % (BN / 4) * 4;

    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    for (int k0 = 0; k0 < k_whole; k0 += BK) {
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll int(BM * BK / (THREADS * 4))
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            copy4(&a_shared[a_packed_k + i * (THREADS * 4 / BM)][a_packed_row],
                  &a_packed[(k0 + a_packed_k + i * (THREADS * 4 / BM)) * m_whole + row0 +
                            a_packed_row]);
        }
        #pragma GCC unroll int(BN * BK / (THREADS * 4))
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            copy4(&b_shared[b_packed_k + i * (THREADS * 4 / BN)][b_packed_row],
                  &b_packed[(k0 + b_packed_k + i * (THREADS * 4 / BN)) * n_whole + col0 +
                            b_packed_row]);
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

    // C = alpha * prologue(A) * prologue(B) + beta * C; C is not read where beta is zero.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        if (row + i < m) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                if (col + j < n) {
                    const float c_value = beta == 0.0f
                                              ? alpha * acc[i][j]
                                              : sycl::fma(beta, float(c[(row + i) * ldc + col + j]),
                                                          alpha * acc[i][j]);
                    c[(row + i) * ldc + col + j] = sycl::half(c_value);
                }
            }
        }
    }
}

} // namespace gated_packed_half_detail

namespace gated_packed_half_detail {

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

} // namespace gated_packed_half_detail

// Queues the kernels; matrices and the workspace are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event gated_packed_half(sycl::queue &queue, int m, int n, int k, float alpha,
                                     const sycl::half *a, int lda, const sycl::half *b, int ldb,
                                     sycl::half *a_packed, sycl::half *b_packed, float beta,
                                     sycl::half *c, int ldc, const float *b_factor,
                                     const std::vector<sycl::event> &depends_on = {})
{
    using namespace gated_packed_half_detail;

    if (m < 1 || n < 1) {
        return queue.submit([&](sycl::handler &handler) { handler.depends_on(depends_on); });
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        1LL * (k + BK - 1) / BK * BK * ((m + BM - 1) / BM * BM) >= 1LL << 31 ||
        1LL * (k + BK - 1) / BK * BK * ((n + BN - 1) / BN * BN) >= 1LL << 31) {
        throw sycl::exception(sycl::make_error_code(sycl::errc::invalid),
                              "the arguments break the requirements in the head comment");
    }
    const sycl::event pack = queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(8, 32);
        const sycl::range<2> groups(
            1, ((k + BK - 1) / BK * BK + 31) / 32 * ((m + BM - 1) / BM * (BM / 32)) +
                   ((k + BK - 1) / BK * BK + 31) / 32 * ((n + BN - 1) / BN * (BN / 32)));
        handler.depends_on(depends_on);
        if (k < 1) {
            return; // there is nothing to lay out
        }
        const sycl::local_accessor<sycl::half[32][33], 0> a_tile(handler);
        handler.parallel_for<gated_packed_half_detail::pack_kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(8, 32)]] {
                gated_packed_half_detail::pack_work_item(item, m, n, k, a, lda, b, ldb, a_packed,
                                                         b_packed, b_factor, a_tile);
            });
    });
    return queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(THREADS_M, THREADS_N);
        const sycl::range<2> groups((m + BM - 1) / BM, (n + BN - 1) / BN);
        handler.depends_on(pack);
        const sycl::local_accessor<sycl::half[BK][BM], 0> a_shared(handler);
        const sycl::local_accessor<sycl::half[BK][BN], 0> b_shared(handler);
        handler.parallel_for<gated_packed_half_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(8, 8)]] {
                gated_packed_half_detail::work_item(item, m, n, k, alpha, a_packed, b_packed, beta,
                                                    c, ldc, a_shared, b_shared);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
