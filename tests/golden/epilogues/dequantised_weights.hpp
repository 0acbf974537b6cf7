// dequantised_weights: C = alpha * prologue(A) * prologue(B); float32, B stored in int8
//
// Schedule   4x4 of C per work-item, 8x8 work-items per group (32x32 of C), 8 along K per iteration
// A          USM, loads of 4 elements, through local memory, transposed
// B          USM, loads of 4 elements, through local memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Prologue   A: (a - a_shift) * a_scale * a_scale_k
//            B: (b - b_shift) * b_scale
// Takes      a_scale: an element for each row of A
//            a_shift: an element for each row of A
//            a_scale_k: an element for each column of A
//            b_scale: an element for each column of B
//            b_shift: an element for each column of B
// Unread     A and B where k is 0, which serves for alpha = 0 as well
// Launch     local range {8, 8}, global range {(m + 31) / 32 * 8, (n + 31) / 32 * 8}
// Needs      2,048 bytes of local memory
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef dequantised_weights_HPP
#define dequantised_weights_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace dequantised_weights_detail {

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef float float4 __attribute__((vector_size(16), aligned(4), may_alias));
inline void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// 4 neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef signed char schar4 __attribute__((vector_size(4), aligned(1), may_alias));
inline void copy4(signed char *to, const signed char *from)
{
    *reinterpret_cast<schar4 *>(to) = *reinterpret_cast<const schar4 *>(from);
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const signed char *__restrict b, int ldb,
                      float *__restrict c, int ldc, const float *__restrict a_scale,
                      const float *__restrict a_shift, const float *__restrict a_scale_k,
                      const float *__restrict b_scale, const float *__restrict b_shift,
                      float (&a_shared)[8][32], float (&b_shared)[8][32])
{
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));
    const int row0 = int(item.get_group(0)) * 32;
    const int col0 = int(item.get_group(1)) * 32;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % 8;
    const int local_index = local_row * 8 + local_col;
    const int a_row = local_index / 2;
    const int a_k = local_index % 2 * 4;
    const int b_k = local_index / 8;
    const int b_col = local_index % 8 * 4;

    float acc[4][4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        #pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 8 along K.
    for (int k0 = 0; k0 < k_main; k0 += 8) {
        sycl::group_barrier(item.get_group());
        float a_vector[4];
        copy4(a_vector, &a[std::min(row0 + a_row, m - 1) * lda + k0 + a_k]);
        const int a_element_row = std::min(row0 + a_row, m - 1);
        #pragma GCC unroll 4
        for (int e = 0; e < 4; ++e) {
            a_shared[a_k + e][a_row] =
                (a_vector[e] - a_shift[a_element_row]) * a_scale[a_element_row] * a_scale_k[k0 + a_k
                    + e];
        }
        signed char b_vector[4];
        if (col0 + b_col + 4 <= n) {
            copy4(b_vector, &b[(k0 + b_k) * ldb + col0 + b_col]);
        } else {
            #pragma GCC unroll 4
            for (int e = 0; e < 4; ++e) {
                b_vector[e] = b[(k0 + b_k) * ldb + std::min(col0 + b_col + e, n - 1)];
            }
        }
        float b_made[4];
        #pragma GCC unroll 4
        for (int e = 0; e < 4; ++e) {
            const int b_element_col = std::min(col0 + b_col + e, n - 1);
            b_made[e] = (float(b_vector[e]) - b_shift[b_element_col]) * b_scale[b_element_col];
        }
        copy4(&b_shared[b_k][b_col], b_made);
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll 4
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[4];
            float b_frag[4];
            copy4(a_frag, &a_shared[kk][local_row * 4]);
            copy4(b_frag, &b_shared[kk][local_col * 4]);
            #pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                #pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = sycl::fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        sycl::group_barrier(item.get_group());
        float a_vector[4];
        if (k_main + a_k + 4 <= k) {
            copy4(a_vector, &a[std::min(row0 + a_row, m - 1) * lda + k_main + a_k]);
        } else {
            #pragma GCC unroll 4
            for (int e = 0; e < 4; ++e) {
                a_vector[e] =
                    k_main + a_k + e < k ? a[std::min(row0 + a_row, m - 1) * lda + k_main + a_k + e]
                                         : 0.0f;
            }
        }
        const int a_element_row = std::min(row0 + a_row, m - 1);
        #pragma GCC unroll 4
        for (int e = 0; e < 4; ++e) {
            a_shared[a_k + e][a_row] =
                k_main + a_k + e < k
                    ? (a_vector[e] - a_shift[a_element_row]) * a_scale[a_element_row] * a_scale_k[k_main
                        + a_k + e]
                    : 0.0f;
        }
        signed char b_vector[4];
        if (k_main + b_k < k && col0 + b_col + 4 <= n) {
            copy4(b_vector, &b[(k_main + b_k) * ldb + col0 + b_col]);
        } else {
            #pragma GCC unroll 4
            for (int e = 0; e < 4; ++e) {
                b_vector[e] =
                    k_main + b_k < k ? b[(k_main + b_k) * ldb + std::min(col0 + b_col + e, n - 1)]
                                     : 0;
            }
        }
        float b_made[4];
        #pragma GCC unroll 4
        for (int e = 0; e < 4; ++e) {
            const int b_element_col = std::min(col0 + b_col + e, n - 1);
            b_made[e] =
                k_main + b_k < k
                    ? (float(b_vector[e]) - b_shift[b_element_col]) * b_scale[b_element_col]
                    : 0.0f;
        }
        copy4(&b_shared[b_k][b_col], b_made);
        sycl::group_barrier(item.get_group());
        #pragma GCC unroll 4
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[4];
            float b_frag[4];
            copy4(a_frag, &a_shared[kk][local_row * 4]);
            copy4(b_frag, &b_shared[kk][local_col * 4]);
            #pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                #pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = sycl::fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * prologue(A) * prologue(B).
    #pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        if (row + i < m) {
            #pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {
                if (col + j < n) {
                    c[(row + i) * ldc + col + j] = alpha * acc[i][j];
                }
            }
        }
    }
}

} // namespace dequantised_weights_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
inline sycl::event dequantised_weights(sycl::queue &queue, int m, int n, int k, float alpha,
                                       const float *a, int lda, const signed char *b, int ldb,
                                       float *c, int ldc, const float *a_scale,
                                       const float *a_shift, const float *a_scale_k,
                                       const float *b_scale, const float *b_shift,
                                       const std::vector<sycl::event> &depends_on = {})
{
    if (m < 1 || n < 1) {
        return queue.submit([&](sycl::handler &handler) { handler.depends_on(depends_on); });
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    return queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(8, 8);
        const sycl::range<2> groups((m + 31) / 32, (n + 31) / 32);
        handler.depends_on(depends_on);
        const sycl::local_accessor<float[8][32], 0> a_shared(handler);
        const sycl::local_accessor<float[8][32], 0> b_shared(handler);
        handler.parallel_for<dequantised_weights_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(8, 8)]] {
                dequantised_weights_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, c, ldc,
                                                      a_scale, a_shift, a_scale_k, b_scale, b_shift,
                                                      a_shared, b_shared);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
