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
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/nd_item.hpp>
#include <sycl/vector.hpp>

#include <algorithm>

namespace cpu_6x64_detail {

constexpr int MR = 6, NR = 64; // micro-tile of C: rows and columns
constexpr int TILES_M = 22, TILES_N = 2; // tiles of a work-item at most, along M and N
static_assert(MR == 6 && NR == 64,
              "MR and NR cannot change here: "
              "gemmgen emit --preset cpu_6x64 --backend sycl --form kernel --set tile=3x64");
static_assert(TILES_M == 22 && TILES_N == 2,
              "TILES_M and TILES_N cannot change here: gemmgen emit --preset cpu_6x64 --backend "
              "sycl --form kernel --set macro_kernel=11x2");

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

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<1, 1>)) void
cpu_6x64(int m, int n, int k, float alpha, const float *__restrict a, int lda,
         const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    cpu_6x64_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
