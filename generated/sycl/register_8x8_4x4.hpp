// register_8x8_4x4: C = alpha * A * B + beta * C; float32
//
// Tile       32x32 of C per group, 8x8 per work-item, 1 along K per step
// Work-items 4x4 per group
// A          USM, loads of single elements
// B          USM, loads of 8 elements
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {4, 4}, global range {(m + 31) / 32 * 4, (n + 31) / 32 * 4}
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef register_8x8_4x4_HPP
#define register_8x8_4x4_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace register_8x8_4x4_detail {

constexpr int BM = 32, BN = 32; // block tile of C
constexpr int THREADS_M = 4, THREADS_N = 4; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
static_assert(BM == 32 && BN == 32,
              "BM and BN cannot change here: "
              "gemmgen emit --preset register_8x8_4x4 --backend sycl --set tile=16x8");
static_assert(THREADS_M == 4 && THREADS_N == 4,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset register_8x8_4x4 --backend sycl --set group=2x4");

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
inline void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// 8 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float8 __attribute__((vector_size(32), aligned(4), may_alias));
inline void copy8(float *to, const float *from)
{
    *reinterpret_cast<float8 *>(to) = *reinterpret_cast<const float8 *>(from);
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc)
{
    const int col0 = int(item.get_group(1)) * BN;
    const int row = int(item.get_group(0)) * BM + int(item.get_local_id(0)) * 8;
    const int col = col0 + int(item.get_local_id(1)) * 8;

    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    if (col0 + BN <= n) {
        for (int k0 = 0; k0 < k; ++k0) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = a[std::min(row + i, m - 1) * lda + k0];
            }
            copy8(b_frag, &b[k0 * ldb + col]);
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = sycl::fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    } else {
        // A block at the edge of C: every load has a bounds check.
        for (int k0 = 0; k0 < k; ++k0) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = a[std::min(row + i, m - 1) * lda + k0];
            }
            if (col + 8 <= n) {
                copy8(b_frag, &b[k0 * ldb + col]);
            } else {
                #pragma GCC unroll 8
                for (int e = 0; e < 8; ++e) {
                    b_frag[e] = b[k0 * ldb + std::min(col + e, n - 1)];
                }
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
                    copy4(&c[(row + i) * ldc + col + j * 4], c_values);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 4 + e < n) {
                            c[(row + i) * ldc + col + j * 4 + e] =
                                beta == 0.0f ? alpha * acc[i][j * 4 + e]
                                             : sycl::fma(beta, c[(row + i) * ldc + col + j * 4 + e],
                                                         alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

} // namespace register_8x8_4x4_detail

namespace register_8x8_4x4_detail {

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

} // namespace register_8x8_4x4_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event register_8x8_4x4(sycl::queue &queue, int m, int n, int k, float alpha,
                                    const float *a, int lda, const float *b, int ldb, float beta,
                                    float *c, int ldc,
                                    const std::vector<sycl::event> &depends_on = {})
{
    using namespace register_8x8_4x4_detail;

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
        handler.parallel_for<register_8x8_4x4_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(4, 4)]] {
                register_8x8_4x4_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c,
                                                   ldc);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
