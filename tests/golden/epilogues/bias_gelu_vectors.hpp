// bias_gelu_vectors: C = alpha * A * B, then bias, gelu; float32
//
// Tile       6x64 of C at a time, in vectors of 16
// Loops      outermost first: k_block by 1024, own_row by 6, col0 by 64, k0 by 1
// Work-items 1x1 per group
// A          USM, loads of single elements
// B          USM, copied in blocks of 4x1024x64 to private memory, loads of 16 elements
// Multiply   fused multiply-add of vectors of 16
// C          stores of 16 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Epilogue   bias: acc + bias
//            gelu: 0.5 * acc * (1 + erf(acc * 0.7071067811865476))
// Takes      bias: an element for each column of C
// Unread     A and B where k is 0: pass k = 0 where alpha is 0
// Launch     local range {1, 1}, global range {(m + 515) / 516, (n + 255) / 256}
// Needs      1,048,576 bytes of private memory for each work-item, beside its registers
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef bias_gelu_vectors_HPP
#define bias_gelu_vectors_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace bias_gelu_vectors_detail {

constexpr int MR = 6, NR = 64; // micro-tile of C: rows and columns
constexpr int TILES_M = 86, TILES_N = 4; // tiles of a work-item at most, along M and N
constexpr int KC = 1024; // depth of a panel of B
constexpr int ROWS = 16; // rows of B that are copied for all panels before the next ones
static_assert(MR == 6 && NR == 64,
              "MR and NR cannot change here: emit it again with --set tile=3x64");
static_assert(TILES_M == 86 && TILES_N == 4,
              "TILES_M and TILES_N cannot change here: emit it again with --set macro_kernel=43x4");
static_assert(KC == 1024, "KC cannot change here: emit it again with --set kc=2048");

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
                      float *__restrict c, int ldc, const float *__restrict bias)
{
    const int blocks_down = (m + MR * TILES_M - 1) / (MR * TILES_M);
    const int blocks_across = (n + NR * TILES_N - 1) / (NR * TILES_N);
    const int rows_each = ((m + MR - 1) / MR + blocks_down - 1) / blocks_down * MR;
    const int row_begin = std::min(m, int(item.get_group(0)) * rows_each);
    const int row_end = std::min(m, row_begin + rows_each);
    const int cols_each = ((n + NR - 1) / NR + blocks_across - 1) / blocks_across * NR;
    const int col_begin = std::min(n, int(item.get_group(1)) * cols_each);
    const int col_end = std::min(n, col_begin + cols_each);

    sycl::float16 b_block[TILES_N][KC][NR / 16];
    for (int k_block = 0; k_block < (k > 0 ? k : 1); k_block += KC) {
        const int k_depth = std::min(KC, k - k_block);

        // A block of B, up to KC deep, in the order that it is read in.
        if (n >= 16) {
            // Vectors that would end past the last column begin earlier.
            for (int k_rows = 0; k_rows < k_depth; k_rows += ROWS) {
                const int k_rows_end = std::min(k_depth, k_rows + ROWS);
                for (int col0 = col_begin; col0 < col_end; col0 += NR) {
                    const int panel = (col0 - col_begin) / NR;
                    for (int k0 = k_rows; k0 < k_rows_end; ++k0) {
                        #pragma GCC unroll NR / 16
                        for (int j = 0; j < NR / 16; ++j) {
                            const int col = std::min(col0 + j * 16, n - 16);
                            b_block[panel][k0][j] = load16(&b[(k_block + k0) * ldb + col]);
                        }
                    }
                }
            }
        } else {
            for (int k_rows = 0; k_rows < k_depth; k_rows += ROWS) {
                const int k_rows_end = std::min(k_depth, k_rows + ROWS);
                for (int col0 = col_begin; col0 < col_end; col0 += NR) {
                    const int panel = (col0 - col_begin) / NR;
                    for (int k0 = k_rows; k0 < k_rows_end; ++k0) {
                        for (int j = 0; j < NR; ++j) {
                            b_block[panel][k0][j / 16][j % 16] =
                                b[(k_block + k0) * ldb + std::min(col0 + j, n - 1)];
                        }
                    }
                }
            }
        }

        // C holds the sums between blocks of K.
        const float beta_now = k_block == 0 ? 0.0f : 1.0f;

        // Some rows of A are multiplied by all panels of B.
        for (int own_row = row_begin; own_row < row_end; own_row += MR) {
            // Where C is not read, the last tile begins earlier, and stores rows again.
            const int row0 = beta_now == 0.0f && row_begin + MR <= row_end
                                 ? std::min(own_row, row_end - MR)
                                 : own_row;
            for (int col0 = col_begin; col0 < col_end; col0 += NR) {
                const int panel = (col0 - col_begin) / NR;
                sycl::float16 acc[MR][NR / 16];
                #pragma GCC unroll MR
                for (int i = 0; i < MR; ++i) {
                    #pragma GCC unroll NR / 16
                    for (int j = 0; j < NR / 16; ++j) {
                        acc[i][j] = 0.0f;
                    }
                }
                const float *a_rows[MR];
                #pragma GCC unroll MR
                for (int i = 0; i < MR; ++i) {
                    a_rows[i] = &a[std::min(row0 + i, m - 1) * lda + k_block];
                }
                for (int k0 = 0; k0 < k_depth; ++k0) {
                    sycl::float16 b_frag[NR / 16];
                    #pragma GCC unroll NR / 16
                    for (int j = 0; j < NR / 16; ++j) {
                        b_frag[j] = b_block[panel][k0][j];
                    }
                    float a_frag[MR];
                    #pragma GCC unroll MR
                    for (int i = 0; i < MR; ++i) {
                        a_frag[i] = a_rows[i][k0];
                    }
                    #pragma GCC unroll MR
                    for (int i = 0; i < MR; ++i) {
                        #pragma GCC unroll NR / 16
                        for (int j = 0; j < NR / 16; ++j) {
                            acc[i][j] = sycl::fma(sycl::float16(a_frag[i]), b_frag[j], acc[i][j]);
                        }
                    }
                }

                // Vectors that would end past the last column begin earlier.
                const int col = n >= 16 ? std::min(col0, n - 16) : col0;

                // Where C is not read, columns of the tile before are stored again.
                const int first_col = beta_now == 0.0f && col_begin <= col ? col : col0;

                // C = alpha * A * B, then bias, gelu.
                if (row0 + MR <= m && col + 16 <= n && first_col <= col) {
                    #pragma GCC unroll MR
                    for (int i = 0; i < MR; ++i) {
                        sycl::float16 c_values[NR / 16];
                        #pragma GCC unroll NR / 16
                        for (int j = 0; j < NR / 16; ++j) {
                            c_values[j] = alpha * acc[i][j];
                            if (beta_now != 0.0f) {
                                sycl::float16 c_old =
                                    load16(&c[(row0 + i) * ldc + std::min(col + j * 16, n - 16)]);
                                c_values[j] =
                                    sycl::fma(sycl::float16(beta_now), c_old, c_values[j]);
                            }
                            if (k <= k_block + KC) {
                                // After K's last block: the sum is whole.
                                c_values[j] += load16(&bias[std::min(col + j * 16, n - 16)]);
                                c_values[j] = 0.5f * c_values[j] *
                                              (1.0f + sycl::erf(c_values[j] * 0.7071067811865476f));
                            }
                        }
                        #pragma GCC unroll NR / 16
                        for (int j = 0; j < NR / 16; ++j) {
                            store(c_values[j],
                                  &c[(row0 + i) * ldc + std::min(col + j * 16, n - 16)]);
                        }
                    }
                } else {
                    // At the edge of C, element by element.
                    float c_part[MR][NR];
                    #pragma GCC unroll MR
                    for (int i = 0; i < MR; ++i) {
                        #pragma GCC unroll NR / 16
                        for (int j = 0; j < NR / 16; ++j) {
                            store(acc[i][j],
                                  &c_part[i][n >= 16 ? std::min(j * 16, n - 16 - col) : j * 16]);
                        }
                    }
                    for (int i = 0; i < std::min(MR, m - row0); ++i) {
                        for (int j = first_col - col; j < std::min(NR, n - col); ++j) {
                            if (k <= k_block + KC) {
                                // After K's last block: the sum is whole.
                                const float value =
                                    beta_now == 0.0f
                                        ? alpha * c_part[i][j]
                                        : sycl::fma(beta_now, c[(row0 + i) * ldc + col + j],
                                                    alpha * c_part[i][j]);
                                const float after_bias = value + bias[col + j];
                                c[(row0 + i) * ldc + col + j] =
                                    0.5f * after_bias *
                                    (1.0f + sycl::erf(after_bias * 0.7071067811865476f));
                            } else {
                                c[(row0 + i) * ldc + col + j] =
                                    beta_now == 0.0f
                                        ? alpha * c_part[i][j]
                                        : sycl::fma(beta_now, c[(row0 + i) * ldc + col + j],
                                                    alpha * c_part[i][j]);
                            }
                        }
                    }
                }
            }
        }
    }
}

} // namespace bias_gelu_vectors_detail

namespace bias_gelu_vectors_detail {

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

} // namespace bias_gelu_vectors_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event bias_gelu_vectors(sycl::queue &queue, int m, int n, int k, float alpha,
                                     const float *a, int lda, const float *b, int ldb, float *c,
                                     int ldc, const float *bias,
                                     const std::vector<sycl::event> &depends_on = {})
{
    using namespace bias_gelu_vectors_detail;

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
        const sycl::range<2> groups((m + MR * TILES_M - 1) / (MR * TILES_M),
                                    (n + NR * TILES_N - 1) / (NR * TILES_N));
        handler.depends_on(depends_on);
        handler.parallel_for<bias_gelu_vectors_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(1, 1)]] {
                bias_gelu_vectors_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, c, ldc,
                                                    bias);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
