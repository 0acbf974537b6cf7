// mma_8x16_16x8: C = alpha * A * B + beta * C; bfloat16, sums in float32
//
// Tile       128x128 of C per block, 8x16 per thread, 32 along K per step
// Threads    16x8 per block, warps of 8x4 threads
//            lanes of a warp as mma.sync has its accumulators
// A          global memory, cp.async of 8 elements, 4 stages in shared memory, rows padded by 8,
//            ldmatrix, registers double-buffered across tiles
// B          global memory, cp.async of 8 elements, 4 stages in shared memory, rows padded by 8,
//            ldmatrix.trans, registers double-buffered across tiles
// Pipeline   cp.async groups, then a barrier
// Multiply   mma.sync m16n8k16, sums in float32
// C          stores of 4 elements, for which lanes exchange sums
// Grid       threadblock swizzle over 8 rows of blocks
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (8, 16), grid ((m + 127) / 128 * ((n + 127) / 128), 1)
// Needs      75,776 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c mma_8x16_16x8.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_bf16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// It has cp.async and mma.sync.
#error "mma_8x16_16x8 needs sm_80 or later"
#endif

namespace mma_8x16_16x8_detail {

constexpr int BM = 128, BN = 128, BK = 32; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 4; // stages of the pipeline
constexpr int GROUP_M = 8; // threadblock swizzle: rows of blocks that run together
constexpr int THREADS_M = 16, THREADS_N = 8; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(THREADS_M == 16 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset mma_8x16_16x8 --backend cuda --set group=8x8");
static_assert(BK % 32 == 0, "BK must be a multiple of 32");
static_assert(BM * BK % (THREADS * 8) == 0 && BN * BK % (THREADS * 8) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 8");
static_assert(THREADS % BK == 0, "THREADS must be a multiple of BK");
static_assert(BN % 8 == 0, "BN must be a multiple of 8");
static_assert(THREADS % BN == 0, "THREADS must be a multiple of BN");
static_assert(TM % 2 == 0, "TM must be a multiple of 2");
static_assert(TN % 4 == 0, "TN must be a multiple of 4");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 2, "TM must exceed 2 here: "
                      "gemmgen emit --preset mma_8x16_16x8 --backend cuda --set tile=4x16");
static_assert(TN > 4, "TN must exceed 4 here: "
                      "gemmgen emit --preset mma_8x16_16x8 --backend cuda --set tile=4x16");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

// The first `inside` of 4 neighbouring elements to registers, and zeros for the others: by vectors
// as wide as their place allows.
__device__ __forceinline__ void load4_inside(float *to, const __nv_bfloat16 *from, int inside)
{
    __align__(8) __nv_bfloat16 elements[4] = {};
    if (inside >= 4 && reinterpret_cast<size_t>(from) % 8 == 0) {
        *reinterpret_cast<uint2 *>(elements) = *reinterpret_cast<const uint2 *>(from);
    } else if (inside >= 4 && reinterpret_cast<size_t>(from) % 4 == 0) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
            reinterpret_cast<unsigned *>(elements)[e] = reinterpret_cast<const unsigned *>(from)[e];
        }
    } else {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            if (e < inside) {
                elements[e] = from[e];
            }
        }
    }
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
        to[e] = float(elements[e]);
    }
}

// The first `inside` of 4 neighbouring elements from registers, in the type of memory: by vectors
// as wide as their place allows.
__device__ __forceinline__ void store4_inside(__nv_bfloat16 *to, const float *from, int inside)
{
    __align__(8) __nv_bfloat16 elements[4];
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
        elements[e] = __nv_bfloat16(from[e]);
    }
    if (inside >= 4 && reinterpret_cast<size_t>(to) % 8 == 0) {
        *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(elements);
    } else if (inside >= 4 && reinterpret_cast<size_t>(to) % 4 == 0) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
            reinterpret_cast<unsigned *>(to)[e] = reinterpret_cast<const unsigned *>(elements)[e];
        }
    } else {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            if (e < inside) {
                to[e] = elements[e];
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
__device__ __forceinline__ void cp_async_zfill(__nv_bfloat16 *to, const __nv_bfloat16 *from,
                                               int width, int valid)
{
    const unsigned address = shared_address(to);
    const int bytes = valid * 2;
    if (width == 8) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(address), "l"(from), "r"(bytes)
                     : "memory");
    } else if (width == 4) {
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
// Lane 8 q + i has the address of line i of matrix q; each lane gets two neighbours of a line of
// each.
__device__ __forceinline__ void ldmatrix_a_x4(__nv_bfloat16 *to, const __nv_bfloat16 *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[2]), "=r"(words[1]), "=r"(words[3])
                 : "r"(shared_address(line))
                 : "memory");
}

// ldmatrix: 16 columns of B, 32 bytes deep in K.
// Lane 8 q + i has the address of line i of matrix q; each lane gets two neighbours of a column of
// each.
__device__ __forceinline__ void ldmatrix_b_x4_trans(__nv_bfloat16 *to, const __nv_bfloat16 *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(line))
                 : "memory");
}

// mma.sync: acc += A * B of a warp, 16 x 16 by 16 x 8. A lane has two rows of A and of the
// accumulators, eight apart, and one column of B.
__device__ __forceinline__ void mma_m16n8k16(float *acc_upper, float *acc_lower,
                                             const __nv_bfloat16 *a_upper,
                                             const __nv_bfloat16 *a_lower, const __nv_bfloat16 *b)
{
    const unsigned *a0 = reinterpret_cast<const unsigned *>(a_upper);
    const unsigned *a1 = reinterpret_cast<const unsigned *>(a_lower);
    const unsigned *b0 = reinterpret_cast<const unsigned *>(b);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(acc_upper[0]), "+f"(acc_upper[1]), "+f"(acc_lower[0]), "+f"(acc_lower[1])
        : "r"(a0[0]), "r"(a1[0]), "r"(a0[1]), "r"(a1[1]), "r"(b0[0]), "r"(b0[1]));
}

// Shared memory of a block.
struct Shared {
    alignas(16) __nv_bfloat16 a[STAGES][BM][BK + 8]; // padded: lines begin in different banks
    alignas(16) __nv_bfloat16 b[STAGES][BK][BN + 8]; // padded: lines begin in different banks
};

// Its size is an argument of the launch.
extern __shared__ __align__(16) unsigned char shared_memory[];

} // namespace mma_8x16_16x8_detail

extern "C" __global__ void __launch_bounds__(mma_8x16_16x8_detail::THREADS)
mma_8x16_16x8(int m, int n, int k, float alpha, const __nv_bfloat16 *__restrict__ a, int lda,
              const __nv_bfloat16 *__restrict__ b, int ldb, float beta,
              __nv_bfloat16 *__restrict__ c, int ldc)
{
    using namespace mma_8x16_16x8_detail;
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
    const int col = col0 + (local_col / 4 * 4 + local_col % 2 * 2 + local_col % 4 / 2) * 4;
    const int a_row = local_index / BK;
    const int a_k = local_index % BK;
    const int b_k = local_index / BN;
    const int b_col = local_index % BN;
    const int a_line_row = lane / 8 % 2 * THREADS_M + warp_row + lane % 8;
    const int a_line_k = lane / 16 * 8;
    const int b_line_col = lane / 16 * 8 + warp_col * 2;
    const int b_line_k = lane / 8 % 2 * 8 + lane % 8;

    __align__(16) __nv_bfloat16 a_frag[2][TM][4];
    __align__(16) __nv_bfloat16 b_frag[2][TN / 2][4];
    __align__(16) float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
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
            if (lda % 8 == 0) {
                load_a(8);
            } else if (lda % 4 == 0) {
                load_a(4);
            } else if (lda % 2 == 0) {
                load_a(2);
            } else {
                #pragma unroll 8
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    shared.a[load_stage][a_row + i * (THREADS / BK)][a_k] =
                        k_load + a_k < k
                            ? a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k_load + a_k]
                            : __nv_bfloat16();
                }
            }
            const auto load_b = [&](int width) {
                const int b_line = local_index / (BN / width);
                const int b_at = local_index % (BN / width) * width;
                #pragma unroll 4
                for (int i = 0; i < BN * BK / (THREADS * width); ++i) {
                    const int b_fits = col0 + b_at + width <= n ? width
                                       : col0 + b_at < n        ? n - (col0 + b_at)
                                                                : 0;
                    const int b_inside =
                        k_load + b_line + i * (THREADS * width / BN) < k ? b_fits : 0;
                    cp_async_zfill(
                        &shared.b[load_stage][b_line + i * (THREADS * width / BN)][b_at],
                        &b[(k_load + b_line + i * (THREADS * width / BN)) * ldb + col0 + b_at],
                        width, b_inside);
                }
            };
            if (ldb % 8 == 0) {
                load_b(8);
            } else if (ldb % 4 == 0) {
                load_b(4);
            } else if (ldb % 2 == 0) {
                load_b(2);
            } else {
                #pragma unroll 8
                for (int i = 0; i < BN * BK / THREADS; ++i) {
                    shared.b[load_stage][b_k + i * (THREADS / BN)][b_col] =
                        k_load + b_k + i * (THREADS / BN) < k
                            ? b[(k_load + b_k + i * (THREADS / BN)) * ldb +
                                min(col0 + b_col, n - 1)]
                            : __nv_bfloat16();
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
            ldmatrix_b_x4_trans(b_frag[0][j * 2],
                                &shared.b[0][b_line_k][b_line_col + j * THREADS_N * 4]);
        }
    }
    for (int k0 = 0; k0 < k; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        load_tiles(k0 + (STAGES - 1) * BK, load_stage);
        cp_async_commit_group();
        #pragma unroll
        for (int kk = 0; kk < BK - 16; kk += 16) {
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                ldmatrix_a_x4(a_frag[(kk / 16 + 1) % 2][i * 2],
                              &shared.a[stage][a_line_row + i * THREADS_M * 2][kk + a_line_k + 16]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                ldmatrix_b_x4_trans(
                    b_frag[(kk / 16 + 1) % 2][j * 2],
                    &shared.b[stage][kk + b_line_k + 16][b_line_col + j * THREADS_N * 4]);
            }
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                #pragma unroll
                for (int j = 0; j < TN / 2; ++j) {
                    mma_m16n8k16(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2],
                                 a_frag[kk / 16 % 2][i * 2], a_frag[kk / 16 % 2][i * 2 + 1],
                                 b_frag[kk / 16 % 2][j]);
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
                ldmatrix_b_x4_trans(
                    b_frag[0][j * 2],
                    &shared.b[(k0 / BK + 1) % STAGES][b_line_k][b_line_col + j * THREADS_N * 4]);
            }
        }
        #pragma unroll
        for (int i = 0; i < TM / 2; ++i) {
            #pragma unroll
            for (int j = 0; j < TN / 2; ++j) {
                mma_m16n8k16(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2], a_frag[1][i * 2],
                             a_frag[1][i * 2 + 1], b_frag[1][j]);
            }
        }
    }

    // Lanes exchange sums, so that each has 4 neighbouring columns of C.
    const bool is_low = lane % 2 == 0;

    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                const float received = __shfl_xor_sync(
                    0xffffffffu, is_low ? acc[i][j * 4 + e + 2] : acc[i][j * 4 + e], 1, 32);
                acc[i][j * 4 + e] = is_low ? acc[i][j * 4 + e] : received;
                acc[i][j * 4 + e + 2] = is_low ? received : acc[i][j * 4 + e + 2];
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                acc[i][j * 4 + e] = alpha * acc[i][j * 4 + e];
            }
        }
    }
    if (beta != 0.0f) {
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            if (row + i * THREADS_M < m) {
                #pragma unroll
                for (int j = 0; j < TN / 4; ++j) {
                    __align__(16) float c_old[4];
                    load4_inside(c_old, &c[(row + i * THREADS_M) * ldc + col + j * THREADS_N * 4],
                                 n - (col + j * THREADS_N * 4));
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        acc[i][j * 4 + e] = fmaf(beta, c_old[e], acc[i][j * 4 + e]);
                    }
                }
            }
        }
    }
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i * THREADS_M < m) {
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                store4_inside(&c[(row + i * THREADS_M) * ldc + col + j * THREADS_N * 4],
                              &acc[i][j * 4], n - (col + j * THREADS_N * 4));
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace mma_8x16_16x8_detail {

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

} // namespace mma_8x16_16x8_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t mma_8x16_16x8_launch(int m, int n, int k, float alpha,
                                            const __nv_bfloat16 *a, int lda, const __nv_bfloat16 *b,
                                            int ldb, float beta, __nv_bfloat16 *c, int ldc,
                                            cudaStream_t stream)
{
    using namespace mma_8x16_16x8_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    if (const cudaError_t error = cudaFuncSetAttribute(
            mma_8x16_16x8, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Shared)))) {
        return error;
    }
    const dim3 grid((m + BM - 1) / BM * ((n + BN - 1) / BN), 1);
    const dim3 block(THREADS_N, THREADS_M);
    mma_8x16_16x8<<<grid, block, sizeof(Shared), stream>>>(m, n, k, alpha, a, lda, b, ldb, beta, c,
                                                           ldc);
    return cudaGetLastError();
}
#endif
