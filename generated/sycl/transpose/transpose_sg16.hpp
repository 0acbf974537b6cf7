// transpose_sg16: B = transpose of A; float32
//
// Tile       16x16 of A per sub-group, transposed by 4 rounds of shuffles
// Launch     local range {1, 16}, global range {(rows + 15) / 16, (cols + 15) / 16 * 16}
// Needs      sub-groups of 16
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef transpose_sg16_HPP
#define transpose_sg16_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace transpose_sg16_detail {

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int rows, int cols, const float *__restrict a, int lda,
                      float *__restrict b, int ldb)
{
    const sycl::sub_group sub_group = item.get_sub_group();
    const int lane = int(sub_group.get_local_linear_id());
    const int row0 = int(item.get_group(0)) * 16;
    const int col0 = int(item.get_group(1)) * 16;

    float tile[16];

    // Each lane reads a column of the block.
    #pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        tile[i] = a[std::min(row0 + i, rows - 1) * lda + std::min(col0 + lane, cols - 1)];
    }

    // Exchange between lanes whose numbers differ by 1.
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        const int low = i * 2;
        const bool is_low = (lane & 1) == 0;
        const float received =
            sycl::permute_group_by_xor(sub_group, is_low ? tile[low + 1] : tile[low], 1);
        tile[low] = is_low ? tile[low] : received;
        tile[low + 1] = is_low ? received : tile[low + 1];
    }

    // Exchange between lanes whose numbers differ by 2.
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        const int low = i / 2 * 4 + i % 2;
        const bool is_low = (lane & 2) == 0;
        const float received =
            sycl::permute_group_by_xor(sub_group, is_low ? tile[low + 2] : tile[low], 2);
        tile[low] = is_low ? tile[low] : received;
        tile[low + 2] = is_low ? received : tile[low + 2];
    }

    // Exchange between lanes whose numbers differ by 4.
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        const int low = i / 4 * 8 + i % 4;
        const bool is_low = (lane & 4) == 0;
        const float received =
            sycl::permute_group_by_xor(sub_group, is_low ? tile[low + 4] : tile[low], 4);
        tile[low] = is_low ? tile[low] : received;
        tile[low + 4] = is_low ? received : tile[low + 4];
    }

    // Exchange between lanes whose numbers differ by 8.
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        const int low = i / 8 * 16 + i % 8;
        const bool is_low = (lane & 8) == 0;
        const float received =
            sycl::permute_group_by_xor(sub_group, is_low ? tile[low + 8] : tile[low], 8);
        tile[low] = is_low ? tile[low] : received;
        tile[low + 8] = is_low ? received : tile[low + 8];
    }

    // Each lane now holds a row.
    #pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        if (col0 + i < cols && row0 + lane < rows) {
            b[(col0 + i) * ldb + row0 + lane] = tile[i];
        }
    }
}

} // namespace transpose_sg16_detail

namespace transpose_sg16_detail {

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

} // namespace transpose_sg16_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event transpose_sg16(sycl::queue &queue, int rows, int cols, const float *a, int lda,
                                  float *b, int ldb,
                                  const std::vector<sycl::event> &depends_on = {})
{
    using namespace transpose_sg16_detail;

    if (rows < 1 || cols < 1) {
        return queue.submit([&](sycl::handler &handler) { handler.depends_on(depends_on); });
    }
    if (!is_in_reach(rows, cols, lda) || !is_in_reach(cols, rows, ldb)) {
        throw sycl::exception(sycl::make_error_code(sycl::errc::invalid),
                              "the arguments break the requirements in the head comment");
    }
    return queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(1, 16);
        const sycl::range<2> groups((rows + 15) / 16, (cols + 15) / 16);
        handler.depends_on(depends_on);
        handler.parallel_for<transpose_sg16_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item)
                [[sycl::reqd_work_group_size(1, 16)]] [[sycl::reqd_sub_group_size(16)]] {
                    transpose_sg16_detail::work_item(item, rows, cols, a, lda, b, ldb);
                });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
