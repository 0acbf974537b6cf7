// L3_SIMD_8x4_8x8: C = alpha * A * B + beta * C; float32
//
// Tile       64x32 of C per group, 8x4 per work-item, 32 along K per step, in sub-steps of 8
// Work-items 8x8 per group, sub-groups of 8
// A          USM, block reads of 4 segments, passed around the sub-group by shuffles
// B          USM, block reads of 4 segments
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {8, 8}, global range {(m + 63) / 64 * 8, (n + 31) / 32 * 8}
// Needs      sycl_ext_oneapi_group_load_store, sub-groups of 8
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef L3_SIMD_8x4_8x8_HPP
#define L3_SIMD_8x4_8x8_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace L3_SIMD_8x4_8x8_detail {

constexpr int BM = 64, BN = 32; // block tile of C
constexpr int THREADS_M = 8, THREADS_N = 8; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
static_assert(BM == 64 && BN == 32,
              "BM and BN cannot change here: this schedule has no other tile");
static_assert(THREADS_M == 8 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset L3_SIMD_8x4_8x8 --backend sycl --set group=4x8");

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

// One element per lane of each of 4 neighbouring segments.
inline void block_load4(sycl::sub_group sub_group, const float *from, float *to)
{
    namespace syclex = sycl::ext::oneapi::experimental;
    syclex::group_load(sub_group, syclex::static_address_cast<syclex::global_space>(from),
                       sycl::span<float, 4>(to, 4),
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
    const int col0 = int(item.get_group(1)) * BN;
    const int row = int(item.get_group(0)) * BM + int(item.get_local_id(0)) * 8;
    const int col = col0 + lane;
    const int k_main = col0 + BN <= n ? k - k % 32 : 0;

    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Addresses of block reads in bytes, one (or half of one) a lane; the loop adds a step first.
    int b_at[4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        b_at[i] = ((i * 8 + lane - 32) * ldb + col0) * 4;
    }

    // Addresses of block reads along rows in bytes, one a lane; they stay as they are.
    int a_at = std::min(row + lane, m - 1) * lda * 4;

    // Whole steps of 32 along K; at the edge of C there are none.
    for (int k0 = 0; k0 < k_main; k0 += 32) {
        #pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            b_at[i] += ldb * 128;
        }
        float a_frag[TM][4];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            block_load4(sub_group, at(a + k0, sycl::group_broadcast(sub_group, a_at, i)),
                        a_frag[i]);
        }
        #pragma GCC unroll 4
        for (int kk = 0; kk < 32; kk += 8) {
            float b_frag[8][TN];
            #pragma GCC unroll 8
            for (int i = 0; i < 8; ++i) {
                block_load4(
                    sub_group,
                    at(b, sycl::group_broadcast(sub_group, b_at[(kk + i) / 8], (kk + i) % 8)),
                    b_frag[i]);
            }
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll 8
                for (int p = 0; p < 8; ++p) {
                    const float a_value =
                        sycl::group_broadcast(sub_group, a_frag[i][(kk + p) / 8], (kk + p) % 8);
                    #pragma GCC unroll TN
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = sycl::fma(a_value, b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    }

    // The rest of K, at the edge of C all of it; what lies past it counts as zero.
    for (int k0 = k_main; k0 < k; k0 += 8) {
        float b_frag[8][TN];
        #pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                b_frag[i][j] = k0 + i < k
                                   ? load(b, (k0 + i) * ldb + std::min(col + j * THREADS_N, n - 1))
                                   : 0.0f;
            }
        }
        float a_frag[TM];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            a_frag[i] = k0 + lane < k ? load(a, std::min(row + i, m - 1) * lda + k0 + lane) : 0.0f;
        }
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll 8
            for (int p = 0; p < 8; ++p) {
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
        if (row + i < m) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    c[(row + i) * ldc + col + j * THREADS_N] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : sycl::fma(beta, c[(row + i) * ldc + col + j * THREADS_N],
                                                 alpha * acc[i][j]);
                }
            }
        }
    }
}

} // namespace L3_SIMD_8x4_8x8_detail

namespace L3_SIMD_8x4_8x8_detail {

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

} // namespace L3_SIMD_8x4_8x8_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event L3_SIMD_8x4_8x8(sycl::queue &queue, int m, int n, int k, float alpha,
                                   const float *a, int lda, const float *b, int ldb, float beta,
                                   float *c, int ldc,
                                   const std::vector<sycl::event> &depends_on = {})
{
    using namespace L3_SIMD_8x4_8x8_detail;

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
        const sycl::range<2> group(THREADS_M, THREADS_N);
        const sycl::range<2> groups((m + BM - 1) / BM, (n + BN - 1) / BN);
        handler.depends_on(depends_on);
        handler.parallel_for<L3_SIMD_8x4_8x8_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item)
                [[sycl::reqd_work_group_size(8, 8)]] [[sycl::reqd_sub_group_size(8)]] {
                    L3_SIMD_8x4_8x8_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c,
                                                      ldc);
                });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
