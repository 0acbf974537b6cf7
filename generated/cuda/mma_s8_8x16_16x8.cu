// mma_s8_8x16_16x8: C = alpha * A * B + beta * C; int8, sums and C in int32; B col-major
//
// Tile       128x128 of C per block, 8x16 per thread, 64 along K per step
// Threads    16x8 per block, warps of 8x4 threads
//            lanes of a warp as mma.sync has its accumulators
// A          global memory, cp.async of 16 elements, 4 stages in shared memory, rows padded by 16,
//            ldmatrix, registers double-buffered across tiles
// B          global memory, cp.async of 16 elements, 4 stages in shared memory, rows padded by 16,
//            ldmatrix, registers double-buffered across tiles
// Pipeline   cp.async groups, then a barrier
// Multiply   mma.sync m16n8k32, sums in int32
// C          stores of 2 elements
// Grid       threadblock swizzle over 8 rows of blocks
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (8, 16), grid ((m + 127) / 128 * ((n + 127) / 128), 1)
// Needs      81,920 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c mma_s8_8x16_16x8.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// It has cp.async and mma.sync.
#error "mma_s8_8x16_16x8 needs sm_80 or later"
#endif

namespace mma_s8_8x16_16x8_detail {

constexpr int BM = 128, BN = 128, BK = 64; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 4; // stages of the pipeline
constexpr int GROUP_M = 8; // threadblock swizzle: rows of blocks that run together
constexpr int THREADS_M = 16, THREADS_N = 8; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(THREADS_M == 16 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset mma_s8_8x16_16x8 --backend cuda --set group=8x8");
static_assert(BK % 64 == 0, "BK must be a multiple of 64");
static_assert(BM * BK % (THREADS * 16) == 0 && BN * BK % (THREADS * 16) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 16");
static_assert(THREADS % BK == 0, "THREADS must be a multiple of BK");
static_assert(TM % 2 == 0, "TM must be a multiple of 2");
static_assert(TN % 4 == 0, "TN must be a multiple of 4");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 2, "TM must exceed 2 here: "
                      "gemmgen emit --preset mma_s8_8x16_16x8 --backend cuda --set tile=4x16");
static_assert(TN > 4, "TN must exceed 4 here: "
                      "gemmgen emit --preset mma_s8_8x16_16x8 --backend cuda --set tile=4x16");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

// The first `inside` of 2 neighbouring elements to registers, and zeros for the others: by a vector
// where they begin on a multiple of 8 bytes.
__device__ __forceinline__ void load2_inside(int *to, const int *from, int inside)
{
    if (inside >= 2 && reinterpret_cast<size_t>(from) % 8 == 0) {
        *reinterpret_cast<int2 *>(to) = *reinterpret_cast<const int2 *>(from);
    } else {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
            to[e] = e < inside ? from[e] : int();
        }
    }
}

// The first `inside` of 2 neighbouring elements from registers: by a vector where they begin on a
// multiple of 8 bytes.
__device__ __forceinline__ void store2_inside(int *to, const int *from, int inside)
{
    if (inside >= 2 && reinterpret_cast<size_t>(to) % 8 == 0) {
        *reinterpret_cast<int2 *>(to) = *reinterpret_cast<const int2 *>(from);
    } else {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
            if (e < inside) {
                to[e] = from[e];
            }
        }
    }
}

// An address in shared memory as PTX instructions take it.
__device__ __forceinline__ unsigned shared_address(const void *pointer)
{
    return unsigned(__cvta_generic_to_shared(pointer));
}

// cp.async with zero fill: begins the copy of `width` elements, which are 4, 8 or 16 bytes, to
// shared memory: the first `valid` from global memory, zeros for the others. The width is a
// constant where this is called.
__device__ __forceinline__ void cp_async_zfill(signed char *to, const signed char *from, int width,
                                               int valid)
{
    const unsigned address = shared_address(to);
    const int bytes = valid;
    if (width == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(address), "l"(from), "r"(bytes)
                     : "memory");
    } else if (width == 8) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                     :
                     : "r"(address), "l"(from), "r"(bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :
                     : "r"(address), "l"(from), "r"(bytes)
                     : "memory");
    }
}

// cp.async.commit_group: makes a group of this thread's cp.async since the last commit.
__device__ __forceinline__ void cp_async_commit_group()
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

// cp.async.wait_group: waits until at most the `pending` newest groups are incomplete.
template <int pending>
__device__ __forceinline__ void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
}

// ldmatrix: 16 rows of A, 32 bytes deep in K.
// Lane 8 q + i has the address of line i of matrix q; each lane gets four neighbours of a line of
// each.
__device__ __forceinline__ void ldmatrix_a_x4(signed char *to, const signed char *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[2]), "=r"(words[1]), "=r"(words[3])
                 : "r"(shared_address(line))
                 : "memory");
}

// ldmatrix: 16 columns of B, 32 bytes deep in K.
// Lane 8 q + i has the address of line i of matrix q; each lane gets four neighbours of a line of
// each.
__device__ __forceinline__ void ldmatrix_b_x4(signed char *to, const signed char *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(line))
                 : "memory");
}

// mma.sync: acc += A * B of a warp, 16 x 32 by 32 x 8. A lane has two rows of A and of the
// accumulators, eight apart, and one column of B.
__device__ __forceinline__ void mma_m16n8k32(int *acc_upper, int *acc_lower,
                                             const signed char *a_upper, const signed char *a_lower,
                                             const signed char *b)
{
    const unsigned *a0 = reinterpret_cast<const unsigned *>(a_upper);
    const unsigned *a1 = reinterpret_cast<const unsigned *>(a_lower);
    const unsigned *b0 = reinterpret_cast<const unsigned *>(b);
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(acc_upper[0]), "+r"(acc_upper[1]), "+r"(acc_lower[0]), "+r"(acc_lower[1])
        : "r"(a0[0]), "r"(a1[0]), "r"(a0[1]), "r"(a1[1]), "r"(b0[0]), "r"(b0[1]));
}

// Shared memory of a block.
struct Shared {
    alignas(16) signed char a[STAGES][BM][BK + 16]; // padded: lines begin in different banks
    alignas(16) signed char b[STAGES][BN][BK + 16]; // padded: lines begin in different banks
};

// Its size is an argument of the launch.
extern __shared__ __align__(16) unsigned char shared_memory[];

} // namespace mma_s8_8x16_16x8_detail

extern "C" __global__ void __launch_bounds__(mma_s8_8x16_16x8_detail::THREADS)
mma_s8_8x16_16x8(int m, int n, int k, int alpha, const signed char *__restrict__ a, int lda,
                 const signed char *__restrict__ b, int ldb, int beta, int *__restrict__ c, int ldc)
{
    using namespace mma_s8_8x16_16x8_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_index = int(threadIdx.y) * THREADS_N + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int warp_row = warp / (THREADS_N / 4) * 8;
    const int warp_col = warp % (THREADS_N / 4) * 8;
    const int local_row = warp / (THREADS_N / 4) * 8 + lane / 4;
    const int local_col = warp % (THREADS_N / 4) * 4 + lane % 4;
    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int block = int(blockIdx.x);
    const int band_row = block / (blocks_across * GROUP_M) * GROUP_M;
    const int in_band = block % (blocks_across * GROUP_M);
    const int block_row = band_row + in_band % min(GROUP_M, blocks_down - band_row);
    const int block_col = in_band / min(GROUP_M, blocks_down - band_row);
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int row = row0 + local_row;
    const int col = col0 + local_col * 2;
    const int a_row = local_index / BK;
    const int a_k = local_index % BK;
    const int b_col = local_index / BK;
    const int b_k = local_index % BK;
    const int a_line_row = lane / 8 % 2 * THREADS_M + warp_row + lane % 8;
    const int a_line_k = lane / 16 * 16;
    const int b_line_col = lane / 16 * THREADS_N * 2 + warp_col + lane % 8;
    const int b_line_k = lane / 8 % 2 * 16;

    __align__(16) signed char a_frag[2][TM][8];
    __align__(16) signed char b_frag[2][TN / 2][8];
    __align__(16) int acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0;
        }
    }

    // Begins the loads of the tiles at k_load to a stage.
    const auto load_tiles = [&](int k_load, int load_stage) {
        if (k_load < k) {
            const auto load_a = [&](int width) {
                const int a_line = local_index / (BK / width);
                const int a_at = local_index % (BK / width) * width;
                #pragma unroll 4
                for (int i = 0; i < BM * BK / (THREADS * width); ++i) {
                    const int a_fits = k_load + a_at + width <= k ? width
                                       : k_load + a_at < k        ? k - (k_load + a_at)
                                                                  : 0;
                    const int a_inside =
                        row0 + a_line + i * (THREADS * width / BK) < m ? a_fits : 0;
                    cp_async_zfill(
                        &shared.a[load_stage][a_line + i * (THREADS * width / BK)][a_at],
                        &a[(row0 + a_line + i * (THREADS * width / BK)) * lda + k_load + a_at],
                        width, a_inside);
                }
            };
            if (lda % 16 == 0) {
                load_a(16);
            } else if (lda % 8 == 0) {
                load_a(8);
            } else if (lda % 4 == 0) {
                load_a(4);
            } else {
                #pragma unroll 8
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    shared.a[load_stage][a_row + i * (THREADS / BK)][a_k] =
                        k_load + a_k < k
                            ? a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k_load + a_k]
                            : 0;
                }
            }
            const auto load_b = [&](int width) {
                const int b_line = local_index / (BK / width);
                const int b_at = local_index % (BK / width) * width;
                #pragma unroll 4
                for (int i = 0; i < BN * BK / (THREADS * width); ++i) {
                    const int b_fits = k_load + b_at + width <= k ? width
                                       : k_load + b_at < k        ? k - (k_load + b_at)
                                                                  : 0;
                    const int b_inside =
                        col0 + b_line + i * (THREADS * width / BK) < n ? b_fits : 0;
                    cp_async_zfill(
                        &shared.b[load_stage][b_line + i * (THREADS * width / BK)][b_at],
                        &b[(col0 + b_line + i * (THREADS * width / BK)) * ldb + k_load + b_at],
                        width, b_inside);
                }
            };
            if (ldb % 16 == 0) {
                load_b(16);
            } else if (ldb % 8 == 0) {
                load_b(8);
            } else if (ldb % 4 == 0) {
                load_b(4);
            } else {
                #pragma unroll 8
                for (int i = 0; i < BN * BK / THREADS; ++i) {
                    shared.b[load_stage][b_col + i * (THREADS / BK)][b_k] =
                        k_load + b_k < k
                            ? b[min(col0 + b_col + i * (THREADS / BK), n - 1) * ldb + k_load + b_k]
                            : 0;
                }
            }
        }
    };

    // Main loop; cp.async fills in zeros past K.
    #pragma unroll
    for (int load_stage = 0; load_stage < STAGES - 1; ++load_stage) {
        load_tiles(load_stage * BK, load_stage);
        cp_async_commit_group();
    }
    cp_async_wait_group<STAGES - 2>();
    __syncthreads();
    if (k > 0) {
        #pragma unroll
        for (int i = 0; i < TM / 2; ++i) {
            ldmatrix_a_x4(a_frag[0][i * 2], &shared.a[0][a_line_row + i * THREADS_M * 2][a_line_k]);
        }
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            ldmatrix_b_x4(b_frag[0][j * 2], &shared.b[0][b_line_col + j * THREADS_N * 4][b_line_k]);
        }
    }
    for (int k0 = 0; k0 < k; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        load_tiles(k0 + (STAGES - 1) * BK, load_stage);
        cp_async_commit_group();
        #pragma unroll
        for (int kk = 0; kk < BK - 32; kk += 32) {
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                ldmatrix_a_x4(a_frag[(kk / 32 + 1) % 2][i * 2],
                              &shared.a[stage][a_line_row + i * THREADS_M * 2][kk + a_line_k + 32]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                ldmatrix_b_x4(b_frag[(kk / 32 + 1) % 2][j * 2],
                              &shared.b[stage][b_line_col + j * THREADS_N * 4][kk + b_line_k + 32]);
            }
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                #pragma unroll
                for (int j = 0; j < TN / 2; ++j) {
                    mma_m16n8k32(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2],
                                 a_frag[kk / 32 % 2][i * 2], a_frag[kk / 32 % 2][i * 2 + 1],
                                 b_frag[kk / 32 % 2][j]);
                }
            }
        }
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        if (k0 + BK < k) {
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                ldmatrix_a_x4(
                    a_frag[0][i * 2],
                    &shared.a[(k0 / BK + 1) % STAGES][a_line_row + i * THREADS_M * 2][a_line_k]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                ldmatrix_b_x4(
                    b_frag[0][j * 2],
                    &shared.b[(k0 / BK + 1) % STAGES][b_line_col + j * THREADS_N * 4][b_line_k]);
            }
        }
        #pragma unroll
        for (int i = 0; i < TM / 2; ++i) {
            #pragma unroll
            for (int j = 0; j < TN / 2; ++j) {
                mma_m16n8k32(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2], a_frag[1][i * 2],
                             a_frag[1][i * 2 + 1], b_frag[1][j]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN / 2; ++j) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                acc[i][j * 2 + e] = alpha * acc[i][j * 2 + e];
            }
        }
    }
    if (beta != 0) {
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            if (row + i * THREADS_M < m) {
                #pragma unroll
                for (int j = 0; j < TN / 2; ++j) {
                    __align__(16) int c_old[2];
                    load2_inside(c_old, &c[(row + i * THREADS_M) * ldc + col + j * THREADS_N * 2],
                                 n - (col + j * THREADS_N * 2));
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        acc[i][j * 2 + e] = acc[i][j * 2 + e] + beta * c_old[e];
                    }
                }
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i * THREADS_M < m) {
            #pragma unroll
            for (int j = 0; j < TN / 2; ++j) {
                store2_inside(&c[(row + i * THREADS_M) * ldc + col + j * THREADS_N * 2],
                              &acc[i][j * 2], n - (col + j * THREADS_N * 2));
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace mma_s8_8x16_16x8_detail {

// Whether a matrix is aligned to `bytes` bytes.
static bool is_aligned(const void *matrix, size_t bytes)
{
    return reinterpret_cast<size_t>(matrix) % bytes == 0;
}

// Loops step past the end of a size: from here on, 32 bits might not hold where they stop.
constexpr long long TOO_MANY = (1LL << 31) - 1024;

// Whether lines do not overlap, at `pitch` elements from one to the next, and 32-bit indices reach
// the whole matrix.
static bool is_in_reach(long long lines, long long length, long long pitch)
{
    if (lines < 1 || length < 1) {
        return true;
    }
    return lines < TOO_MANY && length < TOO_MANY && (lines == 1 || pitch >= length) &&
           (lines - 1) * pitch + length < 1LL << 31;
}

} // namespace mma_s8_8x16_16x8_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t mma_s8_8x16_16x8_launch(int m, int n, int k, int alpha, const signed char *a,
                                               int lda, const signed char *b, int ldb, int beta,
                                               int *c, int ldc, cudaStream_t stream)
{
    using namespace mma_s8_8x16_16x8_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(n, k, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    if (const cudaError_t error = cudaFuncSetAttribute(
            mma_s8_8x16_16x8, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Shared)))) {
        return error;
    }
    const dim3 grid((m + BM - 1) / BM * ((n + BN - 1) / BN), 1);
    const dim3 block(THREADS_N, THREADS_M);
    mma_s8_8x16_16x8<<<grid, block, sizeof(Shared), stream>>>(m, n, k, alpha, a, lda, b, ldb, beta,
                                                              c, ldc);
    return cudaGetLastError();
}
#endif
