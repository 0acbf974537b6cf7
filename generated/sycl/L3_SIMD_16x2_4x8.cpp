// L3_SIMD_16x2_4x8: C = alpha * A * B + beta * C; float32
//
// Tile       64x16 of C per group, 16x2 per work-item, 32 along K per step
// Work-items 4x8 per group, sub-groups of 8
// A          USM, block reads of 4 segments, passed around the sub-group by shuffles
// B          USM, block reads of 2 segments
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {4, 8}, global range {(m + 63) / 64 * 4, (n + 15) / 16 * 8}
// Needs      sycl_ext_oneapi_group_load_store, sub-groups of 8
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

namespace L3_SIMD_16x2_4x8_detail {

constexpr int BM = 64, BN = 16; // block tile of C
constexpr int THREADS_M = 4, THREADS_N = 8; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
static_assert(BM == 64 && BN == 16,
              "BM and BN cannot change here: this schedule has no other tile");
static_assert(THREADS_M == 4 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: gemmgen emit --preset "
              "L3_SIMD_16x2_4x8 --backend sycl --form kernel --set group=2x8");

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

// One element per lane of each of 2 neighbouring segments.
inline void block_load2(sycl::sub_group sub_group, const float *from, float *to)
{
    namespace syclex = sycl::ext::oneapi::experimental;
    syclex::group_load(sub_group, syclex::static_address_cast<syclex::global_space>(from),
                       sycl::span<float, 2>(to, 2),
                       syclex::properties(syclex::data_placement_striped, syclex::contiguous_memory,
                                          syclex::full_group));
}

// One element per lane of each of 4 neighbouring segments.
inline void block_load4(sycl::sub_group sub_group, const float *from, float *to)
{
    namespace syclex = sycl::ext::oneapi::experimental;
    syclex::group_load(sub_group, syclex::static_address_cast<syclex::global_space>(from),
                       sycl::span<float, 4>(to, 4),
                       syclex::properties(syclex::data_placement_striped, syclex::contiguous_memory,
                                          syclex::full_group));
}

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc)
{
    const sycl::sub_group sub_group = item.get_sub_group();
    const int lane = int(sub_group.get_local_linear_id());
    const int col0 = int(item.get_group(1)) * BN;
    const int row = int(item.get_group(0)) * BM + int(item.get_local_id(0)) * 16;
    const int col = col0 + lane;
    const int k_main = col0 + BN <= n ? k - k % 32 : 0;

    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Addresses of block reads in bytes, one (or half of one) a lane; the loop adds a step first.
    int b_at[4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        b_at[i] = ((i * 8 + lane - 32) * ldb + col0) * 4;
    }
    int a_at[TM / 8];
    #pragma GCC unroll TM / 8
    for (int i = 0; i < TM / 8; ++i) {
        a_at[i] = (std::min(row + i * 8 + lane, m - 1) * lda - 32) * 4;
    }

    // Whole steps of 32 along K; at the edge of C there are none.
    for (int k0 = 0; k0 < k_main; k0 += 32) {
        #pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            b_at[i] += ldb * 128;
        }
        #pragma GCC unroll TM / 8
        for (int i = 0; i < TM / 8; ++i) {
            a_at[i] += 128;
        }
        float b_frag[32][TN];
        #pragma GCC unroll 32
        for (int i = 0; i < 32; ++i) {
            block_load2(sub_group, at(b, sycl::group_broadcast(sub_group, b_at[i / 8], i % 8)),
                        b_frag[i]);
        }
        float a_frag[TM][4];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            block_load4(sub_group, at(a, sycl::group_broadcast(sub_group, a_at[i / 8], i % 8)),
                        a_frag[i]);
        }
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll 32
            for (int p = 0; p < 32; ++p) {
                const float a_value = sycl::group_broadcast(sub_group, a_frag[i][p / 8], p % 8);
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = sycl::fma(a_value, b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // The rest of K, at the edge of C all of it; what lies past it counts as zero.
    for (int k0 = k_main; k0 < k; k0 += 8) {
        float b_frag[8][TN];
        #pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                b_frag[i][j] = k0 + i < k
                                   ? load(b, (k0 + i) * ldb + std::min(col + j * THREADS_N, n - 1))
                                   : 0.0f;
            }
        }
        float a_frag[TM];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            a_frag[i] = k0 + lane < k ? load(a, std::min(row + i, m - 1) * lda + k0 + lane) : 0.0f;
        }
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll 8
            for (int p = 0; p < 8; ++p) {
                const float a_value = sycl::group_broadcast(sub_group, a_frag[i], p);
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = sycl::fma(a_value, b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        if (row + i < m) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    c[(row + i) * ldc + col + j * THREADS_N] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : sycl::fma(beta, c[(row + i) * ldc + col + j * THREADS_N],
                                                 alpha * acc[i][j]);
                }
            }
        }
    }
}

} // namespace L3_SIMD_16x2_4x8_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<4, 8>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::sub_group_size<8>)) void
L3_SIMD_16x2_4x8(int m, int n, int k, float alpha, const float *__restrict a, int lda,
                 const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    L3_SIMD_16x2_4x8_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
