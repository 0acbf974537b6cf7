// cpu_6x64: C = alpha * A * B + beta * C; float32
//
// Tile       6x64 of C at a time, in vectors of 16
// Loops      outermost first: own_col by 64, own_row by 6, k0 by 1
// Work-items 1x1 per group
// A          USM, loads of single elements
// B          USM, loads of 16 elements
// Multiply   fused multiply-add of vectors of 16
// C          stores of 16 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {1, 1}, global range {(m + 263) / 264 * 2, (n + 127) / 128}
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef cpu_6x64_HPP
#define cpu_6x64_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace cpu_6x64_detail {

constexpr int MR = 6, NR = 64; // micro-tile of C: rows and columns
constexpr int TILES_M = 22, TILES_N = 2; // tiles of a work-item at most, along M and N
static_assert(MR == 6 && NR == 64, "MR and NR cannot change here: "
                                   "gemmgen emit --preset cpu_6x64 --backend sycl --set tile=3x64");
static_assert(TILES_M == 22 && TILES_N == 2,
              "TILES_M and TILES_N cannot change here: "
              "gemmgen emit --preset cpu_6x64 --backend sycl --set macro_kernel=11x2");

// A vector from memory, at any alignment.
inline sycl::float16 load16(const float *from)
{
    sycl::float16 vector;
    __builtin_memcpy(static_cast<void *>(&vector), from, sizeof(vector));
    return vector;
}

// A vector to memory, at any alignment.
inline void store(const sycl::float16 &vector, float *to)
{
    __builtin_memcpy(to, &vector, sizeof(vector));
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc)
{
    const int blocks_down = (m + MR * TILES_M * 2 - 1) / (MR * TILES_M * 2) * 2;
    const int blocks_across = (n + NR * TILES_N - 1) / (NR * TILES_N);
    const int rows_each = ((m + MR - 1) / MR + blocks_down - 1) / blocks_down * MR;
    const int row_begin = std::min(m, int(item.get_group(0)) * rows_each);
    const int row_end = std::min(m, row_begin + rows_each);
    const int cols_each = ((n + NR - 1) / NR + blocks_across - 1) / blocks_across * NR;
    const int col_begin = std::min(n, int(item.get_group(1)) * cols_each);
    const int col_end = std::min(n, col_begin + cols_each);

    for (int own_col = col_begin; own_col < col_end; own_col += NR) {
        // The last tile of a line begins earlier, so that its vectors of B end inside.
        const int col0 = n >= NR ? std::min(own_col, n - NR) : own_col;
        const int k_main = col0 + NR <= n ? k : 0;

        // Where C is not read, columns of the tile before are stored again.
        const int first_col = beta == 0.0f && col_begin <= col0 ? col0 : own_col;
        for (int own_row = row_begin; own_row < row_end; own_row += MR) {
            // Where C is not read, the last tile begins earlier, and stores rows again.
            const int row0 = beta == 0.0f && row_begin + MR <= row_end
                                 ? std::min(own_row, row_end - MR)
                                 : own_row;
            sycl::float16 acc[MR][NR / 16];
            #pragma GCC unroll MR
            for (int i = 0; i < MR; ++i) {
                #pragma GCC unroll NR / 16
                for (int j = 0; j < NR / 16; ++j) {
                    acc[i][j] = 0.0f;
                }
            }
            for (int k0 = 0; k0 < k_main; ++k0) {
                sycl::float16 b_frag[NR / 16];
                #pragma GCC unroll NR / 16
                for (int j = 0; j < NR / 16; ++j) {
                    b_frag[j] = load16(&b[k0 * ldb + col0 + j * 16]);
                }
                float a_frag[MR];
                #pragma GCC unroll MR
                for (int i = 0; i < MR; ++i) {
                    a_frag[i] = a[std::min(row0 + i, m - 1) * lda + k0];
                }
                #pragma GCC unroll MR
                for (int i = 0; i < MR; ++i) {
                    #pragma GCC unroll NR / 16
                    for (int j = 0; j < NR / 16; ++j) {
                        acc[i][j] = sycl::fma(sycl::float16(a_frag[i]), b_frag[j], acc[i][j]);
                    }
                }
            }
            for (int k0 = k_main; k0 < k; ++k0) {
                sycl::float16 b_frag[NR / 16];
                for (int j = 0; j < NR; ++j) {
                    b_frag[j / 16][j % 16] = b[k0 * ldb + std::min(col0 + j, n - 1)];
                }
                float a_frag[MR];
                #pragma GCC unroll MR
                for (int i = 0; i < MR; ++i) {
                    a_frag[i] = a[std::min(row0 + i, m - 1) * lda + k0];
                }
                #pragma GCC unroll MR
                for (int i = 0; i < MR; ++i) {
                    #pragma GCC unroll NR / 16
                    for (int j = 0; j < NR / 16; ++j) {
                        acc[i][j] = sycl::fma(sycl::float16(a_frag[i]), b_frag[j], acc[i][j]);
                    }
                }
            }

            // C = alpha * A * B + beta * C; C is not read where beta is zero.
            if (row0 + MR <= m && col0 + NR <= n && first_col <= col0) {
                #pragma GCC unroll MR
                for (int i = 0; i < MR; ++i) {
                    #pragma GCC unroll NR / 16
                    for (int j = 0; j < NR / 16; ++j) {
                        sycl::float16 c_values = alpha * acc[i][j];
                        if (beta != 0.0f) {
                            sycl::float16 c_old = load16(&c[(row0 + i) * ldc + col0 + j * 16]);
                            c_values = sycl::fma(sycl::float16(beta), c_old, c_values);
                        }
                        store(c_values, &c[(row0 + i) * ldc + col0 + j * 16]);
                    }
                }
            } else {
                // At the edge of C, element by element.
                float c_part[MR][NR];
                #pragma GCC unroll MR
                for (int i = 0; i < MR; ++i) {
                    #pragma GCC unroll NR / 16
                    for (int j = 0; j < NR / 16; ++j) {
                        store(acc[i][j], &c_part[i][j * 16]);
                    }
                }
                for (int i = 0; i < std::min(MR, m - row0); ++i) {
                    for (int j = first_col - col0; j < std::min(NR, n - col0); ++j) {
                        c[(row0 + i) * ldc + col0 + j] =
                            beta == 0.0f ? alpha * c_part[i][j]
                                         : sycl::fma(beta, c[(row0 + i) * ldc + col0 + j],
                                                     alpha * c_part[i][j]);
                    }
                }
            }
        }
    }
}

} // namespace cpu_6x64_detail

namespace cpu_6x64_detail {

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

} // namespace cpu_6x64_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event cpu_6x64(sycl::queue &queue, int m, int n, int k, float alpha, const float *a,
                            int lda, const float *b, int ldb, float beta, float *c, int ldc,
                            const std::vector<sycl::event> &depends_on = {})
{
    using namespace cpu_6x64_detail;

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
        const sycl::range<2> group(1, 1);
        const sycl::range<2> groups((m + MR * TILES_M * 2 - 1) / (MR * TILES_M * 2) * 2,
                                    (n + NR * TILES_N - 1) / (NR * TILES_N));
        handler.depends_on(depends_on);
        handler.parallel_for<cpu_6x64_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(1, 1)]] {
                cpu_6x64_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
