// lds_8x8_16x16_k1: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per group, 8x8 per work-item, 1 along K per step
// Work-items 16x16 per group
// A          USM, loads of single elements, to local memory, transposed
// B          USM, loads of single elements, to local memory
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {16, 16}, global range {(m + 127) / 128 * 16, (n + 127) / 128 * 16}
// Needs      1,024 bytes of local memory
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/work_group_static.hpp>
#include <sycl/group_barrier.hpp>
#include <sycl/nd_item.hpp>

#include <algorithm>

namespace lds_8x8_16x16_k1_detail {

constexpr int BM = 128, BN = 128; // block tile of C
constexpr int THREADS_M = 16, THREADS_N = 16; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
static_assert(BM == 128 && BN == 128,
              "BM and BN cannot change here: "
              "gemmgen emit --preset lds_8x8_16x16_k1 --backend sycl --form kernel --set tile=4x8");
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: gemmgen emit --preset "
              "lds_8x8_16x16_k1 --backend sycl --form kernel --set group=8x16");

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
inline void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc, float (&a_shared)[BM],
                      float (&b_shared)[BN])
{
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));
    const int row0 = int(item.get_group(0)) * BM;
    const int col0 = int(item.get_group(1)) * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int local_index = local_row * THREADS_N + local_col;
    const int b_k = local_index / BN;
    const int b_col = local_index % BN;

    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    for (int k0 = 0; k0 < k; ++k0) {
        sycl::group_barrier(item.get_group());
        if (local_index < BM) {
            a_shared[local_index] = a[std::min(row0 + local_index, m - 1) * lda + k0];
        }
        if (local_index < BN) {
            b_shared[b_col] = b[(k0 + b_k) * ldb + std::min(col0 + b_col, n - 1)];
        }
        sycl::group_barrier(item.get_group());
        float a_frag[TM];
        float b_frag[TN];
        #pragma GCC unroll TM / 4
        for (int i = 0; i < TM / 4; ++i) {
            copy4(&a_frag[i * 4], &a_shared[local_row * 4 + i * THREADS_M * 4]);
        }
        #pragma GCC unroll TN / 4
        for (int j = 0; j < TN / 4; ++j) {
            copy4(&b_frag[j * 4], &b_shared[local_col * 4 + j * THREADS_N * 4]);
        }
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                acc[i][j] = sycl::fma(a_frag[i], b_frag[j], acc[i][j]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
        if (c_row < m) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                if (col + j / 4 * THREADS_N * 4 + j % 4 < n) {
                    c[c_row * ldc + col + j / 4 * THREADS_N * 4 + j % 4] =
                        beta == 0.0f
                            ? alpha * acc[i][j]
                            : sycl::fma(beta, c[c_row * ldc + col + j / 4 * THREADS_N * 4 + j % 4],
                                        alpha * acc[i][j]);
                }
            }
        }
    }
}

} // namespace lds_8x8_16x16_k1_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<16, 16>)) void
lds_8x8_16x16_k1(int m, int n, int k, float alpha, const float *__restrict a, int lda,
                 const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    using namespace lds_8x8_16x16_k1_detail;
    syclex::work_group_static<float[BM]> a_shared;
    syclex::work_group_static<float[BN]> b_shared;
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    lds_8x8_16x16_k1_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, a_shared,
                                       b_shared);
}
