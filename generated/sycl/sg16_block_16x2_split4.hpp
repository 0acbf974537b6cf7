// sg16_block_16x2_split4: C = alpha * A * B + beta * C; float32
//
// Schedule   16x2 of C per work-item, 1x16 work-items per group (16x32 of C), 16 along K per
//            iteration, K in 4 parts that a second kernel adds up
// A          USM, block reads, passed around the sub-group by shuffles
// B          USM, block reads of 2 segments
// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31
// Launch     sg16_block_16x2_split4: local range {1, 16}, global range {1, (m + 15) / 16 * ((n +
//                31) / 32) * 64}
//            sg16_block_16x2_split4_total: local range {1, 256}, global range {1, m * ((n + 255) /
//                256) * 256}
// Needs      a workspace of m * n * 4 elements
//            sycl_ext_oneapi_group_load_store, sub-groups of 16
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file

#ifndef sg16_block_16x2_split4_HPP
#define sg16_block_16x2_split4_HPP

#include <sycl/sycl.hpp>

#include <algorithm>
#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

namespace sg16_block_16x2_split4_detail {

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

// One element per lane of each of 2 neighbouring segments.
inline void block_load2(sycl::sub_group sub_group, const float *from, float *to)
{
    namespace syclex = sycl::ext::oneapi::experimental;
    syclex::group_load(
        sub_group, syclex::static_address_cast<syclex::global_space>(from),
        sycl::span<float, 2>(to, 2),
        syclex::properties(
            syclex::data_placement_striped, syclex::contiguous_memory, syclex::full_group));
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const float *__restrict a, int lda, const float *__restrict b, int ldb,
                      float *__restrict workspace)
{
    const sycl::sub_group sub_group = item.get_sub_group();
    const int lane = int(sub_group.get_local_linear_id());
    const int blocks_down = (m + 15) / 16;
    const int blocks_across = (n + 31) / 32;
    const int part = int(item.get_group(1)) / (blocks_down * blocks_across);
    const int block = int(item.get_group(1)) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * 16;
    const int col0 = block_col * 32;
    const int col = col0 + lane;
    const int k_part = (k + 63) / 64 * 16;
    const int k_begin = part * k_part;
    const int k_end = std::min(k, k_begin + k_part);
    const int k_main = std::min(k - k % 16, k_end);

    float acc[16][2];
    #pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        #pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 16 along K.
    if (col0 + 32 <= n) {
        for (int k0 = k_begin; k0 < k_main; k0 += 16) {
            float b_frag[16][2];
            #pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) {
                block_load2(sub_group, &b[(k0 + i) * ldb + col0], b_frag[i]);
            }
            float a_frag[16];
            #pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) {
                a_frag[i] = block_load(sub_group, &a[std::min(row0 + i, m - 1) * lda + k0]);
            }
            #pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) {
                #pragma GCC unroll 16
                for (int p = 0; p < 16; ++p) {
                    const float a_value = sycl::group_broadcast(sub_group, a_frag[i], p);
                    #pragma GCC unroll 2
                    for (int j = 0; j < 2; ++j) {
                        acc[i][j] = sycl::fma(a_value, b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    } else {
        // At the edge of the matrix, each lane loads for itself.
        for (int k0 = k_begin; k0 < k_main; k0 += 16) {
            float b_frag[16][2];
            #pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) {
                #pragma GCC unroll 2
                for (int e = 0; e < 2; ++e) {
                    b_frag[i][e] = b[(k0 + i) * ldb + std::min(col0 + e * 16 + lane, n - 1)];
                }
            }
            float a_frag[16];
            #pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) {
                a_frag[i] = block_load(sub_group, &a[std::min(row0 + i, m - 1) * lda + k0]);
            }
            #pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) {
                #pragma GCC unroll 16
                for (int p = 0; p < 16; ++p) {
                    const float a_value = sycl::group_broadcast(sub_group, a_frag[i], p);
                    #pragma GCC unroll 2
                    for (int j = 0; j < 2; ++j) {
                        acc[i][j] = sycl::fma(a_value, b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    }
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K; what lies past it counts as zero.
        float b_frag[16][2];
        #pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            #pragma GCC unroll 2
            for (int j = 0; j < 2; ++j) {
                b_frag[i][j] =
                    k_main + i < k ? b[(k_main + i) * ldb + std::min(col + j * 16, n - 1)] : 0.0f;
            }
        }
        float a_frag[16];
        #pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            a_frag[i] =
                k_main + lane < k ? a[std::min(row0 + i, m - 1) * lda + k_main + lane] : 0.0f;
        }
        #pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            #pragma GCC unroll 16
            for (int p = 0; p < 16; ++p) {
                const float a_value = sycl::group_broadcast(sub_group, a_frag[i], p);
                #pragma GCC unroll 2
                for (int j = 0; j < 2; ++j) {
                    acc[i][j] = sycl::fma(a_value, b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // This part's share of C.
    #pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        if (row0 + i < m) {
            #pragma GCC unroll 2
            for (int j = 0; j < 2; ++j) {
                if (col + j * 16 < n) {
                    workspace[part * (m * n) + (row0 + i) * n + col + j * 16] = alpha * acc[i][j];
                }
            }
        }
    }
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class total_kernel;

// What each work-item does.
inline void total_work_item(sycl::nd_item<2> item, int m, int n, const float *__restrict workspace,
                            float beta, float *__restrict c, int ldc)
{
    const int blocks_across = (n + 255) / 256;
    const int row = int(item.get_group(1)) / blocks_across;
    const int col = int(item.get_group(1)) % blocks_across * 256 + int(item.get_local_id(1));

    if (col < n) {
        // The parts of K, one after the other.
        float total = workspace[row * n + col];
        #pragma GCC unroll 3
        for (int s = 1; s < 4; ++s) {
            const float term = workspace[s * (m * n) + row * n + col];
            total = total + term;
        }
        c[row * ldc + col] = beta == 0.0f ? total : sycl::fma(beta, c[row * ldc + col], total);
    }
}

} // namespace sg16_block_16x2_split4_detail

// Queues the kernels; matrices and the workspace are in USM that the queue's device reaches.
inline sycl::event sg16_block_16x2_split4(sycl::queue &queue, int m, int n, int k, float alpha,
                                          const float *a, int lda, const float *b, int ldb,
                                          float *workspace, float beta, float *c, int ldc,
                                          const std::vector<sycl::event> &depends_on = {})
{
    if (m < 1 || n < 1) {
        return queue.submit([&](sycl::handler &handler) { handler.depends_on(depends_on); });
    }
    const sycl::event product = queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(1, 16);
        const sycl::range<2> groups(1, (m + 15) / 16 * ((n + 31) / 32) * 4);
        handler.depends_on(depends_on);
        handler.parallel_for<sg16_block_16x2_split4_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(1, 16)]]
            [[sycl::reqd_sub_group_size(16)]] {
                sg16_block_16x2_split4_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb,
                                                         workspace);
            });
    });
    return queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(1, 256);
        const sycl::range<2> groups(1, m * ((n + 255) / 256));
        handler.depends_on(product);
        handler.parallel_for<sg16_block_16x2_split4_detail::total_kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size(1, 256)]] {
                sg16_block_16x2_split4_detail::total_work_item(item, m, n, workspace, beta, c, ldc);
            });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
