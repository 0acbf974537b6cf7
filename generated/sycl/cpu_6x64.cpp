// cpu_6x64: C = alpha * A * B + beta * C; float32
//
// Schedule   6x64 of C at a time, in vectors of 16, up to 22x2 of those per work-item, one after
//            the other, groups in multiples of 2x1
// A          USM, loads of single elements
// B          USM, loads of 16 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     local range {1, 1}, global range {(m + 263) / 264 * 2, (n + 127) / 128}
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/nd_item.hpp>
#include <sycl/vector.hpp>

#include <algorithm>

namespace cpu_6x64_detail {

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
    const int blocks_down = (m + 263) / 264 * 2;
    const int blocks_across = (n + 127) / 128;
    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;
    const int row_begin = std::min(m, int(item.get_group(0)) * rows_each);
    const int row_end = std::min(m, row_begin + rows_each);
    const int cols_each = ((n + 63) / 64 + blocks_across - 1) / blocks_across * 64;
    const int col_begin = std::min(n, int(item.get_group(1)) * cols_each);
    const int col_end = std::min(n, col_begin + cols_each);

    for (int own_col = col_begin; own_col < col_end; own_col += 64) {
        // The last tile of a line begins earlier, so that its vectors of B end inside.
        const int col0 = 64 <= n ? std::min(own_col, n - 64) : own_col;
        const int k_main = col0 + 64 <= n ? k : 0;
        for (int row0 = row_begin; row0 < row_end; row0 += 6) {
            sycl::float16 acc[6][4];
            #pragma GCC unroll 6
            for (int i = 0; i < 6; ++i) {
                #pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = 0.0f;
                }
            }
            for (int k0 = 0; k0 < k_main; ++k0) {
                sycl::float16 b_frag[4];
                #pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) {
                    b_frag[j] = load16(&b[k0 * ldb + col0 + j * 16]);
                }
                float a_frag[6];
                #pragma GCC unroll 6
                for (int i = 0; i < 6; ++i) {
                    a_frag[i] = a[std::min(row0 + i, m - 1) * lda + k0];
                }
                #pragma GCC unroll 6
                for (int i = 0; i < 6; ++i) {
                    #pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) {
                        acc[i][j] = sycl::fma(sycl::float16(a_frag[i]), b_frag[j], acc[i][j]);
                    }
                }
            }
            for (int k0 = k_main; k0 < k; ++k0) {
                sycl::float16 b_frag[4];
                for (int j = 0; j < 64; ++j) {
                    b_frag[j / 16][j % 16] = b[k0 * ldb + std::min(col0 + j, n - 1)];
                }
                float a_frag[6];
                #pragma GCC unroll 6
                for (int i = 0; i < 6; ++i) {
                    a_frag[i] = a[std::min(row0 + i, m - 1) * lda + k0];
                }
                #pragma GCC unroll 6
                for (int i = 0; i < 6; ++i) {
                    #pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) {
                        acc[i][j] = sycl::fma(sycl::float16(a_frag[i]), b_frag[j], acc[i][j]);
                    }
                }
            }

            // C = alpha * A * B + beta * C; C is not read where beta is zero.
            if (row0 + 6 <= m && col0 + 64 <= n && own_col <= col0) {
                #pragma GCC unroll 6
                for (int i = 0; i < 6; ++i) {
                    #pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) {
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
                float c_part[6][64];
                #pragma GCC unroll 6
                for (int i = 0; i < 6; ++i) {
                    #pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) {
                        store(acc[i][j], &c_part[i][j * 16]);
                    }
                }
                for (int i = 0; i < std::min(6, m - row0); ++i) {
                    for (int j = own_col - col0; j < std::min(64, n - col0); ++j) {
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
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<1, 1>))
void cpu_6x64(int m, int n, int k, float alpha, const float *__restrict a, int lda,
              const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    cpu_6x64_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
