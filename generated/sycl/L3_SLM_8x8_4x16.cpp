// L3_SLM_8x8_4x16: C = alpha * A * B + beta * C; float32
//
// Tile       32x128 of C per group, 8x8 per work-item, 8 along K per step
// Work-items 4x16 per group
// A          USM, loads of 4 elements, to local memory
// B          USM, loads of 4 elements
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {4, 16}, global range {(m + 31) / 32 * 4, (n + 127) / 128 * 16}
// Needs      1,024 bytes of local memory
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/work_group_static.hpp>
#include <sycl/group_barrier.hpp>
#include <sycl/nd_item.hpp>

#include <algorithm>

namespace L3_SLM_8x8_4x16_detail {

constexpr int BM = 32, BN = 128, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_M = 4, THREADS_N = 16; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
static_assert(BM == 32 && BN == 128,
              "BM and BN cannot change here: "
              "gemmgen emit --preset L3_SLM_8x8_4x16 --backend sycl --form kernel --set tile=8x4");
static_assert(BK == 8,
              "BK cannot change here: gemmgen emit --preset L3_SLM_8x8_4x16 --backend sycl "
              "--form kernel --set block_k=16");
static_assert(THREADS_M == 4 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: gemmgen emit --preset L3_SLM_8x8_4x16 "
              "--backend sycl --form kernel --set group=2x16");

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
inline void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc, float (&a_shared)[BM][BK])
{
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));
    const int row0 = int(item.get_group(0)) * BM;
    const int col0 = int(item.get_group(1)) * BN;
    const int row = row0 + local_row * 8;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_row = local_index / (BK / 4);
    const int a_k = local_index % (BK / 4) * 4;

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
            sycl::group_barrier(item.get_group());
            copy4(&a_shared[a_row][a_k], &a[std::min(row0 + a_row, m - 1) * lda + k0 + a_k]);
            sycl::group_barrier(item.get_group());
            #pragma GCC unroll 2
            for (int kk = 0; kk < BK; ++kk) {
                float a_frag[TM];
                float b_frag[TN];
                #pragma GCC unroll TM
                for (int i = 0; i < TM; ++i) {
                    a_frag[i] = a_shared[local_row * 8 + i][kk];
                }
                #pragma GCC unroll TN / 4
                for (int j = 0; j < TN / 4; ++j) {
                    copy4(&b_frag[j * 4], &b[(k0 + kk) * ldb + col + j * THREADS_N * 4]);
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
    } else {
        // A block at the edge of C: every load has a bounds check.
        for (int k0 = 0; k0 < k_main; k0 += BK) {
            sycl::group_barrier(item.get_group());
            copy4(&a_shared[a_row][a_k], &a[std::min(row0 + a_row, m - 1) * lda + k0 + a_k]);
            sycl::group_barrier(item.get_group());
            #pragma GCC unroll 2
            for (int kk = 0; kk < BK; ++kk) {
                float a_frag[TM];
                float b_frag[TN];
                #pragma GCC unroll TM
                for (int i = 0; i < TM; ++i) {
                    a_frag[i] = a_shared[local_row * 8 + i][kk];
                }
                #pragma GCC unroll TN / 4
                for (int j = 0; j < TN / 4; ++j) {
                    if (col + j * THREADS_N * 4 + 4 <= n) {
                        copy4(&b_frag[j * 4], &b[(k0 + kk) * ldb + col + j * THREADS_N * 4]);
                    } else {
                        #pragma GCC unroll 4
                        for (int e = 0; e < 4; ++e) {
                            b_frag[j * 4 + e] =
                                b[(k0 + kk) * ldb + std::min(col + j * THREADS_N * 4 + e, n - 1)];
                        }
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
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        sycl::group_barrier(item.get_group());
        if (k_main + a_k + 4 <= k) {
            copy4(&a_shared[a_row][a_k], &a[std::min(row0 + a_row, m - 1) * lda + k_main + a_k]);
        } else {
            #pragma GCC unroll 4
            for (int e = 0; e < 4; ++e) {
                a_shared[a_row][a_k + e] =
                    k_main + a_k + e < k ? a[std::min(row0 + a_row, m - 1) * lda + k_main + a_k + e]
                                         : 0.0f;
            }
        }
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll 2
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = a_shared[local_row * 8 + i][kk];
            }
            #pragma GCC unroll TN / 4
            for (int j = 0; j < TN / 4; ++j) {
                if (k_main + kk < k && col + j * THREADS_N * 4 + 4 <= n) {
                    copy4(&b_frag[j * 4], &b[(k_main + kk) * ldb + col + j * THREADS_N * 4]);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        b_frag[j * 4 + e] = k_main + kk < k
                                                ? b[(k_main + kk) * ldb +
                                                    std::min(col + j * THREADS_N * 4 + e, n - 1)]
                                                : 0.0f;
                    }
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
                if (col + j * THREADS_N * 4 + 4 <= n) {
                    float c_values[4];
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        float c_old[4];
                        copy4(c_old, &c[(row + i) * ldc + col + j * THREADS_N * 4]);
                        #pragma GCC unroll 4
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = sycl::fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy4(&c[(row + i) * ldc + col + j * THREADS_N * 4], c_values);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * THREADS_N * 4 + e < n) {
                            c[(row + i) * ldc + col + j * THREADS_N * 4 + e] =
                                beta == 0.0f
                                    ? alpha * acc[i][j * 4 + e]
                                    : sycl::fma(beta,
                                                c[(row + i) * ldc + col + j * THREADS_N * 4 + e],
                                                alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

} // namespace L3_SLM_8x8_4x16_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<4, 16>)) void
L3_SLM_8x8_4x16(int m, int n, int k, float alpha, const float *__restrict a, int lda,
                const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    using namespace L3_SLM_8x8_4x16_detail;
    syclex::work_group_static<float[BM][BK]> a_shared;
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    L3_SLM_8x8_4x16_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, a_shared);
}
