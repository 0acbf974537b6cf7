// smem_8x8_double_packed: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per group, 8x8 per work-item, 8 along K per step
// Work-items 16x16 per group
// A          USM, prepacked by a kernel before, loads of 4 elements, 2 stages in local memory, rows
//            padded by 4, registers double-buffered
// B          USM, prepacked by a kernel before, loads of 4 elements, 2 stages in local memory,
//            registers double-buffered
// Pipeline   the next stage is loaded into registers before the arithmetic, and stored after it
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     smem_8x8_double_packed_pack: local range {8, 32}, global range {8, (((k + 7) / 8 * 8 +
//                31) / 32 * ((m + 127) / 128 * 4) + ((k + 7) / 8 * 8 + 31) / 32 * ((n + 127) / 128
//                * 4)) * 32}
//            smem_8x8_double_packed: local range {16, 16}, global range {(m + 127) / 128 * 16, (n +
//                127) / 128 * 16}
// Needs      16,640 bytes of local memory
//            a_packed of (k + 7) / 8 * 8 * ((m + 127) / 128 * 128) elements
//            b_packed of (k + 7) / 8 * 8 * ((n + 127) / 128 * 128) elements
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/work_group_static.hpp>
#include <sycl/group_barrier.hpp>
#include <sycl/nd_item.hpp>

namespace smem_8x8_double_packed_detail {

constexpr int BM = 128, BN = 128, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 2; // stages of the pipeline
constexpr int THREADS_M = 16, THREADS_N = 16; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
constexpr int THREADS = THREADS_M * THREADS_N; // work-items of a group
static_assert(STAGES == 2,
              "STAGES cannot change here: gemmgen emit --preset smem_8x8_double_packed --backend "
              "sycl --form kernel --set stages=4");
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: gemmgen emit --preset "
              "smem_8x8_double_packed --backend sycl --form kernel --set group=8x16");
static_assert(TM % 4 == 0 && TN % 4 == 0, "TM and TN must be multiples of 4");
static_assert(BM * BK % (THREADS * 4) == 0 && BN * BK % (THREADS * 4) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 4");
static_assert(THREADS * 4 % BM == 0, "THREADS * 4 must be a multiple of BM");
static_assert(THREADS * 4 % BN == 0, "THREADS * 4 must be a multiple of BN");
static_assert(BM % 32 == 0 && BN % 32 == 0, "BM and BN must be multiples of 32");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 4 && TN > 4,
              "TM and TN must exceed 4 here: gemmgen emit --preset smem_8x8_double_packed "
              "--backend sycl --form kernel --set tile=4x8");

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
inline void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// What each work-item does.
inline void pack_work_item(sycl::nd_item<2> item, int m, int n, int k, const float *__restrict a,
                           int lda, const float *__restrict b, int ldb, float *__restrict a_packed,
                           float *__restrict b_packed, float (&a_tile)[32][33])
{
    const int m_whole = (m + BM - 1) / BM * BM;
    const int n_whole = (n + BN - 1) / BN * BN;
    const int k_whole = (k + BK - 1) / BK * BK;
    const int a_blocks = (k_whole + 31) / 32 * ((m_whole + 31) / 32);
    const int block = int(item.get_group(1)) < a_blocks ? int(item.get_group(1))
                                                        : int(item.get_group(1)) - a_blocks;
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));

    if (int(item.get_group(1)) < a_blocks) {
        const int a_slow = block / ((m_whole + 31) / 32) * 32;
        const int a_fast = block % ((m_whole + 31) / 32) * 32;

        // Transposed through a tile, so that reads and writes are both contiguous.
        #pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            a_tile[i * 8 + local_row][local_col] =
                a_fast + i * 8 + local_row < m && a_slow + local_col < k
                    ? a[(a_fast + i * 8 + local_row) * lda + a_slow + local_col]
                    : 0.0f;
        }
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            if (a_slow + i * 8 + local_row < k_whole && a_fast + local_col < m_whole) {
                a_packed[(a_slow + i * 8 + local_row) * m_whole + a_fast + local_col] =
                    a_tile[local_col][i * 8 + local_row];
            }
        }
    } else {
        const int b_slow = block / ((n_whole + 31) / 32) * 32;
        const int b_fast = block % ((n_whole + 31) / 32) * 32;
        #pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            if (b_slow + i * 8 + local_row < k_whole && b_fast + local_col < n_whole) {
                b_packed[(b_slow + i * 8 + local_row) * n_whole + b_fast + local_col] =
                    b_slow + i * 8 + local_row < k && b_fast + local_col < n
                        ? b[(b_slow + i * 8 + local_row) * ldb + b_fast + local_col]
                        : 0.0f;
            }
        }
    }
}

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a_packed, const float *__restrict b_packed,
                      float beta, float *__restrict c, int ldc,
                      float (&a_shared)[STAGES][BK][BM + 4], float (&b_shared)[STAGES][BK][BN])
{
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));
    const int row0 = int(item.get_group(0)) * BM;
    const int col0 = int(item.get_group(1)) * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int m_whole = (m + BM - 1) / BM * BM;
    const int n_whole = (n + BN - 1) / BN * BN;
    const int k_whole = (k + BK - 1) / BK * BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_packed_k = local_index / (BM / 4);
    const int a_packed_row = local_index % (BM / 4) * 4;
    const int b_packed_k = local_index / (BN / 4);
    const int b_packed_row = local_index % (BN / 4) * 4;

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
    if (k_whole >= BK) {
        #pragma GCC unroll int(BM * BK / (THREADS * 4))
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            copy4(&a_shared[0][a_packed_k + i * (THREADS * 4 / BM)][a_packed_row],
                  &a_packed[(a_packed_k + i * (THREADS * 4 / BM)) * m_whole + row0 + a_packed_row]);
        }
        #pragma GCC unroll int(BN * BK / (THREADS * 4))
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            copy4(&b_shared[0][b_packed_k + i * (THREADS * 4 / BN)][b_packed_row],
                  &b_packed[(b_packed_k + i * (THREADS * 4 / BN)) * n_whole + col0 + b_packed_row]);
        }
    }
    sycl::group_barrier(item.get_group());
    for (int k0 = 0; k0 < k_whole; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        if (k0 + STAGES * BK <= k_whole) {
            #pragma GCC unroll int(BM * BK / (THREADS * 4))
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                copy4(a_next[i],
                      &a_packed[(k0 + a_packed_k + i * (THREADS * 4 / BM) + (STAGES - 1) * BK) *
                                    m_whole +
                                row0 + a_packed_row]);
            }
            #pragma GCC unroll int(BN * BK / (THREADS * 4))
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                copy4(b_next[i],
                      &b_packed[(k0 + b_packed_k + i * (THREADS * 4 / BN) + (STAGES - 1) * BK) *
                                    n_whole +
                                col0 + b_packed_row]);
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
        #pragma GCC unroll 2
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
        if (k0 + STAGES * BK <= k_whole) {
            #pragma GCC unroll int(BM * BK / (THREADS * 4))
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                copy4(&a_shared[load_stage][a_packed_k + i * (THREADS * 4 / BM)][a_packed_row],
                      a_next[i]);
            }
            #pragma GCC unroll int(BN * BK / (THREADS * 4))
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                copy4(&b_shared[load_stage][b_packed_k + i * (THREADS * 4 / BN)][b_packed_row],
                      b_next[i]);
            }
        }
        sycl::group_barrier(item.get_group());
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

} // namespace smem_8x8_double_packed_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<8, 32>)) void
smem_8x8_double_packed_pack(int m, int n, int k, const float *__restrict a, int lda,
                            const float *__restrict b, int ldb, float *__restrict a_packed,
                            float *__restrict b_packed)
{
    syclex::work_group_static<float[32][33]> a_tile;
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    smem_8x8_double_packed_detail::pack_work_item(item, m, n, k, a, lda, b, ldb, a_packed, b_packed,
                                                  a_tile);
}

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<16, 16>)) void
smem_8x8_double_packed(int m, int n, int k, float alpha, const float *__restrict a_packed,
                       const float *__restrict b_packed, float beta, float *__restrict c, int ldc)
{
    using namespace smem_8x8_double_packed_detail;
    syclex::work_group_static<float[STAGES][BK][BM + 4]> a_shared;
    syclex::work_group_static<float[STAGES][BK][BN]> b_shared;
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    smem_8x8_double_packed_detail::work_item(item, m, n, k, alpha, a_packed, b_packed, beta, c, ldc,
                                             a_shared, b_shared);
}
