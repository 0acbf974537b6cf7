// cpu_4x4_along_k: C = alpha * A * B + beta * C; float32
//
// Tile       4x4 of C at a time, in vectors of 16
// Loops      outermost first: k_block by 4096, row0 by 4, col0 by 4, k0 by 16
// Work-items 1x1 per group
// A          USM, loads of 16 elements
// B          USM, copied in blocks of 4x4x4096 to private memory, loads of 16 elements
// Multiply   dot products along K, in vectors of 16
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {1, 1}, global range {(m + 2735) / 2736 * 2, (n + 15) / 16}
// Needs      262,144 bytes of private memory for each work-item, beside its registers
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/nd_item.hpp>
#include <sycl/vector.hpp>

#include <algorithm>

namespace cpu_4x4_along_k_detail {

constexpr int MR = 4, NR = 4; // micro-tile of C: rows and columns
constexpr int TILES_M = 342, TILES_N = 4; // tiles of a work-item at most, along M and N
constexpr int KC = 4096; // depth of a panel of B
static_assert(MR == 4 && NR == 4,
              "MR and NR cannot change here: "
              "gemmgen emit --preset cpu_4x4_along_k --backend sycl --form kernel --set tile=2x4");
static_assert(TILES_M == 342 && TILES_N == 4,
              "TILES_M and TILES_N cannot change here: gemmgen emit --preset cpu_4x4_along_k "
              "--backend sycl --form kernel --set macro_kernel=171x4");
static_assert(KC == 4096,
              "KC cannot change here: "
              "gemmgen emit --preset cpu_4x4_along_k --backend sycl --form kernel --set kc=8192");

// A vector from memory, at any alignment.
inline sycl::float16 load16(const float *from)
{
    sycl::float16 vector;
    __builtin_memcpy(static_cast<void *>(&vector), from, sizeof(vector));
    return vector;
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

    sycl::float16 b_block[TILES_N][NR][KC / 16];
    for (int k_block = 0; k_block < (k > 0 ? k : 1); k_block += KC) {
        const int k_depth = std::min(KC, k - k_block);

        // A block of B, up to KC deep, in the order that it is read in.
        for (int col0 = col_begin; col0 < col_end; col0 += NR) {
            const int panel = (col0 - col_begin) / NR;
            for (int j = 0; j < NR; ++j) {
                for (int k0 = 0; k0 < k_depth; ++k0) {
                    b_block[panel][j][k0 / 16][k0 % 16] =
                        b[(k_block + k0) * ldb + std::min(col0 + j, n - 1)];
                }
            }
        }

        // C holds the sums between blocks of K.
        const float beta_now = k_block == 0 ? beta : 1.0f;

        // Some rows of A are multiplied by all panels of B.
        for (int row0 = row_begin; row0 < row_end; row0 += MR) {
            for (int col0 = col_begin; col0 < col_end; col0 += NR) {
                const int panel = (col0 - col_begin) / NR;
                const int k_main = k_depth - k_depth % 16;
                sycl::float16 acc[MR][NR];
                #pragma GCC unroll MR
                for (int i = 0; i < MR; ++i) {
                    #pragma GCC unroll NR
                    for (int j = 0; j < NR; ++j) {
                        acc[i][j] = 0.0f;
                    }
                }
                for (int k0 = 0; k0 < k_main; k0 += 16) {
                    sycl::float16 b_frag[NR];
                    #pragma GCC unroll NR
                    for (int j = 0; j < NR; ++j) {
                        b_frag[j] = b_block[panel][j][k0 / 16];
                    }
                    sycl::float16 a_frag[MR];
                    #pragma GCC unroll MR
                    for (int i = 0; i < MR; ++i) {
                        a_frag[i] = load16(&a[std::min(row0 + i, m - 1) * lda + k_block + k0]);
                    }
                    #pragma GCC unroll MR
                    for (int i = 0; i < MR; ++i) {
                        #pragma GCC unroll NR
                        for (int j = 0; j < NR; ++j) {
                            acc[i][j] = sycl::fma(a_frag[i], b_frag[j], acc[i][j]);
                        }
                    }
                }

                // The elements of each vector added up; then the rest of K.
                float total[MR][NR];
                #pragma GCC unroll MR
                for (int i = 0; i < MR; ++i) {
                    #pragma GCC unroll NR
                    for (int j = 0; j < NR; ++j) {
                        sycl::float8 by_8 = acc[i][j].lo() + acc[i][j].hi();
                        sycl::float4 by_4 = by_8.lo() + by_8.hi();
                        sycl::float2 by_2 = by_4.lo() + by_4.hi();
                        total[i][j] = by_2[0] + by_2[1];
                    }
                }
                for (int k0 = k_main; k0 < k_depth; ++k0) {
                    float b_rest[NR];
                    #pragma GCC unroll NR
                    for (int j = 0; j < NR; ++j) {
                        b_rest[j] = b_block[panel][j][k0 / 16][k0 % 16];
                    }
                    float a_rest[MR];
                    #pragma GCC unroll MR
                    for (int i = 0; i < MR; ++i) {
                        a_rest[i] = a[std::min(row0 + i, m - 1) * lda + k_block + k0];
                    }
                    #pragma GCC unroll MR
                    for (int i = 0; i < MR; ++i) {
                        #pragma GCC unroll NR
                        for (int j = 0; j < NR; ++j) {
                            total[i][j] = sycl::fma(a_rest[i], b_rest[j], total[i][j]);
                        }
                    }
                }

                // C = alpha * A * B + beta * C; C is not read where beta is zero.
                #pragma GCC unroll MR
                for (int i = 0; i < MR; ++i) {
                    if (row0 + i < m) {
                        #pragma GCC unroll NR
                        for (int j = 0; j < NR; ++j) {
                            if (col0 + j < n) {
                                c[(row0 + i) * ldc + col0 + j] =
                                    beta_now == 0.0f
                                        ? alpha * total[i][j]
                                        : sycl::fma(beta_now, c[(row0 + i) * ldc + col0 + j],
                                                    alpha * total[i][j]);
                            }
                        }
                    }
                }
            }
        }
    }
}

} // namespace cpu_4x4_along_k_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<1, 1>)) void
cpu_4x4_along_k(int m, int n, int k, float alpha, const float *__restrict a, int lda,
                const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    cpu_4x4_along_k_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
