// reduction_4x4_4x4: C = alpha * A * B + beta * C; float32
//
// Schedule   4x4 of C per work-item, 4x4 work-items per group (16x16 of C), 32 along K per
//            iteration, each step in 8 slices with work-items of their own, K in 4 parts that are
//            added to C as they come
// A          USM, loads of 4 elements
// B          USM, loads of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     reduction_4x4_4x4_start: local range {1, 256}, global range {1, m * ((n + 255) / 256)
//                * 256}
//            reduction_4x4_4x4: local range {32, 4}, global range {32, (m + 15) / 16 * ((n + 15) /
//                16) * 16}
// Needs      8,192 bytes of local memory
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef reduction_4x4_4x4_HPP
#define reduction_4x4_4x4_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace reduction_4x4_4x4_detail {

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

// Names the kernel, for profilers and for host compilers other than DPC++.
class start_kernel;

// What each work-item does.
inline void start_work_item(sycl::nd_item<2> item, int n, float beta, float *__restrict c, int ldc)
{
    const int blocks_across = (n + 255) / 256;
    const int row = int(item.get_group(1)) / blocks_across;
    const int col = int(item.get_group(1)) % blocks_across * 256 + int(item.get_local_id(1));

    if (col < n) {
        // What the parts of K are added to.
        c[row * ldc + col] = beta == 0.0f ? 0.0f : beta * c[row * ldc + col];
    }
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float *__restrict c, int ldc, float (&partial)[8][16][16])
{
    const int slice = int(item.get_local_id(0)) / 4;
    const int local_row = int(item.get_local_id(0)) % 4;
    const int local_col = int(item.get_local_id(1));
    const int blocks_down = (m + 15) / 16;
    const int blocks_across = (n + 15) / 16;
    const int block = int(item.get_group(1)) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * 16;
    const int col0 = block_col * 16;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_part = (k + 127) / 128 * 32;
    const int k_begin = int(item.get_group(1)) / (blocks_down * blocks_across) * k_part;
    const int k_end = std::min(k, k_begin + k_part);
    const int k_main = std::min(k - k % 32, k_end);
    const int local_index = int(item.get_local_id(0)) * 4 + int(item.get_local_id(1));

    float acc[4][4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        #pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 32 along K.
    if (col0 + 16 <= n) {
        for (int k0 = k_begin; k0 < k_main; k0 += 32) {
            float a_frag[4][4];
            float b_frag[4][4];
            #pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                copy4(a_frag[i], &a[std::min(row + i, m - 1) * lda + k0 + slice * 4]);
            }
            #pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                copy4(b_frag[i], &b[(k0 + slice * 4 + i) * ldb + col]);
            }
            #pragma GCC unroll 4
            for (int p = 0; p < 4; ++p) {
                #pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) {
                    #pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) {
                        acc[i][j] = sycl::fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    } else {
        // At the edge of C, each load asks whether it is inside.
        for (int k0 = k_begin; k0 < k_main; k0 += 32) {
            float a_frag[4][4];
            float b_frag[4][4];
            #pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                copy4(a_frag[i], &a[std::min(row + i, m - 1) * lda + k0 + slice * 4]);
            }
            #pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                if (col + 4 <= n) {
                    copy4(b_frag[i], &b[(k0 + slice * 4 + i) * ldb + col]);
                } else {
                    #pragma GCC unroll 4
                    for (int e = 0; e < 4; ++e) {
                        b_frag[i][e] = b[(k0 + slice * 4 + i) * ldb + std::min(col + e, n - 1)];
                    }
                }
            }
            #pragma GCC unroll 4
            for (int p = 0; p < 4; ++p) {
                #pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) {
                    #pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) {
                        acc[i][j] = sycl::fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    }
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K; what lies past it counts as zero.
        float a_frag[4][4];
        float b_frag[4][4];
        #pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            if (k_main + slice * 4 + 4 <= k) {
                copy4(a_frag[i], &a[std::min(row + i, m - 1) * lda + k_main + slice * 4]);
            } else {
                #pragma GCC unroll 4
                for (int e = 0; e < 4; ++e) {
                    a_frag[i][e] =
                        k_main + slice * 4 + e < k
                            ? a[std::min(row + i, m - 1) * lda + k_main + slice * 4 + e]
                            : 0.0f;
                }
            }
        }
        #pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            if (k_main + slice * 4 + i < k && col + 4 <= n) {
                copy4(b_frag[i], &b[(k_main + slice * 4 + i) * ldb + col]);
            } else {
                #pragma GCC unroll 4
                for (int e = 0; e < 4; ++e) {
                    b_frag[i][e] =
                        k_main + slice * 4 + i < k
                            ? b[(k_main + slice * 4 + i) * ldb + std::min(col + e, n - 1)]
                            : 0.0f;
                }
            }
        }
        #pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) {
            #pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                #pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = sycl::fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // Every slice's sum is put down; then each work-item adds up a part of the block.
    #pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        float partial_values[4];
        #pragma GCC unroll 4
        for (int e = 0; e < 4; ++e) {
            partial_values[e] = alpha * acc[i][e];
        }
        copy4(&partial[slice][local_row * 4 + i][local_col * 4], partial_values);
    }
    sycl::group_barrier(item.get_group());

    const int sum_row = local_index / 16;
    const int sum_col = local_index % 16;
    const int first_col = col0 + sum_col;

    float total[2];
    #pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        total[i] = partial[0][sum_row + i * 8][sum_col];
        #pragma GCC unroll 7
        for (int s = 1; s < 8; ++s) {
            const float term = partial[s][sum_row + i * 8][sum_col];
            total[i] += term;
        }
    }

    // This part's share is added to C.
    #pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        const int c_row = row0 + sum_row + i * 8;
        if (c_row < m && first_col < n) {
            atomic_add(&c[c_row * ldc + first_col], total[i]);
        }
    }
}

} // namespace reduction_4x4_4x4_detail

// Queues the kernels; matrices are in USM that the queue's device reaches.
inline sycl::event reduction_4x4_4x4(sycl::queue &queue, int m, int n, int k, float alpha,
                                     const float *a, int lda, const float *b, int ldb, float beta,
                                     float *c, int ldc,
                                     const std::vector<sycl::event> &depends_on = {})
{
    if (m < 1 || n < 1) {
        return queue.submit([&](sycl::handler &handler) { handler.depends_on(depends_on); });
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    const sycl::event start = queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(1, 256);
        const sycl::range<2> groups(1, m * ((n + 255) / 256));
        handler.depends_on(depends_on);
        handler.parallel_for<reduction_4x4_4x4_detail::start_kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(1, 256)]] {
                reduction_4x4_4x4_detail::start_work_item(item, n, beta, c, ldc);
            });
    });
    return queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(32, 4);
        const sycl::range<2> groups(1, (m + 15) / 16 * ((n + 15) / 16) * 4);
        handler.depends_on(start);
        const sycl::local_accessor<float[8][16][16], 0> partial(handler);
        handler.parallel_for<reduction_4x4_4x4_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(32, 4)]] {
                reduction_4x4_4x4_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, c, ldc,
                                                    partial);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
