// smem_8x8_double_packed: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 8 along K per
//            iteration, 2 tiles in local memory at a time, the next tile loaded into registers
//            before the current one's arithmetic, operands read from local memory a step ahead,
//            stores of 4 elements
// A          packed into whole tiles by a kernel before; USM, loads of 4 elements, through local
//            memory, transposed, rows padded by 4
// B          packed into whole tiles by a kernel before; USM, loads of 4 elements, through local
//            memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     smem_8x8_double_packed_pack: local range {8, 32}, global range {8, (((k + 7) / 8 * 8 +
//                31) / 32 * (((m + 127) / 128 * 128 + 31) / 32) + ((k + 7) / 8 * 8 + 31) / 32 *
//                (((n + 127) / 128 * 128 + 31) / 32)) * 32}
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
    const int m_whole = (m + 127) / 128 * 128;
    const int n_whole = (n + 127) / 128 * 128;
    const int k_whole = (k + 7) / 8 * 8;
    const int a_blocks = (k_whole + 31) / 32 * ((m_whole + 31) / 32);
    const int block =
        int(item.get_group(1)) < a_blocks ? int(item.get_group(1))
                                          : int(item.get_group(1)) - a_blocks;
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));

    if (int(item.get_group(1)) < a_blocks) {
        const int a_slow = block / ((m_whole + 31) / 32) * 32;
        const int a_fast = block % ((m_whole + 31) / 32) * 32;

        // Read by lines, written by lines: turned in between.
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
                      float beta, float *__restrict c, int ldc, float (&a_shared)[2][8][132],
                      float (&b_shared)[2][8][128])
{
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));
    const int row0 = int(item.get_group(0)) * 128;
    const int col0 = int(item.get_group(1)) * 128;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int m_whole = (m + 127) / 128 * 128;
    const int n_whole = (n + 127) / 128 * 128;
    const int k_whole = (k + 7) / 8 * 8;
    const int local_index = local_row * 16 + local_col;
    const int a_packed_k = local_index / 32;
    const int a_packed_row = local_index % 32 * 4;
    const int b_packed_k = local_index / 32;
    const int b_packed_row = local_index % 32 * 4;

    float a_next[4];
    float b_next[4];
    float acc[8][8];
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        #pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    if (8 <= k_whole) {
        copy4(&a_shared[0][a_packed_k][a_packed_row],
            &a_packed[a_packed_k * m_whole + row0 + a_packed_row]);
        copy4(&b_shared[0][b_packed_k][b_packed_row],
            &b_packed[b_packed_k * n_whole + col0 + b_packed_row]);
    }
    for (int k0 = 0; k0 < k_whole; k0 += 8) {
        const int slot = k0 / 8 % 2;
        const int next_slot = (k0 / 8 + 1) % 2;
        sycl::group_barrier(item.get_group());
        if (k0 + 16 <= k_whole) {
            copy4(a_next, &a_packed[(k0 + a_packed_k + 8) * m_whole + row0 + a_packed_row]);
            copy4(b_next, &b_packed[(k0 + b_packed_k + 8) * n_whole + col0 + b_packed_row]);
        }
        float a_frag[2][8];
        float b_frag[2][8];
        #pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
            copy4(&a_frag[0][i * 4], &a_shared[slot][0][local_row * 4 + i * 64]);
        }
        #pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
            copy4(&b_frag[0][j * 4], &b_shared[slot][0][local_col * 4 + j * 64]);
        }
        #pragma GCC unroll 2
        for (int kk = 0; kk < 8; ++kk) {
            if (kk + 1 < 8) {
                #pragma GCC unroll 2
                for (int i = 0; i < 2; ++i) {
                    copy4(&a_frag[(kk + 1) % 2][i * 4],
                        &a_shared[slot][kk + 1][local_row * 4 + i * 64]);
                }
                #pragma GCC unroll 2
                for (int j = 0; j < 2; ++j) {
                    copy4(&b_frag[(kk + 1) % 2][j * 4],
                        &b_shared[slot][kk + 1][local_col * 4 + j * 64]);
                }
            }
            #pragma GCC unroll 8
            for (int i = 0; i < 8; ++i) {
                #pragma GCC unroll 8
                for (int j = 0; j < 8; ++j) {
                    acc[i][j] = sycl::fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);
                }
            }
        }
        if (k0 + 16 <= k_whole) {
            copy4(&a_shared[next_slot][a_packed_k][a_packed_row], a_next);
            copy4(&b_shared[next_slot][b_packed_k][b_packed_row], b_next);
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        const int c_row = row + i / 4 * 64 + i % 4;
        if (c_row < m) {
            #pragma GCC unroll 2
            for (int j = 0; j < 2; ++j) {
                if (col + j * 64 + 4 <= n) {
                    float c_values[4];
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        float c_old[4];
                        copy4(c_old, &c[c_row * ldc + col + j * 64]);
                        #pragma GCC unroll 4
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = sycl::fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy4(&c[c_row * ldc + col + j * 64], c_values);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 64 + e < n) {
                            c[c_row * ldc + col + j * 64 + e] =
                                beta == 0.0f ? alpha * acc[i][j * 4 + e]
                                             : sycl::fma(beta, c[c_row * ldc + col + j * 64 + e],
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
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<8, 32>))
void smem_8x8_double_packed_pack(int m, int n, int k, const float *__restrict a, int lda,
                                 const float *__restrict b, int ldb, float *__restrict a_packed,
                                 float *__restrict b_packed)
{
    syclex::work_group_static<float[32][33]> a_tile;
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    smem_8x8_double_packed_detail::pack_work_item(item, m, n, k, a, lda, b, ldb, a_packed, b_packed,
                                                  a_tile);
}

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<16, 16>))
void smem_8x8_double_packed(int m, int n, int k, float alpha, const float *__restrict a_packed,
                            const float *__restrict b_packed, float beta, float *__restrict c,
                            int ldc)
{
    syclex::work_group_static<float[2][8][132]> a_shared;
    syclex::work_group_static<float[2][8][128]> b_shared;
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    smem_8x8_double_packed_detail::work_item(item, m, n, k, alpha, a_packed, b_packed, beta, c, ldc,
                                             a_shared, b_shared);
}
