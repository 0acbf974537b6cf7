// mma_3xtf32_8x8_16x16: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per block, 8x8 per thread, 32 along K per step
// Threads    16x16 per block, warps of 8x4 threads
//            lanes of a warp as mma.sync has its accumulators
// A          global memory, cp.async of 4 elements, 3 stages in shared memory, rows padded by 4,
//            ldmatrix, registers double-buffered across tiles
// B          global memory, cp.async of 4 elements, 3 stages in shared memory, rows padded by 8,
//            registers double-buffered across tiles
// Pipeline   cp.async groups, then a barrier
// Multiply   mma.sync m16n8k8, sums in float32, 3xTF32: three products for each
// C          stores of 2 elements
// Grid       threadblock swizzle over 8 rows of blocks
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (16, 16), grid ((m + 127) / 128 * ((n + 127) / 128), 1)
// Needs      107,520 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c mma_3xtf32_8x8_16x16.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// It has cp.async and mma.sync.
#error "mma_3xtf32_8x8_16x16 needs sm_80 or later"
#endif

namespace mma_3xtf32_8x8_16x16_detail {

constexpr int BM = 128, BN = 128, BK = 32; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 3; // stages of the pipeline
constexpr int GROUP_M = 8; // threadblock swizzle: rows of blocks that run together
constexpr int THREADS_M = 16, THREADS_N = 16; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset mma_3xtf32_8x8_16x16 --backend cuda --set group=8x16");
static_assert(TN % 2 == 0 && TM % 2 == 0, "TN and TM must be multiples of 2");
static_assert(BK % 16 == 0, "BK must be a multiple of 16");
static_assert(BM * BK % (THREADS * 4) == 0 && BN * BK % (THREADS * 4) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 4");
static_assert(THREADS % BK == 0, "THREADS must be a multiple of BK");
static_assert(THREADS % BN == 0, "THREADS must be a multiple of BN");
static_assert(BN % 4 == 0, "BN must be a multiple of 4");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TN > 2 && TM > 2,
              "TN and TM must exceed 2 here: "
              "gemmgen emit --preset mma_3xtf32_8x8_16x16 --backend cuda --set tile=4x8");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

// The first `inside` of 2 neighbouring elements to registers, and zeros for the others: by a vector
// where they begin on a multiple of 8 bytes.
__device__ __forceinline__ void load2_inside(float *to, const float *from, int inside)
{
    if (inside >= 2 && reinterpret_cast<size_t>(from) % 8 == 0) {
        *reinterpret_cast<float2 *>(to) = *reinterpret_cast<const float2 *>(from);
    } else {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
            to[e] = e < inside ? from[e] : float();
        }
    }
}

// The first `inside` of 2 neighbouring elements from registers: by a vector where they begin on a
// multiple of 8 bytes.
__device__ __forceinline__ void store2_inside(float *to, const float *from, int inside)
{
    if (inside >= 2 && reinterpret_cast<size_t>(to) % 8 == 0) {
        *reinterpret_cast<float2 *>(to) = *reinterpret_cast<const float2 *>(from);
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

// cp.async with zero fill: begins the copy of 4 bytes to shared memory, the first `valid` elements
// from global memory and zeros for the others.
__device__ __forceinline__ void cp_async_4_zfill(float *to, const float *from, int valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(valid * 4)
                 : "memory");
}

// cp.async with zero fill: begins the copy of 16 bytes to shared memory, the first `valid` elements
// from global memory and zeros for the others.
__device__ __forceinline__ void cp_async_16_zfill(float *to, const float *from, int valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(valid * 4)
                 : "memory");
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

// 3xTF32, low part of a finite number: the rest beside the high part, plus 2^-23 of the number, so
// that it is zero for zero only. NaN for Inf and NaN.
__device__ __forceinline__ float tf32_low_finite(float value)
{
    const float high = __uint_as_float(__float_as_uint(value) & 0xffffe000u);
    return fmaf(value, 0x1.000002p0f, -high);
}

// ldmatrix: 16 rows of A, 32 bytes deep in K.
// Lane 8 q + i has the address of line i of matrix q; each lane gets an element of a line of each.
__device__ __forceinline__ void ldmatrix_a_x4(float *to, const float *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[2]), "=r"(words[1]), "=r"(words[3])
                 : "r"(shared_address(line))
                 : "memory");
}

// mma.sync: acc += A * B of a warp, 16 x 8 by 8 x 8. A lane has two rows of A and of the
// accumulators, eight apart, and one column of B.
__device__ __forceinline__ void mma_m16n8k8(float *acc_upper, float *acc_lower,
                                            const float *a_upper, const float *a_lower,
                                            const float *b)
{
    const unsigned *a0 = reinterpret_cast<const unsigned *>(a_upper);
    const unsigned *a1 = reinterpret_cast<const unsigned *>(a_lower);
    const unsigned *b0 = reinterpret_cast<const unsigned *>(b);
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(acc_upper[0]), "+f"(acc_upper[1]), "+f"(acc_lower[0]), "+f"(acc_lower[1])
        : "r"(a0[0]), "r"(a1[0]), "r"(a0[1]), "r"(a1[1]), "r"(b0[0]), "r"(b0[1]));
}

// Shared memory of a block.
struct Shared {
    alignas(16) float a[STAGES][BM][BK + 4]; // padded: lines begin in different banks
    alignas(16) float b[STAGES][BK][BN + 8]; // padded: lines begin in different banks
};

// Its size is an argument of the launch.
extern __shared__ __align__(16) unsigned char shared_memory[];

} // namespace mma_3xtf32_8x8_16x16_detail

extern "C" __global__ void __launch_bounds__(mma_3xtf32_8x8_16x16_detail::THREADS)
mma_3xtf32_8x8_16x16(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                     const float *__restrict__ b, int ldb, float beta, float *__restrict__ c,
                     int ldc)
{
    using namespace mma_3xtf32_8x8_16x16_detail;
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
    const int a_row = local_index / (BK / 4);
    const int a_k = local_index % (BK / 4) * 4;
    const int a_row_by1 = local_index / BK;
    const int a_k_by1 = local_index % BK;
    const int b_k = local_index / (BN / 4);
    const int b_col = local_index % (BN / 4) * 4;
    const int b_k_by1 = local_index / BN;
    const int b_col_by1 = local_index % BN;
    const int a_line_row = lane / 8 % 2 * THREADS_M + warp_row + lane % 8;
    const int a_line_k = lane / 16 * 4;

    __align__(16) float a_frag[2][TM][2];
    float b_frag[2][TN / 2][2];
    __align__(16) float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    float step_sums[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            step_sums[i][j] = 0.0f;
        }
    }

    // Begins the loads of the tiles at k_load to a stage.
    const auto load_tiles = [&](int k_load, int load_stage) {
        if (k_load < k) {
            if (k_load + BK <= k && lda % 4 == 0) {
                #pragma unroll
                for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                    const int a_inside = row0 + a_row + i * (THREADS * 4 / BK) < m ? 4 : 0;
                    cp_async_16_zfill(
                        &shared.a[load_stage][a_row + i * (THREADS * 4 / BK)][a_k],
                        &a[(row0 + a_row + i * (THREADS * 4 / BK)) * lda + k_load + a_k], a_inside);
                }
            } else {
                #pragma unroll
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    const int a_inside = k_load + a_k_by1 < k ? 1 : 0;
                    cp_async_4_zfill(&shared.a[load_stage][a_row_by1 + i * (THREADS / BK)][a_k_by1],
                                     &a[min(row0 + a_row_by1 + i * (THREADS / BK), m - 1) * lda +
                                        k_load + a_k_by1],
                                     a_inside);
                }
            }
            if (k_load + BK <= k && ldb % 4 == 0) {
                #pragma unroll
                for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                    const int b_inside = col0 + b_col + 4 <= n ? 4
                                         : col0 + b_col < n    ? n - (col0 + b_col)
                                                               : 0;
                    cp_async_16_zfill(
                        &shared.b[load_stage][b_k + i * (THREADS * 4 / BN)][b_col],
                        &b[(k_load + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col], b_inside);
                }
            } else {
                #pragma unroll
                for (int i = 0; i < BN * BK / THREADS; ++i) {
                    const int b_inside =
                        k_load + b_k_by1 + i * (THREADS / BN) < k && col0 + b_col_by1 < n ? 1 : 0;
                    cp_async_4_zfill(
                        &shared.b[load_stage][b_k_by1 + i * (THREADS / BN)][b_col_by1],
                        &b[(k_load + b_k_by1 + i * (THREADS / BN)) * ldb + col0 + b_col_by1],
                        b_inside);
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
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < TN / 2; ++j) {
                b_frag[0][j][i] =
                    shared.b[0][lane % 4 + i * 4][warp_col + lane / 4 + j * THREADS_N * 2];
            }
        }
    }
    for (int k0 = 0; k0 < k; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        load_tiles(k0 + (STAGES - 1) * BK, load_stage);
        cp_async_commit_group();
        #pragma unroll
        for (int kk = 0; kk < BK - 8; kk += 8) {
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                ldmatrix_a_x4(a_frag[(kk / 8 + 1) % 2][i * 2],
                              &shared.a[stage][a_line_row + i * THREADS_M * 2][kk + a_line_k + 8]);
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < TN / 2; ++j) {
                    b_frag[(kk / 8 + 1) % 2][j][i] =
                        shared.b[stage][kk + lane % 4 + i * 4 + 8]
                                [warp_col + lane / 4 + j * THREADS_N * 2];
                }
            }
            float a_rest[TM][2];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    a_rest[i][e] = tf32_low_finite(a_frag[kk / 8 % 2][i][e]);
                }
            }
            float b_rest[TN / 2][2];
            #pragma unroll
            for (int i = 0; i < TN / 2; ++i) {
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    b_rest[i][e] = tf32_low_finite(b_frag[kk / 8 % 2][i][e]);
                }
            }
            #pragma unroll
            for (int j = 0; j < TN / 2; ++j) {
                #pragma unroll
                for (int i = 0; i < TM / 2; ++i) {
                    mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2],
                                a_rest[i * 2], a_rest[i * 2 + 1], b_frag[kk / 8 % 2][j]);
                }
                #pragma unroll
                for (int i = 0; i < TM / 2; ++i) {
                    mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2],
                                a_frag[kk / 8 % 2][i * 2], a_frag[kk / 8 % 2][i * 2 + 1],
                                b_rest[j]);
                }
                #pragma unroll
                for (int i = 0; i < TM / 2; ++i) {
                    mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2],
                                a_frag[kk / 8 % 2][i * 2], a_frag[kk / 8 % 2][i * 2 + 1],
                                b_frag[kk / 8 % 2][j]);
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
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < TN / 2; ++j) {
                    b_frag[0][j][i] = shared.b[(k0 / BK + 1) % STAGES][lane % 4 + i * 4]
                                              [warp_col + lane / 4 + j * THREADS_N * 2];
                }
            }
        }
        float a_rest[TM][2];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                a_rest[i][e] = tf32_low_finite(a_frag[1][i][e]);
            }
        }
        float b_rest[TN / 2][2];
        #pragma unroll
        for (int i = 0; i < TN / 2; ++i) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                b_rest[i][e] = tf32_low_finite(b_frag[1][i][e]);
            }
        }
        #pragma unroll
        for (int j = 0; j < TN / 2; ++j) {
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2], a_rest[i * 2],
                            a_rest[i * 2 + 1], b_frag[1][j]);
            }
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2],
                            a_frag[1][i * 2], a_frag[1][i * 2 + 1], b_rest[j]);
            }
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2],
                            a_frag[1][i * 2], a_frag[1][i * 2 + 1], b_frag[1][j]);
            }
        }

        // The step's sum is added in float32, rounded.
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[i][j] += step_sums[i][j];
            }
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                step_sums[i][j] = 0.0f;
            }
        }
    }

    // Inf and NaN have no low part: where it made a sum NaN, the high parts decide.
    float doubt = 0.0f;
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            doubt = fmaf(acc[i][j], 0.0f, doubt);
        }
    }
    if (__syncthreads_or(doubt != 0.0f)) {
        for (int k0 = 0; k0 < k; k0 += BK) {
            __syncthreads();
            #pragma unroll
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                if (lda % 4 == 0) {
                    const int a_fits = k0 + a_k + 4 <= k ? 4 : k0 + a_k < k ? k - (k0 + a_k) : 0;
                    const int a_inside = row0 + a_row + i * (THREADS * 4 / BK) < m ? a_fits : 0;
                    cp_async_16_zfill(&shared.a[0][a_row + i * (THREADS * 4 / BK)][a_k],
                                      &a[(row0 + a_row + i * (THREADS * 4 / BK)) * lda + k0 + a_k],
                                      a_inside);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const int a_inside = k0 + a_k + e < k ? 1 : 0;
                        cp_async_4_zfill(
                            &shared.a[0][a_row + i * (THREADS * 4 / BK)][a_k + e],
                            &a[min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda + k0 + a_k +
                               e],
                            a_inside);
                    }
                }
            }
            #pragma unroll
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                if (ldb % 4 == 0) {
                    const int b_fits = col0 + b_col + 4 <= n ? 4
                                       : col0 + b_col < n    ? n - (col0 + b_col)
                                                             : 0;
                    const int b_inside = k0 + b_k + i * (THREADS * 4 / BN) < k ? b_fits : 0;
                    cp_async_16_zfill(&shared.b[0][b_k + i * (THREADS * 4 / BN)][b_col],
                                      &b[(k0 + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col],
                                      b_inside);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const int b_inside =
                            k0 + b_k + i * (THREADS * 4 / BN) < k && col0 + b_col + e < n ? 1 : 0;
                        cp_async_4_zfill(
                            &shared.b[0][b_k + i * (THREADS * 4 / BN)][b_col + e],
                            &b[(k0 + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col + e],
                            b_inside);
                    }
                }
            }
            cp_async_commit_group();
            cp_async_wait_group<0>();
            __syncthreads();
            #pragma unroll
            for (int kk = 0; kk < BK; kk += 8) {
                __align__(16) float a_head[TM][2];
                float b_head[TN / 2][2];
                #pragma unroll
                for (int i = 0; i < TM / 2; ++i) {
                    ldmatrix_a_x4(a_head[i * 2],
                                  &shared.a[0][a_line_row + i * THREADS_M * 2][kk + a_line_k]);
                }
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    #pragma unroll
                    for (int j = 0; j < TN / 2; ++j) {
                        b_head[j][i] = shared.b[0][kk + lane % 4 + i * 4]
                                               [warp_col + lane / 4 + j * THREADS_N * 2];
                    }
                }
                #pragma unroll
                for (int i = 0; i < TM / 2; ++i) {
                    #pragma unroll
                    for (int j = 0; j < TN / 2; ++j) {
                        mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2],
                                    a_head[i * 2], a_head[i * 2 + 1], b_head[j]);
                    }
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[i][j] = acc[i][j] == acc[i][j] ? acc[i][j] : step_sums[i][j];
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
    if (beta != 0.0f) {
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            if (row + i * THREADS_M < m) {
                #pragma unroll
                for (int j = 0; j < TN / 2; ++j) {
                    __align__(16) float c_old[2];
                    load2_inside(c_old, &c[(row + i * THREADS_M) * ldc + col + j * THREADS_N * 2],
                                 n - (col + j * THREADS_N * 2));
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        acc[i][j * 2 + e] = fmaf(beta, c_old[e], acc[i][j * 2 + e]);
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
namespace mma_3xtf32_8x8_16x16_detail {

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

} // namespace mma_3xtf32_8x8_16x16_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t mma_3xtf32_8x8_16x16_launch(int m, int n, int k, float alpha, const float *a,
                                                   int lda, const float *b, int ldb, float beta,
                                                   float *c, int ldc, cudaStream_t stream)
{
    using namespace mma_3xtf32_8x8_16x16_detail;

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
    if (const cudaError_t error =
            cudaFuncSetAttribute(mma_3xtf32_8x8_16x16, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 int(sizeof(Shared)))) {
        return error;
    }
    const dim3 grid((m + BM - 1) / BM * ((n + BN - 1) / BN), 1);
    const dim3 block(THREADS_N, THREADS_M);
    mma_3xtf32_8x8_16x16<<<grid, block, sizeof(Shared), stream>>>(m, n, k, alpha, a, lda, b, ldb,
                                                                  beta, c, ldc);
    return cudaGetLastError();
}
#endif
