// tile_8x8: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per group, 8x8 per work-item, 4 along K per step
// Work-items 16x16 per group
// A          USM, loads of 4 elements
// B          USM, loads of 4 elements
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {16, 16}, global range {(m + 127) / 128 * 16, (n + 127) / 128 * 16}
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/nd_item.hpp>

#include <algorithm>

namespace tile_8x8_detail {

constexpr int BM = 128, BN = 128, BK = 4; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_M = 16, THREADS_N = 16; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
static_assert(BM == 128 && BN == 128,
              "BM and BN cannot change here: "
              "gemmgen emit --preset tile_8x8 --backend sycl --form kernel --set tile=4x8");
static_assert(BK == 4,
              "BK cannot change here: "
              "gemmgen emit --preset tile_8x8 --backend sycl --form kernel --set block_k=8");
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset tile_8x8 --backend sycl --form kernel --set group=8x16");

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
inline void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc)
{
    const int col0 = int(item.get_group(1)) * BN;
    const int row = int(item.get_group(0)) * BM + int(item.get_local_id(0)) * 4;
    const int col = col0 + int(item.get_local_id(1)) * 4;
    const int k_main = k - k % BK;

    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    if (col0 + BN <= n) {
        for (int k0 = 0; k0 < k_main; k0 += BK) {
            float a_frag[TM][4];
            float b_frag[4][TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                copy4(a_frag[i],
                      &a[std::min(row + i / 4 * THREADS_M * 4 + i % 4, m - 1) * lda + k0]);
            }
            #pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                #pragma GCC unroll TN / 4
                for (int j = 0; j < TN / 4; ++j) {
                    copy4(&b_frag[i][j * 4], &b[(k0 + i) * ldb + col + j * THREADS_N * 4]);
                }
            }
            #pragma GCC unroll 4
            for (int p = 0; p < 4; ++p) {
                #pragma GCC unroll TM
                for (int i = 0; i < TM; ++i) {
                    #pragma GCC unroll TN
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = sycl::fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    } else {
        // A block at the edge of C: every load has a bounds check.
        for (int k0 = 0; k0 < k_main; k0 += BK) {
            float a_frag[TM][4];
            float b_frag[4][TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                copy4(a_frag[i],
                      &a[std::min(row + i / 4 * THREADS_M * 4 + i % 4, m - 1) * lda + k0]);
            }
            #pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                #pragma GCC unroll TN / 4
                for (int j = 0; j < TN / 4; ++j) {
                    if (col + j * THREADS_N * 4 + 4 <= n) {
                        copy4(&b_frag[i][j * 4], &b[(k0 + i) * ldb + col + j * THREADS_N * 4]);
                    } else {
                        #pragma GCC unroll 4
                        for (int e = 0; e < 4; ++e) {
                            b_frag[i][j * 4 + e] =
                                b[(k0 + i) * ldb + std::min(col + j * THREADS_N * 4 + e, n - 1)];
                        }
                    }
                }
            }
            #pragma GCC unroll 4
            for (int p = 0; p < 4; ++p) {
                #pragma GCC unroll TM
                for (int i = 0; i < TM; ++i) {
                    #pragma GCC unroll TN
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = sycl::fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        float a_frag[TM][4];
        float b_frag[4][TN];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll 4
            for (int e = 0; e < 4; ++e) {
                a_frag[i][e] =
                    k_main + e < k
                        ? a[std::min(row + i / 4 * THREADS_M * 4 + i % 4, m - 1) * lda + k_main + e]
                        : 0.0f;
            }
        }
        #pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            #pragma GCC unroll TN / 4
            for (int j = 0; j < TN / 4; ++j) {
                if (k_main + i < k && col + j * THREADS_N * 4 + 4 <= n) {
                    copy4(&b_frag[i][j * 4], &b[(k_main + i) * ldb + col + j * THREADS_N * 4]);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        b_frag[i][j * 4 + e] = k_main + i < k
                                                   ? b[(k_main + i) * ldb +
                                                       std::min(col + j * THREADS_N * 4 + e, n - 1)]
                                                   : 0.0f;
                    }
                }
            }
        }
        #pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) {
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = sycl::fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
        if (c_row < m) {
            #pragma GCC unroll TN / 4
            for (int j = 0; j < TN / 4; ++j) {
                if (col + j * THREADS_N * 4 + 4 <= n) {
                    float c_values[4];
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        float c_old[4];
                        copy4(c_old, &c[c_row * ldc + col + j * THREADS_N * 4]);
                        #pragma GCC unroll 4
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = sycl::fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy4(&c[c_row * ldc + col + j * THREADS_N * 4], c_values);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * THREADS_N * 4 + e < n) {
                            c[c_row * ldc + col + j * THREADS_N * 4 + e] =
                                beta == 0.0f
                                    ? alpha * acc[i][j * 4 + e]
                                    : sycl::fma(beta, c[c_row * ldc + col + j * THREADS_N * 4 + e],
                                                alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

} // namespace tile_8x8_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<16, 16>)) void
tile_8x8(int m, int n, int k, float alpha, const float *__restrict a, int lda,
         const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    tile_8x8_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
