// gemm_bf16_mma_96x128_by16x16_s2_ygub: C = A * B; bfloat16, sums in float32; a batch, with a
// constant stride
//
// Schedule   --method mma --tile 6x8 --group 16x16 --set stages=2 --set prefetch=true --set
//            register_stages=1 --set across_tiles=false --set c_width=1
// Tile       96x128 of C per block, 6x8 per thread, 32 along K per step
// Threads    16x16 per block, warps of 8x4 threads
//            lanes of a warp as mma.sync has its accumulators
// A          global memory, loads of single elements, 2 stages in shared memory, rows padded by 8,
//            ldmatrix
// B          global memory, loads of single elements, 2 stages in shared memory, rows padded by 8,
//            ldmatrix.trans
// Pipeline   the next stage is loaded into registers before the arithmetic, and stored after it
// Multiply   mma.sync m16n8k16, sums in float32
// C          staged in shared memory, stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0
// Launch     block (16, 16), grid ((n + 127) / 128, (m + 95) / 96, batch_count) of at most 65,535
//            along y and z, registers for 2 blocks per multiprocessor
// Needs      52,224 bytes of shared memory
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c
//                gemm_bf16_mma_96x128_by16x16_s2_ygub.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_bf16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// It has mma.sync.
#error "gemm_bf16_mma_96x128_by16x16_s2_ygub needs sm_80 or later"
#endif

namespace gemm_bf16_mma_96x128_by16x16_s2_ygub_detail {

constexpr int BM = 96, BN = 128, BK = 32; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 2; // stages of the pipeline
constexpr int THREADS_M = 16, THREADS_N = 16; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=8x16");
static_assert(BK % 16 == 0, "BK must be a multiple of 16");
static_assert(BM * BK % THREADS == 0 && BN * BK % THREADS == 0,
              "BM * BK and BN * BK must be multiples of THREADS");
static_assert(THREADS % BK == 0, "THREADS must be a multiple of BK");
static_assert(THREADS % BN == 0, "THREADS must be a multiple of BN");
static_assert(TM % 2 == 0, "TM must be a multiple of 2");
static_assert(TN % 4 == 0, "TN must be a multiple of 4");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 2, "TM must exceed 2 here: emit it again with --set tile=6x4");
static_assert(TN > 4, "TN must exceed 4 here: emit it again with --set tile=6x4");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

// 2 neighbouring elements; both addresses are multiples of 8 bytes.
__device__ __forceinline__ void copy2(float *to, const float *from)
{
    *reinterpret_cast<float2 *>(to) = *reinterpret_cast<const float2 *>(from);
}

// An address in shared memory as PTX instructions take it.
__device__ __forceinline__ unsigned shared_address(const void *pointer)
{
    return unsigned(__cvta_generic_to_shared(pointer));
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

// Shared memory of a block: the tiles, and when they have been read, what takes their place.
union Shared {
    struct {
        alignas(16) __nv_bfloat16 a[STAGES][BM][BK + 8]; // padded: lines begin in different banks
        alignas(16) __nv_bfloat16 b[STAGES][BK][BN + 8]; // padded: lines begin in different banks
    } tiles;
    alignas(16) float sums[BM][BN + 8]; // padded: lines begin in different banks
};

// Its size is an argument of the launch.
extern __shared__ __align__(16) unsigned char shared_memory[];

} // namespace gemm_bf16_mma_96x128_by16x16_s2_ygub_detail

extern "C" __global__ void
    __launch_bounds__(gemm_bf16_mma_96x128_by16x16_s2_ygub_detail::THREADS, 2)
    gemm_bf16_mma_96x128_by16x16_s2_ygub(int m, int n, int k, const __nv_bfloat16 *__restrict__ a,
                                         int lda, long long stride_a,
                                         const __nv_bfloat16 *__restrict__ b, int ldb,
                                         long long stride_b, __nv_bfloat16 *__restrict__ c, int ldc,
                                         long long stride_c)
{
    using namespace gemm_bf16_mma_96x128_by16x16_s2_ygub_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int batch = int(blockIdx.z);
    const int local_index = int(threadIdx.y) * THREADS_N + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int warp_row = warp / (THREADS_N / 4) * 8;
    const int warp_col = warp % (THREADS_N / 4) * 8;
    const int local_row = warp / (THREADS_N / 4) * 8 + lane / 4;
    const int local_col = warp % (THREADS_N / 4) * 4 + lane % 4;
    const int row0 = int(blockIdx.y) * BM;
    const int col0 = int(blockIdx.x) * BN;
    const int a_row = local_index / BK;
    const int a_k = local_index % BK;
    const int b_k = local_index / BN;
    const int b_col = local_index % BN;
    const int a_line_row = lane / 8 % 2 * THREADS_M + warp_row + lane % 8;
    const int a_line_k = lane / 16 * 8;
    const int b_line_col = lane / 16 * THREADS_N * 2 + warp_col;
    const int b_line_k = lane / 8 % 2 * 8 + lane % 8;

    a += batch * stride_a;
    b += batch * stride_b;
    c += batch * stride_c;
    __nv_bfloat16 a_next[BM * BK / THREADS];
    __nv_bfloat16 b_next[BN * BK / THREADS];
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Main loop; zeros are stored past K.
    #pragma unroll
    for (int load_stage = 0; load_stage < STAGES - 1; ++load_stage) {
        if (load_stage * BK < k) {
            if (load_stage * BK + BK <= k) {
                #pragma unroll
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    shared.tiles.a[load_stage][a_row + i * (THREADS / BK)][a_k] =
                        a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + load_stage * BK +
                          a_k];
                }
                #pragma unroll
                for (int i = 0; i < BN * BK / THREADS; ++i) {
                    shared.tiles.b[load_stage][b_k + i * (THREADS / BN)][b_col] =
                        b[(load_stage * BK + b_k + i * (THREADS / BN)) * ldb +
                          min(col0 + b_col, n - 1)];
                }
            } else {
                #pragma unroll
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    shared.tiles.a[load_stage][a_row + i * (THREADS / BK)][a_k] =
                        load_stage * BK + a_k < k
                            ? a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda +
                                load_stage * BK + a_k]
                            : __nv_bfloat16();
                }
                #pragma unroll
                for (int i = 0; i < BN * BK / THREADS; ++i) {
                    shared.tiles.b[load_stage][b_k + i * (THREADS / BN)][b_col] =
                        load_stage * BK + b_k + i * (THREADS / BN) < k
                            ? b[(load_stage * BK + b_k + i * (THREADS / BN)) * ldb +
                                min(col0 + b_col, n - 1)]
                            : __nv_bfloat16();
                }
            }
        }
    }
    for (int k0 = 0; k0 < k; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        __syncthreads();
        if (k0 + (STAGES - 1) * BK < k) {
            if (k0 + STAGES * BK <= k) {
                #pragma unroll
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    a_next[i] = a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k0 + a_k +
                                  (STAGES - 1) * BK];
                }
                #pragma unroll
                for (int i = 0; i < BN * BK / THREADS; ++i) {
                    b_next[i] = b[(k0 + b_k + i * (THREADS / BN) + (STAGES - 1) * BK) * ldb +
                                  min(col0 + b_col, n - 1)];
                }
            } else {
                #pragma unroll
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    a_next[i] = k0 + a_k + (STAGES - 1) * BK < k
                                    ? a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k0 +
                                        a_k + (STAGES - 1) * BK]
                                    : __nv_bfloat16();
                }
                #pragma unroll
                for (int i = 0; i < BN * BK / THREADS; ++i) {
                    b_next[i] = k0 + b_k + i * (THREADS / BN) + (STAGES - 1) * BK < k
                                    ? b[(k0 + b_k + i * (THREADS / BN) + (STAGES - 1) * BK) * ldb +
                                        min(col0 + b_col, n - 1)]
                                    : __nv_bfloat16();
                }
            }
        }
        #pragma unroll
        for (int kk = 0; kk < BK; kk += 16) {
            __align__(16) __nv_bfloat16 a_frag[TM][4];
            __align__(16) __nv_bfloat16 b_frag[TN / 2][4];
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                ldmatrix_a_x4(
                    a_frag[i * 2],
                    &shared.tiles.a[stage][a_line_row + i * THREADS_M * 2][kk + a_line_k]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                ldmatrix_b_x4_trans(
                    b_frag[j * 2],
                    &shared.tiles.b[stage][kk + b_line_k][b_line_col + j * THREADS_N * 4]);
            }
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                #pragma unroll
                for (int j = 0; j < TN / 2; ++j) {
                    mma_m16n8k16(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2], a_frag[i * 2],
                                 a_frag[i * 2 + 1], b_frag[j]);
                }
            }
        }
        if (k0 + (STAGES - 1) * BK < k) {
            #pragma unroll
            for (int i = 0; i < BM * BK / THREADS; ++i) {
                shared.tiles.a[load_stage][a_row + i * (THREADS / BK)][a_k] = a_next[i];
            }
            #pragma unroll
            for (int i = 0; i < BN * BK / THREADS; ++i) {
                shared.tiles.b[load_stage][b_k + i * (THREADS / BN)][b_col] = b_next[i];
            }
        }
    }

    // Staged epilogue: through shared memory, in place of the tiles, so that warps store whole
    // lines.
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN / 2; ++j) {
            __align__(16) float sums_values[2];
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                sums_values[e] = acc[i][j * 2 + e];
            }
            copy2(&shared.sums[local_row + i * THREADS_M][local_col * 2 + j * THREADS_N * 2],
                  sums_values);
        }
    }
    __syncthreads();

    const int sum_row = local_index / BN;
    const int sum_col = local_index % BN;
    const int first_col = col0 + sum_col;

    // C = A * B.
    if (first_col < n) {
        #pragma unroll 4
        for (int line = sum_row; line < min(BM, m - row0); line += THREADS / BN) {
            const float total = shared.sums[line][sum_col];
            c[(row0 + line) * ldc + first_col] = __nv_bfloat16(total);
        }
    }
}

#ifndef __CUDACC_RTC__
namespace gemm_bf16_mma_96x128_by16x16_s2_ygub_detail {

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

} // namespace gemm_bf16_mma_96x128_by16x16_s2_ygub_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t gemm_bf16_mma_96x128_by16x16_s2_ygub_launch(
    int m, int n, int k, const __nv_bfloat16 *a, int lda, long long stride_a,
    const __nv_bfloat16 *b, int ldb, long long stride_b, __nv_bfloat16 *c, int ldc,
    long long stride_c, int batch_count, cudaStream_t stream)
{
    using namespace gemm_bf16_mma_96x128_by16x16_s2_ygub_detail;

    if (m < 1 || n < 1 || batch_count < 1) {
        return cudaSuccess;
    }
    if (!is_aligned(a, 2) || !is_aligned(b, 2) || !is_aligned(c, 2)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    if (const cudaError_t error = cudaFuncSetAttribute(gemm_bf16_mma_96x128_by16x16_s2_ygub,
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       int(sizeof(Shared)))) {
        return error;
    }
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM, batch_count);
    const dim3 block(THREADS_N, THREADS_M);
    gemm_bf16_mma_96x128_by16x16_s2_ygub<<<grid, block, sizeof(Shared), stream>>>(
        m, n, k, a, lda, stride_a, b, ldb, stride_b, c, ldc, stride_c);
    return cudaGetLastError();
}
#endif
