// gemv_4x4: C = alpha * A * B + beta * C; float32; B col-major
//
// Tile       4x4 of C per group, 4x4 per work-item, 1024 along K per step
// Work-items 256 per group, 8 slices of each step along K (sliced-K), each of 32 lanes, sub-groups
//            of 32
// A          USM, loads of 4 elements
// B          USM, loads of 4 elements
// Multiply   fused multiply-add
// C          slices added up in local memory, stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {8, 32}, global range {(m + 3) / 4 * 8, (n + 3) / 4 * 32}
// Needs      512 bytes of local memory
//            sub-groups of 32
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/work_group_static.hpp>
#include <sycl/group_algorithm.hpp>
#include <sycl/group_barrier.hpp>
#include <sycl/nd_item.hpp>
#include <sycl/sub_group.hpp>

#include <algorithm>

namespace gemv_4x4_detail {

constexpr int BM = 4, BN = 4; // block tile of C
constexpr int SLICES = 8; // parts of a block's K (sliced-K)
constexpr int LANES_K = 32, LOAD_K = 4; // lanes along K, and elements of a lane's load along K
constexpr int TM = BM, TN = BN; // tile of C of a work-item
static_assert(BM == 4 && BN == 4,
              "BM and BN cannot change here: "
              "gemmgen emit --preset gemv_4x4 --backend sycl --form kernel --set tile=8x4");
static_assert(SLICES == 8,
              "SLICES cannot change here: "
              "gemmgen emit --preset gemv_4x4 --backend sycl --form kernel --set sliced_k=4");
static_assert(LANES_K == 32,
              "LANES_K cannot change here: "
              "gemmgen emit --preset gemv_4x4 --backend sycl --form kernel --set lanes_along_k=16");
static_assert(LOAD_K == 4,
              "LOAD_K cannot change here: "
              "gemmgen emit --preset gemv_4x4 --backend sycl --form kernel --set b.width=2");

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
inline void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc, float (&partial)[SLICES][BM][BN])
{
    const sycl::sub_group sub_group = item.get_sub_group();
    const int slice = int(item.get_local_id(0));
    const int lane_k = int(item.get_local_id(1));
    const int row0 = int(item.get_group(0)) * BM;
    const int col0 = int(item.get_group(1)) * BN;
    const int local_index = int(item.get_local_id(0)) * LANES_K + int(item.get_local_id(1));

    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Each lane goes along K by LOAD_K elements at a time.
    for (int k0 = (slice * LANES_K + lane_k) * LOAD_K; k0 < k - (LOAD_K - 1);
         k0 += SLICES * LANES_K * LOAD_K) {
        float a_frag[TM][LOAD_K];
        float b_frag[TN][LOAD_K];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            copy4(a_frag[i], &a[std::min(row0 + i, m - 1) * lda + k0]);
        }
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            copy4(b_frag[j], &b[std::min(col0 + j, n - 1) * ldb + k0]);
        }
        #pragma GCC unroll LOAD_K
        for (int p = 0; p < LOAD_K; ++p) {
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = sycl::fma(a_frag[i][p], b_frag[j][p], acc[i][j]);
                }
            }
        }
    }

    // What is left of K: a lane has one element of it.
    const int k_left = k - k % LOAD_K + slice * LANES_K + lane_k;

    if (k_left < k) {
        float a_frag[TM];
        float b_frag[TN];
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            a_frag[i] = a[std::min(row0 + i, m - 1) * lda + k_left];
        }
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            b_frag[j] = b[std::min(col0 + j, n - 1) * ldb + k_left];
        }
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                acc[i][j] = sycl::fma(a_frag[i], b_frag[j], acc[i][j]);
            }
        }
    }

    // Butterfly reduction: lanes exchange halves of their sums, and each ends with its own.
    const bool is_low_16 = lane_k / 16 % 2 == 0;

    #pragma GCC unroll TM / 2
    for (int i = 0; i < TM / 2; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            const float received = sycl::permute_group_by_xor(
                sub_group, is_low_16 ? acc[i + TM / 2][j] : acc[i][j], 16);
            acc[i][j] = (is_low_16 ? acc[i][j] : acc[i + TM / 2][j]) + received;
        }
    }

    const bool is_low_8 = lane_k / 8 % 2 == 0;

    #pragma GCC unroll TN
    for (int j = 0; j < TN; ++j) {
        const float received =
            sycl::permute_group_by_xor(sub_group, is_low_8 ? acc[TM / 4][j] : acc[0][j], 8);
        acc[0][j] = (is_low_8 ? acc[0][j] : acc[TM / 4][j]) + received;
    }

    const bool is_low_4 = lane_k / 4 % 2 == 0;

    #pragma GCC unroll TN / 2
    for (int j = 0; j < TN / 2; ++j) {
        const float received =
            sycl::permute_group_by_xor(sub_group, is_low_4 ? acc[0][j + TN / 2] : acc[0][j], 4);
        acc[0][j] = (is_low_4 ? acc[0][j] : acc[0][j + TN / 2]) + received;
    }

    const bool is_low_2 = lane_k / 2 % 2 == 0;
    const float received =
        sycl::permute_group_by_xor(sub_group, is_low_2 ? acc[0][TN / 4] : acc[0][0], 2);

    acc[0][0] = (is_low_2 ? acc[0][0] : acc[0][TN / 4]) + received;
    acc[0][0] += sycl::permute_group_by_xor(sub_group, acc[0][0], 1);

    // Every slice writes its partial sums; then they are added up.
    if (lane_k % 2 == 0) {
        partial[slice][lane_k / 8][lane_k / 2 % 4] = alpha * acc[0][0];
    }
    sycl::group_barrier(item.get_group());

    const int sum_row = local_index / BN;
    const int sum_col = local_index % BN;
    const int first_col = col0 + sum_col;

    if (local_index < BM * BN) {
        float total = partial[0][sum_row][sum_col];
        #pragma GCC unroll SLICES - 1
        for (int s = 1; s < SLICES; ++s) {
            total += partial[s][sum_row][sum_col];
        }

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        const int c_row = row0 + sum_row;
        if (c_row < m && first_col < n) {
            c[c_row * ldc + first_col] =
                beta == 0.0f ? total : sycl::fma(beta, c[c_row * ldc + first_col], total);
        }
    }
}

} // namespace gemv_4x4_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<8, 32>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::sub_group_size<32>)) void
gemv_4x4(int m, int n, int k, float alpha, const float *__restrict a, int lda,
         const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    using namespace gemv_4x4_detail;
    syclex::work_group_static<float[SLICES][BM][BN]> partial;
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    gemv_4x4_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, partial);
}
