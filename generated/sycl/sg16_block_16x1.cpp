// sg16_block_16x1: C = alpha * A * B + beta * C; float32
//
// Schedule   16x1 of C per work-item, 1x16 work-items per group (16x16 of C), 16 along K per
//            iteration
// A          USM, block reads, passed around the sub-group by shuffles
// B          USM, block reads
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Launch     local range {1, 16}, global range {(m + 15) / 16, (n + 15) / 16 * 16}
// Needs      sycl_ext_oneapi_group_load_store, sub-groups of 16
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/experimental/address_cast.hpp>
#include <sycl/ext/oneapi/experimental/group_load_store.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/group_algorithm.hpp>
#include <sycl/nd_item.hpp>
#include <sycl/sub_group.hpp>

#include <algorithm>

namespace sg16_block_16x1_detail {

// One element per lane.
inline float block_load(sycl::sub_group sub_group, const float *from)
{
    namespace syclex = sycl::ext::oneapi::experimental;
    float element;
    syclex::group_load(
        sub_group, syclex::static_address_cast<syclex::global_space>(from),
        sycl::span<float, 1>(&element, 1),
        syclex::properties(
            syclex::data_placement_striped, syclex::contiguous_memory, syclex::full_group));
    return element;
}

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc)
{
    const sycl::sub_group sub_group = item.get_sub_group();
    const int lane = int(sub_group.get_local_linear_id());
    const int row0 = int(item.get_group(0)) * 16;
    const int col0 = int(item.get_group(1)) * 16;
    const int col = col0 + lane;
    const int k_main = k - k % 16;

    float acc[16];
    #pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        acc[i] = 0.0f;
    }

    // Whole steps of 16 along K.
    for (int k0 = 0; k0 < k_main; k0 += 16) {
        float a_frag[16];
        #pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            a_frag[i] = block_load(sub_group, &a[std::min(row0 + i, m - 1) * lda + k0]);
        }
        #pragma GCC unroll 16
        for (int kk = 0; kk < 16; ++kk) {
            float b_frag;
            if (col0 + 16 <= n) {
                b_frag = block_load(sub_group, &b[(k0 + kk) * ldb + col0]);
            } else {
                b_frag = b[(k0 + kk) * ldb + std::min(col0 + lane, n - 1)];
            }
            #pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) {
                const float a_value = sycl::group_broadcast(sub_group, a_frag[i], kk);
                acc[i] = sycl::fma(a_value, b_frag, acc[i]);
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        float a_frag[16];
        #pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            a_frag[i] =
                k_main + lane < k ? a[std::min(row0 + i, m - 1) * lda + k_main + lane] : 0.0f;
        }
        #pragma GCC unroll 16
        for (int kk = 0; kk < 16; ++kk) {
            float b_frag;
            if (k_main + kk < k && col0 + 16 <= n) {
                b_frag = block_load(sub_group, &b[(k_main + kk) * ldb + col0]);
            } else {
                b_frag =
                    k_main + kk < k ? b[(k_main + kk) * ldb + std::min(col0 + lane, n - 1)] : 0.0f;
            }
            #pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) {
                const float a_value = sycl::group_broadcast(sub_group, a_frag[i], kk);
                acc[i] = sycl::fma(a_value, b_frag, acc[i]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        if (row0 + i < m && col < n) {
            c[(row0 + i) * ldc + col] =
                beta == 0.0f ? alpha * acc[i]
                             : sycl::fma(beta, c[(row0 + i) * ldc + col], alpha * acc[i]);
        }
    }
}

} // namespace sg16_block_16x1_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<1, 16>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::sub_group_size<16>))
void sg16_block_16x1(int m, int n, int k, float alpha, const float *__restrict a, int lda,
                     const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    sg16_block_16x1_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
