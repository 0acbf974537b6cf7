// reduction_4x4_4x4: C = alpha * A * B + beta * C; float32
//
// Tile       16x16 of C per group, 4x4 per work-item, 32 along K per step
// Work-items 128 per group, 8 slices of each step along K (sliced-K)
// A          USM, loads of 4 elements
// B          USM, loads of 4 elements
// Multiply   fused multiply-add
// C          slices added up in local memory, atomic additions, in no fixed order
// Grid       split-K: 4 parts, added to C by atomic additions
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     reduction_4x4_4x4_start: local range {1, 256}, global range {1, m * ((n + 255) / 256)
//                * 256}
//            reduction_4x4_4x4: local range {32, 4}, global range {32, (m + 15) / 16 * ((n + 15) /
//                16) * 16}
// Needs      8,192 bytes of local memory
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/atomic_ref.hpp>
#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/work_group_static.hpp>
#include <sycl/group_barrier.hpp>
#include <sycl/nd_item.hpp>

#include <algorithm>

namespace reduction_4x4_4x4_detail {

constexpr int BM = 16, BN = 16, BK = 32; // block tile: BM x BN of C, BK along K per step
constexpr int SPLIT_K = 4; // parts of K (split-K)
constexpr int SLICES = 8; // parts of a block's K (sliced-K)
constexpr int THREADS_M = 4, THREADS_N = 4; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
constexpr int THREADS = THREADS_M * THREADS_N; // work-items of a slice
static_assert(BM == 16 && BN == 16,
              "BM and BN cannot change here: gemmgen emit --preset reduction_4x4_4x4 --backend "
              "sycl --form kernel --set tile=8x4");
static_assert(BK == 32,
              "BK cannot change here: gemmgen emit --preset reduction_4x4_4x4 --backend sycl "
              "--form kernel --set block_k=64");
static_assert(SPLIT_K == 4,
              "SPLIT_K cannot change here: gemmgen emit --preset reduction_4x4_4x4 --backend "
              "sycl --form kernel --set split_k=8");
static_assert(SLICES == 8,
              "SLICES cannot change here: gemmgen emit --preset reduction_4x4_4x4 --backend sycl "
              "--form kernel --set sliced_k=4");
static_assert(THREADS_M == 4 && THREADS_N == 4,
              "THREADS_M and THREADS_N cannot change here: gemmgen emit --preset "
              "reduction_4x4_4x4 --backend sycl --form kernel --set group=2x4");

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
inline void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// Adds an element to global memory, in one step.
inline void atomic_add(float *to, float value)
{
    sycl::atomic_ref<float, sycl::memory_order::relaxed, sycl::memory_scope::device,
                     sycl::access::address_space::global_space>(*to) += value;
}

// What each work-item does.
inline void start_work_item(sycl::nd_item<2> item, int n, float beta, float *__restrict c, int ldc)
{
    const int blocks_across = (n + 255) / 256;
    const int row = int(item.get_group(1)) / blocks_across;
    const int col = int(item.get_group(1)) % blocks_across * 256 + int(item.get_local_id(1));

    if (col < n) {
        // C = beta * C, to which the parts of K are added.
        c[row * ldc + col] = beta == 0.0f ? 0.0f : beta * c[row * ldc + col];
    }
}

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float *__restrict c, int ldc, float (&partial)[SLICES][BM][BN])
{
    const int slice = int(item.get_local_id(0)) / THREADS_M;
    const int local_row = int(item.get_local_id(0)) % THREADS_M;
    const int local_col = int(item.get_local_id(1));
    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int block = int(item.get_group(1)) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_part = (k + SPLIT_K * BK - 1) / (SPLIT_K * BK) * BK;
    const int k_begin = int(item.get_group(1)) / (blocks_down * blocks_across) * k_part;
    const int k_end = std::min(k, k_begin + k_part);
    const int k_main = std::min(k - k % BK, k_end);
    const int local_index = int(item.get_local_id(0)) * THREADS_N + int(item.get_local_id(1));

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
        for (int k0 = k_begin; k0 < k_main; k0 += BK) {
            float a_frag[TM][4];
            float b_frag[4][TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                copy4(a_frag[i], &a[std::min(row + i, m - 1) * lda + k0 + slice * (BK / SLICES)]);
            }
            #pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                copy4(b_frag[i], &b[(k0 + slice * (BK / SLICES) + i) * ldb + col]);
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
        for (int k0 = k_begin; k0 < k_main; k0 += BK) {
            float a_frag[TM][4];
            float b_frag[4][TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                copy4(a_frag[i], &a[std::min(row + i, m - 1) * lda + k0 + slice * (BK / SLICES)]);
            }
            #pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                if (col + 4 <= n) {
                    copy4(b_frag[i], &b[(k0 + slice * (BK / SLICES) + i) * ldb + col]);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        b_frag[i][e] =
                            b[(k0 + slice * (BK / SLICES) + i) * ldb + std::min(col + e, n - 1)];
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
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K; what lies past it counts as zero.
        #pragma GCC unroll BK / SLICES
        for (int kk = 0; kk < BK / SLICES; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                a_frag[i] =
                    k_main + slice * (BK / SLICES) + kk < k
                        ? a[std::min(row + i, m - 1) * lda + k_main + slice * (BK / SLICES) + kk]
                        : 0.0f;
            }
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                b_frag[j] =
                    k_main + slice * (BK / SLICES) + kk < k
                        ? b[(k_main + slice * (BK / SLICES) + kk) * ldb + std::min(col + j, n - 1)]
                        : 0.0f;
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

    // Sliced-K: every slice writes its partial sums; then they are added up.
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        float partial_values[4];
        #pragma GCC unroll 4
        for (int e = 0; e < 4; ++e) {
            partial_values[e] = alpha * acc[i][e];
        }
        copy4(&partial[slice][local_row * 4 + i][local_col * 4], partial_values);
    }
    sycl::group_barrier(item.get_group());

    const int sum_row = local_index / BN;
    const int sum_col = local_index % BN;
    const int first_col = col0 + sum_col;

    float total[BM / (SLICES * THREADS / BN)];
    #pragma GCC unroll int(BM / (SLICES * THREADS / BN))
    for (int i = 0; i < BM / (SLICES * THREADS / BN); ++i) {
        total[i] = partial[0][sum_row + i * (SLICES * THREADS / BN)][sum_col];
        #pragma GCC unroll SLICES - 1
        for (int s = 1; s < SLICES; ++s) {
            total[i] += partial[s][sum_row + i * (SLICES * THREADS / BN)][sum_col];
        }
    }

    // Split-K: add this part's partial sums to C.
    #pragma GCC unroll int(BM / (SLICES * THREADS / BN))
    for (int i = 0; i < BM / (SLICES * THREADS / BN); ++i) {
        const int c_row = row0 + sum_row + i * (SLICES * THREADS / BN);
        if (c_row < m && first_col < n) {
            atomic_add(&c[c_row * ldc + first_col], total[i]);
        }
    }
}

} // namespace reduction_4x4_4x4_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<1, 256>)) void
reduction_4x4_4x4_start(int /* m */, int n, float beta, float *__restrict c, int ldc)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    reduction_4x4_4x4_detail::start_work_item(item, n, beta, c, ldc);
}

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<32, 4>)) void
reduction_4x4_4x4(int m, int n, int k, float alpha, const float *__restrict a, int lda,
                  const float *__restrict b, int ldb, float *__restrict c, int ldc)
{
    using namespace reduction_4x4_4x4_detail;
    syclex::work_group_static<float[SLICES][BM][BN]> partial;
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    reduction_4x4_4x4_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, c, ldc, partial);
}
