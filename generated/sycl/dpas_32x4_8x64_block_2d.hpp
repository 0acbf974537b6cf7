// dpas_32x4_8x64_block_2d: C = alpha * A * B + beta * C; float16, sums and C in float32
//
// Tile       256x256 of C per group, 32x4 per work-item, 128 along K per step
// Work-items 8x64 per group, sub-groups of 16
// A          USM, 2D block reads of 32x32
// B          USM, 2D block reads of 32x32
// Pipeline   a split barrier: arrive before the arithmetic of each step, wait after it
// Multiply   matrix instructions of the sub-group (dpas), sums in float32
// C          2D block writes where beta is 0, stores of single elements
// Prefetch   A, B
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local range {8, 64}, global range {(m + 255) / 256 * 8, (n + 255) / 256 * 64}
// Needs      sub-groups of 16
//            OpenCL C's functions for matrix instructions and 2D block messages, which Intel's
//                compiler has; or, without them, -DGEMMGEN_DPAS_SOFTWARE: the same in software
//            the functions of Intel's compiler for address payloads; or, without them,
//                -DGEMMGEN_NO_ADDRESS_PAYLOADS
//            A, B and C that begin on multiples of 64 bytes
//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread
// Build      icpx -fsycl -std=c++17 -O3 -fp-model=precise -ftarget-register-alloc-mode=pvc:large
//                main.cpp, which includes this file

#ifndef dpas_32x4_8x64_block_2d_HPP
#define dpas_32x4_8x64_block_2d_HPP

#include <sycl/sycl.hpp>

#include <vector>

#ifndef __clang__
// g++ can check the types here, but knows no attributes of SYCL.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wattributes"
#endif

#if !defined(__SYCL_DEVICE_ONLY__) && !defined(GEMMGEN_DPAS_SOFTWARE)
#define GEMMGEN_DPAS_SOFTWARE // the host's compiler
#endif

#ifndef GEMMGEN_DPAS_SOFTWARE
// OpenCL C's vectors.
typedef float opencl_float8 __attribute__((ext_vector_type(8)));
typedef int opencl_int2 __attribute__((ext_vector_type(2)));
typedef int opencl_int8 __attribute__((ext_vector_type(8)));
typedef short opencl_short8 __attribute__((ext_vector_type(8)));

// Of Intel's compiler: a matrix instruction.
SYCL_EXTERNAL opencl_float8 intel_sub_group_f16_f16_matrix_mad_k16(opencl_short8 a, opencl_int8 b,
                                                                   opencl_float8 acc);

// clang-format off
// Functions of Intel's compiler for 2D blocks: width and pitch are in bytes.
SYCL_EXTERNAL void intel_sub_group_2d_block_read_16b_32r16x2c(
    __attribute__((opencl_global)) void *base, int width, int height, int pitch, opencl_int2 at,
    __attribute__((opencl_private)) unsigned short *to);
SYCL_EXTERNAL void intel_sub_group_2d_block_prefetch_16b_32r16x2c(
    __attribute__((opencl_global)) void *base, int width, int height, int pitch, opencl_int2 at);
SYCL_EXTERNAL void intel_sub_group_2d_block_read_transform_16b_32r16x2c(
    __attribute__((opencl_global)) void *base, int width, int height, int pitch, opencl_int2 at,
    __attribute__((opencl_private)) unsigned *to);
SYCL_EXTERNAL void intel_sub_group_2d_block_write_32b_8r16x1c(
    __attribute__((opencl_global)) void *base, int width, int height, int pitch, opencl_int2 at,
    __attribute__((opencl_private)) unsigned *from);
#ifndef GEMMGEN_NO_ADDRESS_PAYLOADS
// An address payload: a matrix, its size, and where a block of it begins, in a register as a
// message takes it. It is created from the base, width in bytes less 1, height less 1, pitch in
// bytes less 1, x, y, the block's width and height, and the number of blocks.
extern "C" SYCL_EXTERNAL __attribute__((opencl_private)) int
*__builtin_IB_subgroup_createBlock2DAddressPayload(long long, int, int, int, int, int, int, int,
                                                   int);
extern "C" SYCL_EXTERNAL void
__builtin_IB_subgroup_addBlock2DAddressPayloadBlockX(__attribute__((opencl_private)) int *payload,
                                                     int by);
extern "C" SYCL_EXTERNAL void
__builtin_IB_subgroup_addBlock2DAddressPayloadBlockY(__attribute__((opencl_private)) int *payload,
                                                     int by);
extern "C" SYCL_EXTERNAL void __builtin_IB_subgroup_block_read_ap_prefetch_u16_m32k16v2(
    __attribute__((opencl_private)) int *payload, int x, int y, int cached);
#endif
// clang-format on

// The halves of a barrier, without a fence.
extern "C" SYCL_EXTERNAL void __builtin_IB_thread_group_barrier_signal();
extern "C" SYCL_EXTERNAL void __builtin_IB_thread_group_barrier_wait();
#endif

namespace dpas_32x4_8x64_block_2d_detail {

constexpr int BM = 256, BN = 256, BK = 128; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_M = 8, THREADS_N = 64; // work-items along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a work-item
static_assert(BM == 256 && BN == 256,
              "BM and BN cannot change here: "
              "gemmgen emit --preset dpas_32x4_8x64_block_2d --backend sycl --set tile=16x4");
static_assert(BK == 128,
              "BK cannot change here: "
              "gemmgen emit --preset dpas_32x4_8x64_block_2d --backend sycl --set block_k=256");
static_assert(THREADS_M == 8 && THREADS_N == 64,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset dpas_32x4_8x64_block_2d --backend sycl --set group=4x64");

// A column and a row.
struct int2 {
    int x, y;
};

// acc [8][16] += a [8][16] * b [16][16], by the sub-group as one. Of each row of A a lane holds
// an element; of B it holds a column.
#ifdef GEMMGEN_DPAS_SOFTWARE
// Inlined, it would take compilers minutes.
__attribute__((noinline)) inline void multiply(float *acc, const sycl::half *a, const sycl::half *b)
{
    const sycl::sub_group sub_group = sycl::ext::oneapi::this_work_item::get_sub_group();
    for (int i = 0; i < 8; ++i) {
        for (int k = 0; k < 16; ++k) {
            const float row = float(a[i]);
            acc[i] += sycl::select_from_group(sub_group, row, k) * float(b[k]);
        }
    }
}
#else
inline void multiply(float *acc, const sycl::half *a, const sycl::half *b)
{
    opencl_short8 rows;
    opencl_int8 columns;
    opencl_float8 sums;
    __builtin_memcpy(&rows, a, sizeof(rows));
    __builtin_memcpy(&columns, b, sizeof(columns));
    __builtin_memcpy(&sums, acc, sizeof(sums));
    sums = intel_sub_group_f16_f16_matrix_mad_k16(rows, columns, sums);
    __builtin_memcpy(acc, &sums, sizeof(sums));
}
#endif

#ifdef GEMMGEN_DPAS_SOFTWARE
// Inlined, these would take compilers minutes.
#define OF_EACH_LANE __attribute__((noinline))
#else
#define OF_EACH_LANE
#endif

#if defined(GEMMGEN_DPAS_SOFTWARE) || defined(GEMMGEN_NO_ADDRESS_PAYLOADS)
// A matrix, its size, and where a block of it begins.
struct block_place {
    const void *from;
    int rows, cols, pitch;
    int2 at;
};
#else
// The same in a register: an address payload.
typedef __attribute__((opencl_private)) int *block_place;
#endif

inline void move_cols(block_place *place, int by)
{
#if defined(GEMMGEN_DPAS_SOFTWARE) || defined(GEMMGEN_NO_ADDRESS_PAYLOADS)
    place->at.x += by;
#else
    __builtin_IB_subgroup_addBlock2DAddressPayloadBlockX(*place, by);
#endif
}

inline void move_rows(block_place *place, int by)
{
#if defined(GEMMGEN_DPAS_SOFTWARE) || defined(GEMMGEN_NO_ADDRESS_PAYLOADS)
    place->at.y += by;
#else
    __builtin_IB_subgroup_addBlock2DAddressPayloadBlockY(*place, by);
#endif
}

// 32 rows of 32 columns: each lane loads its own elements. Those past the matrix are zero. A load
// waits for the one before: all at once would spill registers.
inline OF_EACH_LANE void load_32x32(sycl::half *to, const sycl::half *from, int rows, int cols,
                                    int pitch, int2 at)
{
    const int lane = int(sycl::ext::oneapi::this_work_item::get_sub_group().get_local_linear_id());
    #pragma GCC unroll 64
    for (int e = 0; e < 64; ++e) {
        sycl::group_barrier(sycl::ext::oneapi::this_work_item::get_sub_group());
        const int row = at.y + e % 32;
        const int col = at.x + lane + e / 32 * 16;
        to[e] = row < rows && col < cols ? from[row * pitch + col] : sycl::half();
    }
}

// The same by one message of the sub-group, whose width is in whole words.
inline void read_32x32(sycl::half *to, const sycl::half *from, int rows, int cols, int pitch,
                       int2 at)
{
#ifdef GEMMGEN_DPAS_SOFTWARE
    load_32x32(to, from, rows, cols, pitch, at);
#else
    intel_sub_group_2d_block_read_16b_32r16x2c(
        (__attribute__((opencl_global)) void *)from, (cols + cols % 2) * 2, rows, pitch * 2,
        opencl_int2{at.x, at.y}, (__attribute__((opencl_private)) unsigned short *)to);
#endif
}

// Where a block of 32 rows of 32 columns begins.
inline block_place place_32x32(const sycl::half *from, int rows, int cols, int pitch, int2 at)
{
#if defined(GEMMGEN_DPAS_SOFTWARE) || defined(GEMMGEN_NO_ADDRESS_PAYLOADS)
    const block_place place = {from, rows, cols, pitch, at};
    return place;
#else
    return __builtin_IB_subgroup_createBlock2DAddressPayload(
        (long long)from, (cols + cols % 2) * 2 - 1, rows - 1, pitch * 2 - 1, at.x, at.y, 16, 32, 2);
#endif
}

// Prefetches such a block into the caches.
inline void prefetch_32x32_at(const block_place *place)
{
#if defined(GEMMGEN_DPAS_SOFTWARE)
    (void)place;
#elif defined(GEMMGEN_NO_ADDRESS_PAYLOADS)
    intel_sub_group_2d_block_prefetch_16b_32r16x2c(
        (__attribute__((opencl_global)) void *)place->from, (place->cols + place->cols % 2) * 2,
        place->rows, place->pitch * 2, opencl_int2{place->at.x, place->at.y});
#else
    __builtin_IB_subgroup_block_read_ap_prefetch_u16_m32k16v2(*place, 0, 0, 0);
#endif
}

// 32 rows of 32 columns, neighbours of a column in a word: each lane loads its own elements. Those
// past the matrix are zero. A load waits for the one before: all at once would spill registers.
inline OF_EACH_LANE void load_vnni_32x32(sycl::half *to, const sycl::half *from, int rows, int cols,
                                         int pitch, int2 at)
{
    const int lane = int(sycl::ext::oneapi::this_work_item::get_sub_group().get_local_linear_id());
    #pragma GCC unroll 32
    for (int w = 0; w < 32; ++w) {
        sycl::group_barrier(sycl::ext::oneapi::this_work_item::get_sub_group());
        unsigned word = 0;
        #pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
            const int e = w * 2 + i;
            const int row = at.y + e % 32;
            const int col = at.x + lane + e / 32 * 16;
            if (row < rows && col < cols) {
                word |= unsigned(sycl::bit_cast<unsigned short>(from[row * pitch + col])) << i * 16;
            }
        }
        __builtin_memcpy(static_cast<void *>(to + w * 2), &word, sizeof(word));
    }
}

// The same by one message of the sub-group, whose width is in whole words.
inline void read_vnni_32x32(sycl::half *to, const sycl::half *from, int rows, int cols, int pitch,
                            int2 at)
{
#ifdef GEMMGEN_DPAS_SOFTWARE
    load_vnni_32x32(to, from, rows, cols, pitch, at);
#else
    intel_sub_group_2d_block_read_transform_16b_32r16x2c(
        (__attribute__((opencl_global)) void *)from, (cols + cols % 2) * 2, rows, pitch * 2,
        opencl_int2{at.x, at.y}, (__attribute__((opencl_private)) unsigned *)to);
#endif
}

// Stores 8 rows of 16 columns by one message of the sub-group: what is inside of the matrix.
inline void write_8x16(float *to, int rows, int cols, int pitch, int2 at, float *from)
{
#ifdef GEMMGEN_DPAS_SOFTWARE
    const int col =
        at.x + int(sycl::ext::oneapi::this_work_item::get_sub_group().get_local_linear_id());
    for (int e = 0; e < 8; ++e) {
        if (at.y + e < rows && col < cols) {
            to[(at.y + e) * pitch + col] = from[e];
        }
    }
#else
    // A copy, as the sums would be in memory if a function got their address.
    unsigned words[8];
    __builtin_memcpy(words, from, sizeof(words));
    intel_sub_group_2d_block_write_32b_8r16x1c((__attribute__((opencl_global)) void *)to, cols * 4,
                                               rows, pitch * 4, opencl_int2{at.x, at.y},
                                               (__attribute__((opencl_private)) unsigned *)words);
#endif
}

#undef OF_EACH_LANE

// A barrier in two parts that orders no memory. In software the second is all of it.
inline void barrier_arrive()
{
#ifndef GEMMGEN_DPAS_SOFTWARE
    __builtin_IB_thread_group_barrier_signal();
#endif
}

inline void barrier_wait()
{
#ifdef GEMMGEN_DPAS_SOFTWARE
    sycl::group_barrier(sycl::ext::oneapi::this_work_item::get_work_group<2>());
#else
    __builtin_IB_thread_group_barrier_wait();
#endif
}

// Names the kernel, for profilers and for host compilers other than DPC++.
class kernel;

// What each work-item does.
inline void work_item(sycl::nd_item<2> item, int m, int n, int k, float alpha,
                      const sycl::half *__restrict a, int lda, const sycl::half *__restrict b,
                      int ldb, float beta, float *__restrict c, int ldc)
{
    const sycl::sub_group sub_group = item.get_sub_group();
    const int local_row = int(item.get_local_id(0));
    const int local_col = int(item.get_local_id(1));
    const int col0 = int(item.get_group(1)) * BN;
    const int row = int(item.get_group(0)) * BM + local_row * TM;
    const int col = col0 + local_col / 16 * TN * 16 + local_col % 16;
    const int sub_group_col = sycl::group_broadcast(sub_group, local_col / 16, 0);
    const int tile_col = col0 + sub_group_col * TN * 16;
    const int sub_group_row = sycl::group_broadcast(sub_group, local_row, 0);
    const int k_words = k - k % 2;

    // 2D block messages take a pitch that is a multiple of 16 bytes and at most 2^24 bytes, lines
    // of at least 64 bytes, and at most 2^24 rows.
    const int k_main = lda % 8 == 0 && lda <= 8388608 && k >= 32 && m <= 16777216 && ldb % 8 == 0 &&
                               ldb <= 8388608 && n >= 32 && k <= 16777216
                           ? k_words
                           : 0;

    float acc[TN][TM];
    #pragma GCC unroll TM
    for (int i = 0; i < TM; ++i) {
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            acc[j][i] = 0.0f;
        }
    }

    // Address payloads: each is filled once and advanced along K.
    block_place a_ahead;
    a_ahead = place_32x32(a, m, k_words, lda, {sub_group_col * 32 - BK, row});
    block_place b_ahead;
    b_ahead =
        place_32x32(b, k_words, n, ldb,
                    {tile_col + sub_group_row % (TN / 2) * 32, sub_group_row / (TN / 2) * 32 - BK});
    if (k_main > 0) {
        move_cols(&a_ahead, BK);
        move_rows(&b_ahead, BK);
        prefetch_32x32_at(&a_ahead);
        prefetch_32x32_at(&b_ahead);
    }

    // Steps of BK along K by 2D block reads, with zeros past the matrices' ends.
    for (int k0 = 0; k0 < k_main; k0 += BK) {
        move_cols(&a_ahead, BK);
        move_rows(&b_ahead, BK);
        barrier_arrive();
        #pragma GCC unroll BK / 32
        for (int p = 0; p < BK / 32; ++p) {
            if (p % 4 == 0) {
                prefetch_32x32_at(&a_ahead);
            }
            sycl::half a_frag[2][TM] __attribute__((aligned(4)));
            read_32x32(a_frag[0], a, m, k_words, lda, {k0 + p * 32, row});
            sycl::half b_frag[TN][32] __attribute__((aligned(4)));
            #pragma GCC unroll TN / 2
            for (int j = 0; j < TN / 2; ++j) {
                read_vnni_32x32(b_frag[j * 2], b, k_words, n, ldb,
                                {tile_col + j * 32, k0 + p * 32});
            }
            #pragma GCC unroll 2
            for (int q = 0; q < 2; ++q) {
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    #pragma GCC unroll TM / 8
                    for (int i = 0; i < TM / 8; ++i) {
                        multiply(&acc[j][i * 8], &a_frag[q][i * 8], &b_frag[j][q * 16]);
                    }
                }
            }
            sycl::group_barrier(sub_group);
            if (p % 4 == 1) {
                prefetch_32x32_at(&b_ahead);
            }
        }
        barrier_wait();
    }

    // The rest of K; all of K where 2D block messages cannot address A or B.
    for (int k0 = k_main; k0 < k; k0 += 32) {
        sycl::half a_frag[2][TM] __attribute__((aligned(4)));
        load_32x32(a_frag[0], a, m, k, lda, {k0, row});
        sycl::half b_frag[TN][32] __attribute__((aligned(4)));
        #pragma GCC unroll TN / 2
        for (int j = 0; j < TN / 2; ++j) {
            load_vnni_32x32(b_frag[j * 2], b, k, n, ldb, {tile_col + j * 32, k0});
        }
        #pragma GCC unroll 2
        for (int q = 0; q < 2; ++q) {
            #pragma GCC unroll TN
            for (int j = 0; j < TN; ++j) {
                #pragma GCC unroll TM / 8
                for (int i = 0; i < TM / 8; ++i) {
                    multiply(&acc[j][i * 8], &a_frag[q][i * 8], &b_frag[j][q * 16]);
                }
            }
        }
    }
    if (beta == 0.0f && ldc % 4 == 0 && ldc <= 4194304 && n >= 16 && m <= 16777216) {
        // C = alpha * A * B by 2D block writes, which leave out what is past the matrix.
        #pragma GCC unroll TN
        for (int j = 0; j < TN; ++j) {
            #pragma GCC unroll TM / 8
            for (int i = 0; i < TM / 8; ++i) {
                #pragma GCC unroll 8
                for (int r = 0; r < 8; ++r) {
                    acc[j][i * 8 + r] = alpha * acc[j][i * 8 + r];
                }
                write_8x16(c, m, n, ldc, {tile_col + j * 16, row + i * 8}, &acc[j][i * 8]);
            }
        }
    } else {
        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        #pragma GCC unroll TM
        for (int i = 0; i < TM; ++i) {
            if (row + i < m) {
                #pragma GCC unroll TN
                for (int j = 0; j < TN; ++j) {
                    if (col + j * 16 < n) {
                        c[(row + i) * ldc + col + j * 16] =
                            beta == 0.0f ? alpha * acc[j][i]
                                         : sycl::fma(beta, c[(row + i) * ldc + col + j * 16],
                                                     alpha * acc[j][i]);
                    }
                }
            }
        }
    }
}

} // namespace dpas_32x4_8x64_block_2d_detail

namespace dpas_32x4_8x64_block_2d_detail {

// Loops step past the end of a size: from here on, 32 bits might not hold where they stop.
constexpr long long TOO_MANY = (1LL << 31) - 1024;

// Whether lines do not overlap, at `pitch` elements from one to the next, and 32-bit indices reach
// the whole matrix.
inline bool is_in_reach(long long lines, long long length, long long pitch)
{
    if (lines < 1 || length < 1) {
        return true;
    }
    return lines < TOO_MANY && length < TOO_MANY && (lines == 1 || pitch >= length) &&
           (lines - 1) * pitch + length < 1LL << 31;
}

} // namespace dpas_32x4_8x64_block_2d_detail

// Queues the kernel; matrices are in USM that the queue's device reaches.
// It throws sycl::exception, and queues nothing, if sizes or leading dimensions break the
// requirements above.
inline sycl::event dpas_32x4_8x64_block_2d(sycl::queue &queue, int m, int n, int k, float alpha,
                                           const sycl::half *a, int lda, const sycl::half *b,
                                           int ldb, float beta, float *c, int ldc,
                                           const std::vector<sycl::event> &depends_on = {})
{
    using namespace dpas_32x4_8x64_block_2d_detail;

    if (m < 1 || n < 1) {
        return queue.submit([&](sycl::handler &handler) { handler.depends_on(depends_on); });
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        throw sycl::exception(sycl::make_error_code(sycl::errc::invalid),
                              "the arguments break the requirements in the head comment");
    }
    return queue.submit([&](sycl::handler &handler) {
        const sycl::range<2> group(THREADS_M, THREADS_N);
        const sycl::range<2> groups((m + BM - 1) / BM, (n + BN - 1) / BN);
        handler.depends_on(depends_on);
        handler.parallel_for<dpas_32x4_8x64_block_2d_detail::kernel>(
            sycl::nd_range<2>(groups * group, group),
            [=](sycl::nd_item<2> item)
                [[sycl::reqd_work_group_size(8, 64)]] [[sycl::reqd_sub_group_size(16)]] {
                    dpas_32x4_8x64_block_2d_detail::work_item(item, m, n, k, alpha, a, lda, b, ldb,
                                                              beta, c, ldc);
                });
    });
}

#ifndef __clang__
#pragma GCC diagnostic pop
#endif

#endif
