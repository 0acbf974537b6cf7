// joint_matrix_32x4_8x64: C = alpha * A * B + beta * C; float16, sums and C in float32
//
// Tile       256x256 of C per group, 32x4 per work-item, 32 along K per step
// Work-items 8x64 per group, sub-groups of 16
// A          USM, joint_matrix_load_checked of 16x16
// B          USM, joint_matrix_load_checked of 16x16
// Multiply   joint_matrix_mad of 16x16x16, sums in float32
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {8, 64}, global range {(m + 255) / 256 * 8, (n + 255) / 256 * 64}
// Needs      sycl_ext_oneapi_matrix, sycl_ext_intel_matrix, sub-groups of 16
//            A and B that begin on multiples of 64 bytes
//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread
//            on Intel's GPUs, and only there, -DGEMMGEN_256_REGISTERS: the kernel then asks for 256
//                registers itself
// Build      create_kernel_bundle_from_source(context, source_language::sycl, ...), build

#include <sycl/builtins.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/matrix/matrix.hpp>
#include <sycl/group_algorithm.hpp>
#include <sycl/group_barrier.hpp>
#include <sycl/half_type.hpp>
#include <sycl/multi_ptr.hpp>
#include <sycl/nd_item.hpp>
#include <sycl/sub_group.hpp>

// 256 registers a thread, for Intel's GPUs: a property that not every compiler has.
#ifdef GEMMGEN_256_REGISTERS
#if __has_include(<sycl/ext/intel/experimental/grf_size_properties.hpp>)
#include <sycl/ext/intel/experimental/grf_size_properties.hpp>
#endif
#endif

namespace joint_matrix_32x4_8x64_detail {

constexpr int BM = 256, BN = 256, BK = 32; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_M = 8, THREADS_N = 64; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
static_assert(BM == 256 && BN == 256,
              "BM and BN cannot change here: gemmgen emit --preset joint_matrix_32x4_8x64 "
              "--backend sycl --form kernel --set tile=16x4");
static_assert(BK == 32,
              "BK cannot change here: gemmgen emit --preset joint_matrix_32x4_8x64 --backend "
              "sycl --form kernel --set block_k=64");
static_assert(THREADS_M == 8 && THREADS_N == 64,
              "THREADS_M and THREADS_N cannot change here: gemmgen emit --preset "
              "joint_matrix_32x4_8x64 --backend sycl --form kernel --set group=4x64");

namespace matrix = sycl::ext::oneapi::experimental::matrix;
namespace intel = sycl::ext::intel::experimental::matrix;

// What a sub-group holds as one; which lane has which element is the device's affair.
using FragmentA = matrix::joint_matrix<sycl::sub_group, sycl::half, matrix::use::a, 16, 16,
                                       matrix::layout::row_major>;
using FragmentB = matrix::joint_matrix<sycl::sub_group, sycl::half, matrix::use::b, 16, 16,
                                       matrix::layout::row_major>;
using FragmentC = matrix::joint_matrix<sycl::sub_group, float, matrix::use::accumulator, 16, 16>;

// Loads the fragment at (row, col) of a matrix, rows and columns as it lies in memory. What is past
// the matrix is zero.
template <typename Fragment>
inline void load_fragment(sycl::sub_group sub_group, Fragment &to, const sycl::half *from, int rows,
                          int cols, int pitch, int row, int col)
{
    using sycl::access::address_space;
    using sycl::access::decorated;
    intel::joint_matrix_load_checked(
        sub_group, to, sycl::address_space_cast<address_space::global_space, decorated::no>(from),
        pitch, rows, cols, row, col);
}

// The same element by element, at (row, col) as the fragment has rows and columns: for matrices
// that do not lie as that asks. Each waits for the one before: all loads at once would spill
// registers.
template <typename Fragment>
inline void load_elements(sycl::sub_group sub_group, Fragment &to, const sycl::half *from, int rows,
                          int cols, int row_step, int col_step, int row, int col)
{
    matrix::joint_matrix_fill(sub_group, to, sycl::half());
    sycl::group_barrier(sub_group);
    intel::joint_matrix_apply(sub_group, to, [=](sycl::half &value, int r, int q) {
        if (row + r < rows && col + q < cols) {
            value = from[(row + r) * row_step + (col + q) * col_step];
        }
    });
}

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const sycl::half *__restrict a, int lda, const sycl::half *__restrict b,
                      int ldb, float beta, float *__restrict c, int ldc)
{
    const sycl::sub_group sub_group = item.get_sub_group();
    const int row = int(item.get_group(0)) * BM + int(item.get_local_id(0)) * TM;
    const int tile_col =
        int(item.get_group(1)) * BN +
        sycl::group_broadcast(sub_group, int(item.get_local_id(1)) / 16, 0) * TN * 16;
    const int k_words = k - k % 2;

    // 2D block messages take a pitch that is a multiple of 16 bytes and at most 2^24 bytes, lines
    // of at least 64 bytes, and at most 2^24 rows.
    const int n_words = n + (2 - n % 2) % 2;
    const int k_main = lda % 8 == 0 && lda <= 8388608 && k >= 32 && m <= 16777216 && ldb % 8 == 0 &&
                               ldb <= 8388608 && n >= 32 && k <= 16777216
                           ? k_words
                           : 0;

    FragmentC acc[TM / 16][TN];
    #pragma GCC unroll TM / 16
    for (int i = 0; i < TM / 16; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            matrix::joint_matrix_fill(sub_group, acc[i][j], 0.0f);
        }
    }

    // Steps of BK along K, with zeros past the matrices' ends.
    for (int k0 = 0; k0 < k_main; k0 += BK) {
        #pragma GCC unroll BK / 16
        for (int p = 0; p < BK / 16; ++p) {
            FragmentA a_frag[TM / 16];
            #pragma GCC unroll TM / 16
            for (int i = 0; i < TM / 16; ++i) {
                load_fragment(sub_group, a_frag[i], a, m, k_words, lda, row + i * 16, k0 + p * 16);
            }
            FragmentB b_frag[TN];
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                load_fragment(sub_group, b_frag[j], b, k_words, n_words, ldb, k0 + p * 16,
                              tile_col + j * 16);
            }
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                #pragma GCC unroll TM / 16
                for (int i = 0; i < TM / 16; ++i) {
                    matrix::joint_matrix_mad(sub_group, acc[i][j], a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // The rest of K; all of K where 2D block messages cannot address A or B.
    for (int k0 = k_main; k0 < k; k0 += 16) {
        FragmentA a_frag[TM / 16];
        #pragma GCC unroll TM / 16
        for (int i = 0; i < TM / 16; ++i) {
            load_elements(sub_group, a_frag[i], a, m, k, lda, 1, row + i * 16, k0);
        }
        FragmentB b_frag[TN];
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            load_elements(sub_group, b_frag[j], b, k, n, ldb, 1, k0, tile_col + j * 16);
        }
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            #pragma GCC unroll TM / 16
            for (int i = 0; i < TM / 16; ++i) {
                matrix::joint_matrix_mad(sub_group, acc[i][j], a_frag[i], b_frag[j], acc[i][j]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma GCC unroll TM / 16
    for (int i = 0; i < TM / 16; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            intel::joint_matrix_apply(sub_group, acc[i][j], [&](float &sum, int r, int q) {
                const int c_row = row + i * 16 + r;
                const int c_col = tile_col + j * 16 + q;
                if (c_row < m && c_col < n) {
                    c[c_row * ldc + c_col] =
                        beta == 0.0f ? alpha * sum
                                     : sycl::fma(beta, c[c_row * ldc + c_col], alpha * sum);
                }
            });
        }
    }
}

} // namespace joint_matrix_32x4_8x64_detail

namespace syclex = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<2>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::work_group_size<8, 64>))
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::sub_group_size<16>))
#if defined(GEMMGEN_256_REGISTERS) && defined(SYCL_EXT_INTEL_GRF_SIZE)
SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::intel::experimental::grf_size<256>))
#endif
void joint_matrix_32x4_8x64(int m, int n, int k, float alpha, const sycl::half *__restrict a,
                            int lda, const sycl::half *__restrict b, int ldb, float beta,
                            float *__restrict c, int ldc)
{
    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();
    joint_matrix_32x4_8x64_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
