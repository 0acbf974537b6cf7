// cpu_4x4_along_k: C = alpha * A * B + beta * C; float32
//
// Schedule   4x4 of C at a time, in vectors of 16 along K, up to 342x4 of those per work-item, one
//            after the other, each row of those before the one below it, groups in multiples of
//            2x1, 4096 along K at a time
// A          USM, loads of 16 elements
// B          USM, loads of single elements, through a copy of a block in private memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
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
    const int blocks_down = (m + 2735) / 2736 * 2;
    const int blocks_across = (n + 15) / 16;
    const int rows_each = ((m + 3) / 4 + blocks_down - 1) / blocks_down * 4;
    const int row_begin = std::min(m, int(item.get_group(0)) * rows_each);
    const int row_end = std::min(m, row_begin + rows_each);
    const int cols_each = ((n + 3) / 4 + blocks_across - 1) / blocks_across * 4;
    const int col_begin = std::min(n, int(item.get_group(1)) * cols_each);
    const int col_end = std::min(n, col_begin + cols_each);

    sycl::float16 b_block[4][4][256];
    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 4096) {
        const int k_depth = std::min(4096, k - k_block);

        // A block of B, up to 4096 deep, in the order that it is read in.
        for (int col0 = col_begin; col0 < col_end; col0 += 4) {
            const int panel = (col0 - col_begin) / 4;
            for (int j = 0; j < 4; ++j) {
                for (int k0 = 0; k0 < k_depth; ++k0) {
                    b_block[panel][j][k0 / 16][k0 % 16] =
                        b[(k_block + k0) * ldb + std::min(col0 + j, n - 1)];
                }
            }
        }

        // Sums wait in C from one block of K to the next.
        const float beta_now = k_block == 0 ? beta : 1.0f;

        // Some rows of A pass all panels of B.
        for (int row0 = row_begin; row0 < row_end; row0 += 4) {
            for (int col0 = col_begin; col0 < col_end; col0 += 4) {
                const int panel = (col0 - col_begin) / 4;
                const int k_main = k_depth - k_depth % 16;
                sycl::float16 acc[4][4];
                #pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) {
                    #pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) {
                        acc[i][j] = 0.0f;
                    }
                }
                for (int k0 = 0; k0 < k_main; k0 += 16) {
                    sycl::float16 b_frag[4];
                    #pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) {
                        b_frag[j] = b_block[panel][j][k0 / 16];
                    }
                    sycl::float16 a_frag[4];
                    #pragma GCC unroll 4
                    for (int i = 0; i < 4; ++i) {
                        a_frag[i] = load16(&a[std::min(row0 + i, m - 1) * lda + k_block + k0]);
                    }
                    #pragma GCC unroll 4
                    for (int i = 0; i < 4; ++i) {
                        #pragma GCC unroll 4
                        for (int j = 0; j < 4; ++j) {
                            acc[i][j] = sycl::fma(a_frag[i], b_frag[j], acc[i][j]);
                        }
                    }
                }

                // The elements of each vector added up; then the rest of K.
                float total[4][4];
                #pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) {
                    #pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) {
                        sycl::float8 by_8 = acc[i][j].lo() + acc[i][j].hi();
                        sycl::float4 by_4 = by_8.lo() + by_8.hi();
                        sycl::float2 by_2 = by_4.lo() + by_4.hi();
                        total[i][j] = by_2[0] + by_2[1];
                    }
                }
                for (int k0 = k_main; k0 < k_depth; ++k0) {
                    float b_rest[4];
                    #pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) {
                        b_rest[j] = b_block[panel][j][k0 / 16][k0 % 16];
                    }
                    float a_rest[4];
                    #pragma GCC unroll 4
                    for (int i = 0; i < 4; ++i) {
                        a_rest[i] = a[std::min(row0 + i, m - 1) * lda + k_block + k0];
                    }
                    #pragma GCC unroll 4
                    for (int i = 0; i < 4; ++i) {
                        #pragma GCC unroll 4
                        for (int j = 0; j < 4; ++j) {
                            total[i][j] = sycl::fma(a_rest[i], b_rest[j], total[i][j]);
                        }
                    }
                }

                // C = alpha * A * B + beta * C; C is not read where beta is zero.
                #pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) {
                    if (row0 + i < m) {
                        #pragma GCC unroll 4
                        for (int j = 0; j < 4; ++j) {
                            if (col0 + j < n) {
                                c[(row0 + i) * ldc + col0 + j] =
                                    beta_now == 0.0f ? alpha * total[i][j]
                                                     : sycl::fma(beta_now,
                                                         c[(row0 + i) * ldc + col0 + j],
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
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<1, 1>))
void cpu_4x4_along_k(int m, int n, int k, float alpha, const float *__restrict a, int lda,
                     const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    cpu_4x4_along_k_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
