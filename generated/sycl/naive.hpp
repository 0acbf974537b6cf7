// naive: C = alpha * A * B + beta * C; float32
//
// Tile       8x8 of C per group, 1x1 per work-item, 1 along K per step
// Work-items 8x8 per group
// A          USM, loads of single elements
// B          USM, loads of single elements
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {8, 8}, global range {(m + 7) / 8 * 8, (n + 7) / 8 * 8}
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef naive_HPP
#define naive_HPP

#include <sycl/sycl.hpp>

#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace naive_detail {

constexpr int BM = 8, BN = 8; // block tile of C
constexpr int THREADS_M = 8, THREADS_N = 8; // work-items along M and N
static_assert(BM == 8 && BN == 8, "BM and BN cannot change here: "
                                  "gemmgen emit --preset naive --backend sycl --set tile=2x1");
static_assert(THREADS_M == 8 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset naive --backend sycl --set group=4x8");

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc)
{
    const int row = int(item.get_global_id(0));
    const int col = int(item.get_global_id(1));

    if (row < m && col < n) {
        float acc = 0.0f;
        for (int k0 = 0; k0 < k; ++k0) {
            const float a_frag = a[row * lda + k0];
            const float b_frag = b[k0 * ldb + col];
            acc = sycl::fma(a_frag, b_frag, acc);
        }

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        c[row * ldc + col] =
            beta == 0.0f ? alpha * acc : sycl::fma(beta, c[row * ldc + col], alpha * acc);
    }
}

} // namespace naive_detail

namespace naive_detail {

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

} // namespace naive_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event naive(sycl::queue &queue, int m, int n, int k, float alpha, const float *a,
                         int lda, const float *b, int ldb, float beta, float *c, int ldc,
                         const std::vector<sycl::event> &depends_on = {})
{
    using namespace naive_detail;

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
        handler.parallel_for<naive_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(8, 8)]] {
                naive_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
