// sg16_block_16x2: C = alpha * A * B + beta * C; float32
//
// Tile       16x32 of C per group, 16x2 per work-item, 16 along K per step
// Work-items 1x16 per group, sub-groups of 16
// A          USM, block reads, passed around the sub-group by shuffles
// B          USM, block reads of 2 segments
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {1, 16}, global range {(m + 15) / 16, (n + 31) / 32 * 16}
// Needs      sycl_ext_oneapi_group_load_store, sub-groups of 16
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef sg16_block_16x2_HPP
#define sg16_block_16x2_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace sg16_block_16x2_detail {

constexpr int BM = 16, BN = 32, BK = 16; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_N = 16; // work-items along N
constexpr int TM = BM, TN = BN / THREADS_N; // tile of C of a work-item
static_assert(BM == 16 && BN == 32,
              "BM and BN cannot change here: this schedule has no other tile");
static_assert(BK == 16, "BK cannot change here: this schedule has no other block_k");
static_assert(THREADS_N == 16,
              "THREADS_N cannot change here: "
              "gemmgen emit --preset sg16_block_16x2 --backend sycl --set group=2x16");

// The element that lies `bytes` bytes behind a matrix's first.
inline const float *at(const float *matrix, int bytes)
{
    return reinterpret_cast<const float *>(reinterpret_cast<const char *>(matrix) + bytes);
}

// An element of a matrix. Its place is unsigned, since compilers make the loop counters in a signed
// one 64 bits wide, and that takes registers.
inline float load(const float *matrix, unsigned place)
{
    return matrix[place];
}

// One element per lane.
inline float block_load(sycl::sub_group sub_group, const float *from)
{
    namespace syclex = sycl::ext::oneapi::experimental;
    float element;
    syclex::group_load(sub_group, syclex::static_address_cast<syclex::global_space>(from),
                       sycl::span<float, 1>(&element, 1),
                       syclex::properties(syclex::data_placement_striped, syclex::contiguous_memory,
                                          syclex::full_group));
    return element;
}

// One element per lane of each of 2 neighbouring segments.
inline void block_load2(sycl::sub_group sub_group, const float *from, float *to)
{
    namespace syclex = sycl::ext::oneapi::experimental;
    syclex::group_load(sub_group, syclex::static_address_cast<syclex::global_space>(from),
                       sycl::span<float, 2>(to, 2),
                       syclex::properties(syclex::data_placement_striped, syclex::contiguous_memory,
                                          syclex::full_group));
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc)
{
    const sycl::sub_group sub_group = item.get_sub_group();
    const int lane = int(sub_group.get_local_linear_id());
    const int row0 = int(item.get_group(0)) * BM;
    const int col0 = int(item.get_group(1)) * BN;
    const int col = col0 + lane;
    const int k_main = k - k % BK;

    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    if (col0 + 32 <= n) {
        // Addresses of block reads in bytes, one (or half of one) a lane; the loop adds a step
        // first.
        int b_at = ((lane - BK) * ldb + col0) * 4;
        int a_at = (std::min(row0 + lane, m - 1) * lda - BK) * 4;
        for (int k0 = 0; k0 < k_main; k0 += BK) {
            b_at += ldb * BK * 4;
            a_at += BK * 4;
            float b_frag[BK][TN];
            #pragma GCC unroll BK
            for (int i = 0; i < BK; ++i) {
                block_load2(sub_group, at(b, sycl::group_broadcast(sub_group, b_at, i)), b_frag[i]);
            }
            float a_frag[TM];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = block_load(sub_group, at(a, sycl::group_broadcast(sub_group, a_at, i)));
            }
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll BK
                for (int p = 0; p < BK; ++p) {
                    const float a_value = sycl::group_broadcast(sub_group, a_frag[i], p);
                    #pragma GCC unroll TN
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = sycl::fma(a_value, b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    } else {
        // Addresses of block reads along rows in bytes, one a lane; they stay as they are.
        int a_at = std::min(row0 + lane, m - 1) * lda * 4;

        // At the edge of the matrix each lane loads its own elements.
        for (int k0 = 0; k0 < k_main; k0 += BK) {
            float b_frag[BK][TN];
            #pragma GCC unroll BK
            for (int i = 0; i < BK; ++i) {
                #pragma GCC unroll 2
                for (int e = 0; e < 2; ++e) {
                    b_frag[i][e] = load(b, (k0 + i) * ldb + std::min(col0 + e * 16 + lane, n - 1));
                }
            }
            float a_frag[TM];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] =
                    block_load(sub_group, at(a + k0, sycl::group_broadcast(sub_group, a_at, i)));
            }
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll BK
                for (int p = 0; p < BK; ++p) {
                    const float a_value = sycl::group_broadcast(sub_group, a_frag[i], p);
                    #pragma GCC unroll TN
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = sycl::fma(a_value, b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        float b_frag[BK][TN];
        #pragma GCC unroll BK
        for (int i = 0; i < BK; ++i) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                b_frag[i][j] =
                    k_main + i < k
                        ? load(b, (k_main + i) * ldb + std::min(col + j * THREADS_N, n - 1))
                        : 0.0f;
            }
        }
        float a_frag[TM];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            a_frag[i] =
                k_main + lane < k ? load(a, std::min(row0 + i, m - 1) * lda + k_main + lane) : 0.0f;
        }
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll BK
            for (int p = 0; p < BK; ++p) {
                const float a_value = sycl::group_broadcast(sub_group, a_frag[i], p);
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = sycl::fma(a_value, b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        if (row0 + i < m) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    c[(row0 + i) * ldc + col + j * THREADS_N] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : sycl::fma(beta, c[(row0 + i) * ldc + col + j * THREADS_N],
                                                 alpha * acc[i][j]);
                }
            }
        }
    }
}

} // namespace sg16_block_16x2_detail

namespace sg16_block_16x2_detail {

// Loops step past the end of a size: from here on, 32 bits might not hold where they stop.
constexpr long long TOO_MANY = (1LL << 31) - 1024;

// Whether lines do not overlap, at `pitch` elements from one to the next, and 32-bit indices reach
// the whole matrix.
inline bool is_in_reach(long long lines, long long length, long long pitch,
                        long long limit = 1LL << 31)
{
    if (lines < 1 || length < 1) {
        return true;
    }
    return lines < TOO_MANY && length < TOO_MANY && (lines == 1 || pitch >= length) &&
           (lines - 1) * pitch + length < limit;
}

} // namespace sg16_block_16x2_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event sg16_block_16x2(sycl::queue &queue, int m, int n, int k, float alpha,
                                   const float *a, int lda, const float *b, int ldb, float beta,
                                   float *c, int ldc,
                                   const std::vector<sycl::event> &depends_on = {})
{
    using namespace sg16_block_16x2_detail;

    if (m < 1 || n < 1) {
        return queue.submit([&](sycl::handler &handler) { handler.depends_on(depends_on); });
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (k < 0 || !is_in_reach(m, k, lda, 1LL << 29) || !is_in_reach(k, n, ldb, 1LL << 29) ||
        !is_in_reach(m, n, ldc)) {
        throw sycl::exception(sycl::make_error_code(sycl::errc::invalid),
                              "the arguments break the requirements in the head comment");
    }
    return queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(1, THREADS_N);
        const sycl::range<2> groups((m + BM - 1) / BM, (n + BN - 1) / BN);
        handler.depends_on(depends_on);
        handler.parallel_for<sg16_block_16x2_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item)
                [[sycl::reqd_work_group_size(1, 16)]] [[sycl::reqd_sub_group_size(16)]] {
                    sg16_block_16x2_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c,
                                                      ldc);
                });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
