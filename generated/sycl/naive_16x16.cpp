// naive_16x16: C = alpha * A * B + beta * C; float32
//
// Tile       16x16 of C per group, 1x1 per work-item, 1 along K per step
// Work-items 16x16 per group
// A          USM, loads of single elements
// B          USM, loads of single elements
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {16, 16}, global range {(m + 15) / 16 * 16, (n + 15) / 16 * 16}
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/nd_item.hpp>

namespace naive_16x16_detail {

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc)
{
    const int row = int(item.get_global_id(0));
    const int col = int(item.get_global_id(1));

    if (row < m && col < n) {
        float acc = 0.0f;
        for (int k0 = 0; k0 < k; ++k0) {
            const float a_frag = a[row * lda + k0];
            const float b_frag = b[k0 * ldb + col];
            acc = sycl::fma(a_frag, b_frag, acc);
        }

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        c[row * ldc + col] =
            beta == 0.0f ? alpha * acc : sycl::fma(beta, c[row * ldc + col], alpha * acc);
    }
}

} // namespace naive_16x16_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<16, 16>)) void
naive_16x16(int m, int n, int k, float alpha, const float *__restrict a, int lda,
            const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    naive_16x16_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
