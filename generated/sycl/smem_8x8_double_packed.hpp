// smem_8x8_double_packed: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per group, 8x8 per work-item, 8 along K per step
// Work-items 16x16 per group
// A          USM, prepacked by a kernel before, loads of 4 elements, 2 stages in local memory, rows
//            padded by 4, registers double-buffered
// B          USM, prepacked by a kernel before, loads of 4 elements, 2 stages in local memory,
//            registers double-buffered
// Pipeline   the next stage is loaded into registers before the arithmetic, and stored after it
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     smem_8x8_double_packed_pack: local range {8, 32}, global range {8, (((k + 7) / 8 * 8 +
//                31) / 32 * ((m + 127) / 128 * 4) + ((k + 7) / 8 * 8 + 31) / 32 * ((n + 127) / 128
//                * 4)) * 32}
//            smem_8x8_double_packed: local range {16, 16}, global range {(m + 127) / 128 * 16, (n +
//                127) / 128 * 16}
// Needs      16,640 bytes of local memory
//            a_packed of (k + 7) / 8 * 8 * ((m + 127) / 128 * 128) elements
//            b_packed of (k + 7) / 8 * 8 * ((n + 127) / 128 * 128) elements
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef smem_8x8_double_packed_HPP
#define smem_8x8_double_packed_HPP

#include <sycl/sycl.hpp>

#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace smem_8x8_double_packed_detail {

constexpr int BM = 128, BN = 128, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 2; // stages of the pipeline
constexpr int THREADS_M = 16, THREADS_N = 16; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
constexpr int THREADS = THREADS_M * THREADS_N; // work-items of a group
static_assert(STAGES == 2,
              "STAGES cannot change here: "
              "gemmgen emit --preset smem_8x8_double_packed --backend sycl --set stages=4");
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset smem_8x8_double_packed --backend sycl --set group=8x16");
static_assert(TM % 4 == 0 && TN % 4 == 0, "TM and TN must be multiples of 4");
static_assert(BM * BK % (THREADS * 4) == 0 && BN * BK % (THREADS * 4) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 4");
static_assert(THREADS * 4 % BM == 0, "THREADS * 4 must be a multiple of BM");
static_assert(THREADS * 4 % BN == 0, "THREADS * 4 must be a multiple of BN");
static_assert(BM % 32 == 0 && BN % 32 == 0, "BM and BN must be multiples of 32");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 4 && TN > 4,
              "TM and TN must exceed 4 here: "
              "gemmgen emit --preset smem_8x8_double_packed --backend sycl --set tile=4x8");

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
inline void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class pack_kernel;

// What each work-item does.
inline void pack_work_item(sycl::nd_item<2> item, int m, int n, int k, const float *__restrict a,
                           int lda, const float *__restrict b, int ldb, float *__restrict a_packed,
                           float *__restrict b_packed, float (&a_tile)[32][33])
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
            a_tile[i * 8 + local_row][local_col] =
                a_fast + i * 8 + local_row < m && a_slow + local_col < k
                    ? a[(a_fast + i * 8 + local_row) * lda + a_slow + local_col]
                    : 0.0f;
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
                        ? b[(b_slow + i * 8 + local_row) * ldb + b_fast + local_col]
                        : 0.0f;
            }
        }
    }
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a_packed, const float *__restrict b_packed,
                      float beta, float *__restrict c, int ldc,
                      float (&a_shared)[STAGES][BK][BM + 4], float (&b_shared)[STAGES][BK][BN])
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

    float a_next[BM * BK / (THREADS * 4)][4];
    float b_next[BN * BK / (THREADS * 4)][4];
    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    if (k_whole >= BK) {
        #pragma GCC unroll int(BM * BK / (THREADS * 4))
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            copy4(&a_shared[0][a_packed_k + i * (THREADS * 4 / BM)][a_packed_row],
                  &a_packed[(a_packed_k + i * (THREADS * 4 / BM)) * m_whole + row0 + a_packed_row]);
        }
        #pragma GCC unroll int(BN * BK / (THREADS * 4))
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            copy4(&b_shared[0][b_packed_k + i * (THREADS * 4 / BN)][b_packed_row],
                  &b_packed[(b_packed_k + i * (THREADS * 4 / BN)) * n_whole + col0 + b_packed_row]);
        }
    }
    sycl::group_barrier(item.get_group());
    for (int k0 = 0; k0 < k_whole; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        if (k0 + STAGES * BK <= k_whole) {
            #pragma GCC unroll int(BM * BK / (THREADS * 4))
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                copy4(a_next[i],
                      &a_packed[(k0 + a_packed_k + i * (THREADS * 4 / BM) + (STAGES - 1) * BK) *
                                    m_whole +
                                row0 + a_packed_row]);
            }
            #pragma GCC unroll int(BN * BK / (THREADS * 4))
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                copy4(b_next[i],
                      &b_packed[(k0 + b_packed_k + i * (THREADS * 4 / BN) + (STAGES - 1) * BK) *
                                    n_whole +
                                col0 + b_packed_row]);
            }
        }
        float a_frag[2][TM];
        float b_frag[2][TN];
        #pragma GCC unroll TM / 4
        for (int i = 0; i < TM / 4; ++i) {
            copy4(&a_frag[0][i * 4], &a_shared[stage][0][local_row * 4 + i * THREADS_M * 4]);
        }
        #pragma GCC unroll TN / 4
        for (int j = 0; j < TN / 4; ++j) {
            copy4(&b_frag[0][j * 4], &b_shared[stage][0][local_col * 4 + j * THREADS_N * 4]);
        }
        #pragma GCC unroll 2
        for (int kk = 0; kk < BK; ++kk) {
            if (kk + 1 < BK) {
                #pragma GCC unroll TM / 4
                for (int i = 0; i < TM / 4; ++i) {
                    copy4(&a_frag[(kk + 1) % 2][i * 4],
                          &a_shared[stage][kk + 1][local_row * 4 + i * THREADS_M * 4]);
                }
                #pragma GCC unroll TN / 4
                for (int j = 0; j < TN / 4; ++j) {
                    copy4(&b_frag[(kk + 1) % 2][j * 4],
                          &b_shared[stage][kk + 1][local_col * 4 + j * THREADS_N * 4]);
                }
            }
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = sycl::fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);
                }
            }
        }
        if (k0 + STAGES * BK <= k_whole) {
            #pragma GCC unroll int(BM * BK / (THREADS * 4))
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                copy4(&a_shared[load_stage][a_packed_k + i * (THREADS * 4 / BM)][a_packed_row],
                      a_next[i]);
            }
            #pragma GCC unroll int(BN * BK / (THREADS * 4))
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                copy4(&b_shared[load_stage][b_packed_k + i * (THREADS * 4 / BN)][b_packed_row],
                      b_next[i]);
            }
        }
        sycl::group_barrier(item.get_group());
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
        if (c_row < m) {
            #pragma GCC unroll TN / 4
            for (int j = 0; j < TN / 4; ++j) {
                if (col + j * THREADS_N * 4 + 4 <= n) {
                    float c_values[4];
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        float c_old[4];
                        copy4(c_old, &c[c_row * ldc + col + j * THREADS_N * 4]);
                        #pragma GCC unroll 4
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = sycl::fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy4(&c[c_row * ldc + col + j * THREADS_N * 4], c_values);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * THREADS_N * 4 + e < n) {
                            c[c_row * ldc + col + j * THREADS_N * 4 + e] =
                                beta == 0.0f
                                    ? alpha * acc[i][j * 4 + e]
                                    : sycl::fma(beta, c[c_row * ldc + col + j * THREADS_N * 4 + e],
                                                alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

} // namespace smem_8x8_double_packed_detail

namespace smem_8x8_double_packed_detail {

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

} // namespace smem_8x8_double_packed_detail

// Queues the kernels; matrices and the workspace are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event smem_8x8_double_packed(sycl::queue &queue, int m, int n, int k, float alpha,
                                          const float *a, int lda, const float *b, int ldb,
                                          float *a_packed, float *b_packed, float beta, float *c,
                                          int ldc, const std::vector<sycl::event> &depends_on = {})
{
    using namespace smem_8x8_double_packed_detail;

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
        const sycl::local_accessor<float[32][33], 0> a_tile(handler);
        handler.parallel_for<smem_8x8_double_packed_detail::pack_kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(8, 32)]] {
                smem_8x8_double_packed_detail::pack_work_item(item, m, n, k, a, lda, b, ldb,
                                                              a_packed, b_packed, a_tile);
            });
    });
    return queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(THREADS_M, THREADS_N);
        const sycl::range<2> groups((m + BM - 1) / BM, (n + BN - 1) / BN);
        handler.depends_on(pack);
        const sycl::local_accessor<float[STAGES][BK][BM + 4], 0> a_shared(handler);
        const sycl::local_accessor<float[STAGES][BK][BN], 0> b_shared(handler);
        handler.parallel_for<smem_8x8_double_packed_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(16, 16)]] {
                smem_8x8_double_packed_detail::work_item(item, m, n, k, alpha, a_packed, b_packed,
                                                         beta, c, ldc, a_shared, b_shared);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
