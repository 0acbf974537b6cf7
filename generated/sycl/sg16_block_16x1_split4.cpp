// sg16_block_16x1_split4: C = alpha * A * B + beta * C; float32
//
// Tile       16x16 of C per group, 16x1 per work-item, 32 along K per step
// Work-items 1x16 per group, sub-groups of 16
// A          USM, block reads of 2 segments, passed around the sub-group by shuffles
// B          USM, block reads
// Multiply   fused multiply-add
// C          stores of single elements, to the workspace
// Grid       split-K: 4 parts, added up by a second kernel
// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31; the workspace less than
//            2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     sg16_block_16x1_split4: local range {1, 16}, global range {1, (m + 15) / 16 * ((n +
//                15) / 16) * 64}
//            sg16_block_16x1_split4_total: local range {1, 256}, global range {1, m * ((n + 255) /
//                256) * 256}
// Needs      a workspace of m * n * 4 elements
//            sycl_ext_oneapi_group_load_store, sub-groups of 16
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

namespace sg16_block_16x1_split4_detail {

constexpr int BM = 16, BN = 16; // block tile of C
constexpr int SPLIT_K = 4; // parts of K (split-K)
constexpr int TM = BM; // rows of C of a work-item
static_assert(BM == 16 && BN == 16,
              "BM and BN cannot change here: gemmgen emit --preset sg16_block_16x1_split4 "
              "--backend sycl --form kernel --set tile=32x1");
static_assert(SPLIT_K == 4,
              "SPLIT_K cannot change here: gemmgen emit --preset sg16_block_16x1_split4 "
              "--backend sycl --form kernel --set split_k=8");

// The element that lies `bytes` bytes behind a matrix's first.
inline const float *at(const float *matrix, int bytes)
{
    return reinterpret_cast<const float *>(reinterpret_cast<const char *>(matrix) + bytes);
}

// An element of a matrix. Its place is unsigned, since compilers make the loop counters in a signed
// one 64 bits wide, and that takes registers.
inline float load(const float *matrix, unsigned place)
{
    return matrix[place];
}

// One element per lane.
inline float block_load(sycl::sub_group sub_group, const float *from)
{
    namespace syclex = sycl::ext::oneapi::experimental;
    float element;
    syclex::group_load(sub_group, syclex::static_address_cast<syclex::global_space>(from),
                       sycl::span<float, 1>(&element, 1),
                       syclex::properties(syclex::data_placement_striped, syclex::contiguous_memory,
                                          syclex::full_group));
    return element;
}

// One element per lane of each of 2 neighbouring segments.
inline void block_load2(sycl::sub_group sub_group, const float *from, float *to)
{
    namespace syclex = sycl::ext::oneapi::experimental;
    syclex::group_load(sub_group, syclex::static_address_cast<syclex::global_space>(from),
                       sycl::span<float, 2>(to, 2),
                       syclex::properties(syclex::data_placement_striped, syclex::contiguous_memory,
                                          syclex::full_group));
}

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float *__restrict workspace)
{
    const sycl::sub_group sub_group = item.get_sub_group();
    const int lane = int(sub_group.get_local_linear_id());
    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int part = int(item.get_group(1)) / (blocks_down * blocks_across);
    const int block = int(item.get_group(1)) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int col = col0 + lane;
    const int k_part = (k + 127) / 128 * 32;
    const int k_begin = part * k_part;
    const int k_end = std::min(k, k_begin + k_part);
    const int k_main = col0 + BN <= n ? std::min(k - k % 32, k_end) : k_begin;

    float acc[TM];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        acc[i] = 0.0f;
    }

    // Addresses of block reads in bytes, one (or half of one) a lane; the loop adds a step first.
    int b_at[2];
    #pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        b_at[i] = ((k_begin - 32 + i * 16 + lane) * ldb + col0) * 4;
    }
    int a_at = (std::min(row0 + lane, m - 1) * lda + k_begin - 32) * 4;

    // Whole steps of 32 along K; at the edge of C there are none.
    for (int k0 = k_begin; k0 < k_main; k0 += 32) {
        #pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
            b_at[i] += ldb * 128;
        }
        a_at += 128;
        float b_frag[32];
        #pragma GCC unroll 32
        for (int i = 0; i < 32; ++i) {
            b_frag[i] = block_load(sub_group,
                                   at(b, sycl::group_broadcast(sub_group, b_at[i / 16], i % 16)));
        }
        float a_frag[TM][2];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            block_load2(sub_group, at(a, sycl::group_broadcast(sub_group, a_at, i)), a_frag[i]);
        }
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll 32
            for (int p = 0; p < 32; ++p) {
                const float a_value = sycl::group_broadcast(sub_group, a_frag[i][p / 16], p % 16);
                acc[i] = sycl::fma(a_value, b_frag[p], acc[i]);
            }
        }
    }
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K, at the edge of C all of it; what lies past it counts as zero.
        for (int k0 = k_main; k0 < k_end; k0 += 16) {
            float b_frag[16];
            #pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) {
                b_frag[i] = k0 + i < k ? load(b, (k0 + i) * ldb + std::min(col, n - 1)) : 0.0f;
            }
            float a_frag[TM];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] =
                    k0 + lane < k ? load(a, std::min(row0 + i, m - 1) * lda + k0 + lane) : 0.0f;
            }
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll 16
                for (int p = 0; p < 16; ++p) {
                    const float a_value = sycl::group_broadcast(sub_group, a_frag[i], p);
                    acc[i] = sycl::fma(a_value, b_frag[p], acc[i]);
                }
            }
        }
    }

    // Split-K: this part's partial sums.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        if (row0 + i < m && col < n) {
            workspace[part * (m * n) + (row0 + i) * n + col] = alpha * acc[i];
        }
    }
}

// What each work-item does.
inline void total_work_item(sycl::nd_item<2> item, int m, int n, const float *__restrict workspace,
                            float beta, float *__restrict c, int ldc)
{
    const int blocks_across = (n + 255) / 256;
    const int row = int(item.get_group(1)) / blocks_across;
    const int col = int(item.get_group(1)) % blocks_across * 256 + int(item.get_local_id(1));

    if (col < n) {
        // Reduction of split-K: the partial sums in order.
        float total = workspace[row * n + col];
        #pragma GCC unroll SPLIT_K - 1
        for (int s = 1; s < SPLIT_K; ++s) {
            total += workspace[s * (m * n) + row * n + col];
        }
        c[row * ldc + col] = beta == 0.0f ? total : sycl::fma(beta, c[row * ldc + col], total);
    }
}

} // namespace sg16_block_16x1_split4_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<1, 16>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::sub_group_size<16>)) void
sg16_block_16x1_split4(int m, int n, int k, float alpha, const float *__restrict a, int lda,
                       const float *__restrict b, int ldb, float *__restrict workspace)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    sg16_block_16x1_split4_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, workspace);
}

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<1, 256>)) void
sg16_block_16x1_split4_total(int m, int n, const float *__restrict workspace, float beta,
                             float *__restrict c, int ldc)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    sg16_block_16x1_split4_detail::total_work_item(item, m, n, workspace, beta, c, ldc);
}
