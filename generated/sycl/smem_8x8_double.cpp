// smem_8x8_double: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per group, 8x8 per work-item, 8 along K per step
// Work-items 16x16 per group
// A          USM, loads of 4 elements, 2 stages in local memory, transposed, rows padded by 4,
//            registers double-buffered
// B          USM, loads of 4 elements, 2 stages in local memory, registers double-buffered
// Pipeline   the next stage is loaded into registers before the arithmetic, and stored after it
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {16, 16}, global range {(m + 127) / 128 * 16, (n + 127) / 128 * 16}
// Needs      16,640 bytes of local memory
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/work_group_static.hpp>
#include <sycl/group_barrier.hpp>
#include <sycl/nd_item.hpp>

#include <algorithm>

namespace smem_8x8_double_detail {

constexpr int BM = 128, BN = 128, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 2; // stages of the pipeline
constexpr int THREADS_M = 16, THREADS_N = 16; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
constexpr int THREADS = THREADS_M * THREADS_N; // work-items of a group
static_assert(STAGES == 2,
              "STAGES cannot change here: "
              "gemmgen emit --preset smem_8x8_double --backend sycl --form kernel --set stages=4");
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: gemmgen emit --preset smem_8x8_double "
              "--backend sycl --form kernel --set group=8x16");
static_assert(TM % 4 == 0 && TN % 4 == 0 && BK % 4 == 0, "TM, TN and BK must be multiples of 4");
static_assert(BM * BK % (THREADS * 4) == 0 && BN * BK % (THREADS * 4) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 4");
static_assert(THREADS * 4 % BK == 0, "THREADS * 4 must be a multiple of BK");
static_assert(THREADS * 4 % BN == 0, "THREADS * 4 must be a multiple of BN");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 4 && TN > 4,
              "TM and TN must exceed 4 here: "
              "gemmgen emit --preset smem_8x8_double --backend sycl --form kernel --set tile=4x8");

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
inline void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float beta, float *__restrict c, int ldc,
                      float (&a_shared)[STAGES][BK][BM + 4], float (&b_shared)[STAGES][BK][BN])
{
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));
    const int row0 = int(item.get_group(0)) * BM;
    const int col0 = int(item.get_group(1)) * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_row = local_index / (BK / 4);
    const int a_k = local_index % (BK / 4) * 4;
    const int b_k = local_index / (BN / 4);
    const int b_col = local_index % (BN / 4) * 4;

    float a_next[BM * BK / (THREADS * 4)][4];
    float b_next[BN * BK / (THREADS * 4)][4];
    float acc[TM][TN];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    if (k_main >= BK) {
        #pragma GCC unroll int(BM * BK / (THREADS * 4))
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            float a_vector[4];
            copy4(a_vector, &a[std::min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda + a_k]);
            #pragma GCC unroll 4
            for (int e = 0; e < 4; ++e) {
                a_shared[0][a_k + e][a_row + i * (THREADS * 4 / BK)] = a_vector[e];
            }
        }
        #pragma GCC unroll int(BN * BK / (THREADS * 4))
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            if (col0 + b_col + 4 <= n) {
                copy4(&b_shared[0][b_k + i * (THREADS * 4 / BN)][b_col],
                      &b[(b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col]);
            } else {
                #pragma GCC unroll 4
                for (int e = 0; e < 4; ++e) {
                    b_shared[0][b_k + i * (THREADS * 4 / BN)][b_col + e] =
                        b[(b_k + i * (THREADS * 4 / BN)) * ldb + std::min(col0 + b_col + e, n - 1)];
                }
            }
        }
    }
    sycl::group_barrier(item.get_group());
    for (int k0 = 0; k0 < k_main; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        if (k0 + STAGES * BK <= k_main) {
            #pragma GCC unroll int(BM * BK / (THREADS * 4))
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                copy4(a_next[i], &a[std::min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda +
                                    k0 + a_k + (STAGES - 1) * BK]);
            }
            #pragma GCC unroll int(BN * BK / (THREADS * 4))
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                if (col0 + b_col + 4 <= n) {
                    copy4(b_next[i],
                          &b[(k0 + b_k + i * (THREADS * 4 / BN) + (STAGES - 1) * BK) * ldb + col0 +
                             b_col]);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        b_next[i][e] =
                            b[(k0 + b_k + i * (THREADS * 4 / BN) + (STAGES - 1) * BK) * ldb +
                              std::min(col0 + b_col + e, n - 1)];
                    }
                }
            }
        }
        float a_frag[2][TM];
        float b_frag[2][TN];
        #pragma GCC unroll TM / 4
        for (int i = 0; i < TM / 4; ++i) {
            copy4(&a_frag[0][i * 4], &a_shared[stage][0][local_row * 4 + i * THREADS_M * 4]);
        }
        #pragma GCC unroll TN / 4
        for (int j = 0; j < TN / 4; ++j) {
            copy4(&b_frag[0][j * 4], &b_shared[stage][0][local_col * 4 + j * THREADS_N * 4]);
        }
        #pragma GCC unroll BK
        for (int kk = 0; kk < BK; ++kk) {
            if (kk + 1 < BK) {
                #pragma GCC unroll TM / 4
                for (int i = 0; i < TM / 4; ++i) {
                    copy4(&a_frag[(kk + 1) % 2][i * 4],
                          &a_shared[stage][kk + 1][local_row * 4 + i * THREADS_M * 4]);
                }
                #pragma GCC unroll TN / 4
                for (int j = 0; j < TN / 4; ++j) {
                    copy4(&b_frag[(kk + 1) % 2][j * 4],
                          &b_shared[stage][kk + 1][local_col * 4 + j * THREADS_N * 4]);
                }
            }
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = sycl::fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);
                }
            }
        }
        if (k0 + STAGES * BK <= k_main) {
            #pragma GCC unroll int(BM * BK / (THREADS * 4))
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                #pragma GCC unroll 4
                for (int e = 0; e < 4; ++e) {
                    a_shared[load_stage][a_k + e][a_row + i * (THREADS * 4 / BK)] = a_next[i][e];
                }
            }
            #pragma GCC unroll int(BN * BK / (THREADS * 4))
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                copy4(&b_shared[load_stage][b_k + i * (THREADS * 4 / BN)][b_col], b_next[i]);
            }
        }
        sycl::group_barrier(item.get_group());
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll int(BM * BK / (THREADS * 4))
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            float a_vector[4];
            if (k_main + a_k + 4 <= k) {
                copy4(a_vector, &a[std::min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda +
                                   k_main + a_k]);
            } else {
                #pragma GCC unroll 4
                for (int e = 0; e < 4; ++e) {
                    a_vector[e] =
                        k_main + a_k + e < k
                            ? a[std::min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda +
                                k_main + a_k + e]
                            : 0.0f;
                }
            }
            #pragma GCC unroll 4
            for (int e = 0; e < 4; ++e) {
                a_shared[0][a_k + e][a_row + i * (THREADS * 4 / BK)] = a_vector[e];
            }
        }
        #pragma GCC unroll int(BN * BK / (THREADS * 4))
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            if (k_main + b_k + i * (THREADS * 4 / BN) < k && col0 + b_col + 4 <= n) {
                copy4(&b_shared[0][b_k + i * (THREADS * 4 / BN)][b_col],
                      &b[(k_main + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col]);
            } else {
                #pragma GCC unroll 4
                for (int e = 0; e < 4; ++e) {
                    b_shared[0][b_k + i * (THREADS * 4 / BN)][b_col + e] =
                        k_main + b_k + i * (THREADS * 4 / BN) < k
                            ? b[(k_main + b_k + i * (THREADS * 4 / BN)) * ldb +
                                std::min(col0 + b_col + e, n - 1)]
                            : 0.0f;
                }
            }
        }
        sycl::group_barrier(item.get_group());
        float a_frag[2][TM];
        float b_frag[2][TN];
        #pragma GCC unroll TM / 4
        for (int i = 0; i < TM / 4; ++i) {
            copy4(&a_frag[0][i * 4], &a_shared[0][0][local_row * 4 + i * THREADS_M * 4]);
        }
        #pragma GCC unroll TN / 4
        for (int j = 0; j < TN / 4; ++j) {
            copy4(&b_frag[0][j * 4], &b_shared[0][0][local_col * 4 + j * THREADS_N * 4]);
        }
        #pragma GCC unroll BK
        for (int kk = 0; kk < BK; ++kk) {
            if (kk + 1 < BK) {
                #pragma GCC unroll TM / 4
                for (int i = 0; i < TM / 4; ++i) {
                    copy4(&a_frag[(kk + 1) % 2][i * 4],
                          &a_shared[0][kk + 1][local_row * 4 + i * THREADS_M * 4]);
                }
                #pragma GCC unroll TN / 4
                for (int j = 0; j < TN / 4; ++j) {
                    copy4(&b_frag[(kk + 1) % 2][j * 4],
                          &b_shared[0][kk + 1][local_col * 4 + j * THREADS_N * 4]);
                }
            }
            #pragma GCC unroll TM
            for (int i = 0; i < TM; ++i) {
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = sycl::fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);
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

} // namespace smem_8x8_double_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<16, 16>)) void
smem_8x8_double(int m, int n, int k, float alpha, const float *__restrict a, int lda,
                const float *__restrict b, int ldb, float beta, float *__restrict c, int ldc)
{
    using namespace smem_8x8_double_detail;
    syclex::work_group_static<float[STAGES][BK][BM + 4]> a_shared;
    syclex::work_group_static<float[STAGES][BK][BN]> b_shared;
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    smem_8x8_double_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, a_shared,
                                      b_shared);
}
