// register_8x8_4x4: C = alpha * A * B + beta * C; float32
//
// Tile       32x32 of C per group, 8x8 per work-item, 1 along K per step
// Work-items 4x4 per group
// A          USM, loads of single elements
// B          USM, loads of 8 elements
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {4, 4}, global range {(m + 31) / 32 * 4, (n + 31) / 32 * 4}
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/nd_item.hpp>

#include <algorithm>

namespace register_8x8_4x4_detail {

constexpr int BM = 32, BN = 32; // block tile of C
constexpr int THREADS_M = 4, THREADS_N = 4; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
static_assert(BM == 32 && BN == 32,
              "BM and BN cannot change here: gemmgen emit --preset register_8x8_4x4 --backend "
              "sycl --form kernel --set tile=16x8");
static_assert(THREADS_M == 4 && THREADS_N == 4,
              "THREADS_M and THREADS_N cannot change here: gemmgen emit --preset "
              "register_8x8_4x4 --backend sycl --form kernel --set group=2x4");

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
inline void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// 8 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float8 __attribute__((vector_size(32), aligned(4), may_alias));
inline void copy8(float *to, const float *from)
{
    *reinterpret_cast<float8 *>(to) = *reinterpret_cast<const float8 *>(from);
}

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc)
{
    const int col0 = int(item.get_group(1)) * BN;
    const int row = int(item.get_group(0)) * BM + int(item.get_local_id(0)) * 8;
    const int col = col0 + int(item.get_local_id(1)) * 8;

    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    if (col0 + BN <= n) {
        for (int k0 = 0; k0 < k; ++k0) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = a[std::min(row + i, m - 1) * lda + k0];
            }
            copy8(b_frag, &b[k0 * ldb + col]);
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = sycl::fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    } else {
        // A block at the edge of C: every load has a bounds check.
        for (int k0 = 0; k0 < k; ++k0) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = a[std::min(row + i, m - 1) * lda + k0];
            }
            if (col + 8 <= n) {
                copy8(b_frag, &b[k0 * ldb + col]);
            } else {
                #pragma GCC unroll 8
                for (int e = 0; e < 8; ++e) {
                    b_frag[e] = b[k0 * ldb + std::min(col + e, n - 1)];
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
                if (col + j * 4 + 4 <= n) {
                    float c_values[4];
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        float c_old[4];
                        copy4(c_old, &c[(row + i) * ldc + col + j * 4]);
                        #pragma GCC unroll 4
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = sycl::fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy4(&c[(row + i) * ldc + col + j * 4], c_values);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 4 + e < n) {
                            c[(row + i) * ldc + col + j * 4 + e] =
                                beta == 0.0f ? alpha * acc[i][j * 4 + e]
                                             : sycl::fma(beta, c[(row + i) * ldc + col + j * 4 + e],
                                                         alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

} // namespace register_8x8_4x4_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<4, 4>)) void
register_8x8_4x4(int m, int n, int k, float alpha, const float *__restrict a, int lda,
                 const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    register_8x8_4x4_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
