// few_rows_across_k: C = A * B; float32
//
// Tile       4x64 of C per block, 2x4 per thread, 16 along K per step
// Threads    2x16 per block, warps of 2x16 threads
//            a warp reads few different elements of A and B, next to one another: no bank conflicts
// A          global memory, cp.async of single elements, 3 stages in shared memory, transposed,
//            rows padded by 4
// B          global memory, cp.async of 4 elements, 3 stages in shared memory
// Pipeline   cp.async groups, then a barrier
// Multiply   fused multiply-add, rows in serpentine order
// C          stores of 4 elements, to the workspace
// Grid       split-K: 8 parts, added up by a second kernel
// Sizes      any m, n, k; leading dimensions multiples of 4; every matrix spans less than 2^31
//            elements; the workspace less than 2^31 elements
// Unread     A and B where k is 0
// Launch     few_rows_across_k: block (16, 2), grid ((m + 3) / 4 * ((n + 63) / 64) * 8, 1)
//            few_rows_across_k_total: block (256, 1), grid (m * ((n + 255) / 256), 1)
// Needs      13,824 bytes of shared memory
//            a workspace of m * ((n + 3) / 4 * 4) * 8 elements, aligned to 16 bytes
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c few_rows_across_k.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// It has cp.async.
#error "few_rows_across_k needs sm_80 or later"
#endif

namespace few_rows_across_k_detail {

constexpr int BM = 4, BN = 64, BK = 16; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 3; // stages of the pipeline
constexpr int SPLIT_K = 8; // parts of K (split-K)
constexpr int THREADS_M = 2, THREADS_N = 16; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(SPLIT_K == 8, "SPLIT_K cannot change here: emit it again with --set split_k=16");
static_assert(THREADS_M == 2 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=4x16");
static_assert(TM % 2 == 0, "TM must be a multiple of 2");
static_assert(TN % 4 == 0, "TN must be a multiple of 4");
static_assert(BM * BK % THREADS == 0, "BM * BK must be a multiple of THREADS");
static_assert(THREADS % BK == 0, "THREADS must be a multiple of BK");
static_assert(BN * BK % (THREADS * 4) == 0, "BN * BK must be a multiple of THREADS * 4");
static_assert(THREADS * 4 % BN == 0, "THREADS * 4 must be a multiple of BN");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM == 2, "TM must be 2 here: emit it again with --set tile=4x4");
static_assert(TN == 4, "TN must be 4 here: emit it again with --set tile=4x4");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

// 2 neighbouring elements; both addresses are multiples of 8 bytes.
__device__ __forceinline__ void copy2(float *to, const float *from)
{
    *reinterpret_cast<float2 *>(to) = *reinterpret_cast<const float2 *>(from);
}

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// An address in shared memory as PTX instructions take it.
__device__ __forceinline__ unsigned shared_address(const void *pointer)
{
    return unsigned(__cvta_generic_to_shared(pointer));
}

// cp.async: begins the copy of 4 bytes to shared memory.
__device__ __forceinline__ void cp_async_4(float *to, const float *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "r"(shared_address(to)), "l"(from)
                 : "memory");
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

// Shared memory of a block.
struct Shared {
    alignas(16) float a[STAGES][BK][BM + 4]; // padded: lines begin in different banks
    alignas(16) float b[STAGES][BK][BN];
};

// Its size is an argument of the launch.
extern __shared__ __align__(16) unsigned char shared_memory[];

} // namespace few_rows_across_k_detail

extern "C" __global__ void __launch_bounds__(few_rows_across_k_detail::THREADS)
few_rows_across_k(int m, int n, int k, const float *__restrict__ a, int lda,
                  const float *__restrict__ b, int ldb, float *__restrict__ workspace)
{
    using namespace few_rows_across_k_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_index = int(threadIdx.y) * THREADS_N + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int local_row = warp * 2 + lane / 16;
    const int local_col = lane % 16;
    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int part = int(blockIdx.x) / (blocks_down * blocks_across);
    const int block = int(blockIdx.x) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int row = row0 + local_row * 2;
    const int col = col0 + local_col * 4;
    const int k_part = (k + SPLIT_K * BK - 1) / (SPLIT_K * BK) * BK;
    const int k_begin = part * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int ld_workspace = (n + 3) / 4 * 4;
    const int a_row = local_index / BK;
    const int a_k = local_index % BK;
    const int b_k = local_index / (BN / 4);
    const int b_col = local_index % (BN / 4) * 4;

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
        if (k_load < k_end) {
            if (k_load + BK <= k_end) {
                #pragma unroll
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    cp_async_4(
                        &shared.a[load_stage][a_k][a_row + i * (THREADS / BK)],
                        &a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k_load + a_k]);
                }
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
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    const int a_inside = k_load + a_k < k ? 1 : 0;
                    cp_async_4_zfill(
                        &shared.a[load_stage][a_k][a_row + i * (THREADS / BK)],
                        &a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k_load + a_k],
                        a_inside);
                }
                #pragma unroll
                for (int i = 0; i < BN * BK / THREADS; ++i) {
                    const int b_inside = k_load + (local_index + i * THREADS) / BN < k &&
                                                 col0 + (local_index + i * THREADS) % BN < n
                                             ? 1
                                             : 0;
                    cp_async_4_zfill(&shared.b[load_stage][(local_index + i * THREADS) / BN]
                                              [(local_index + i * THREADS) % BN],
                                     &b[(k_load + (local_index + i * THREADS) / BN) * ldb + col0 +
                                        (local_index + i * THREADS) % BN],
                                     b_inside);
                }
            }
        }
    };

    // Main loop; cp.async fills in zeros past K.
    #pragma unroll
    for (int load_stage = 0; load_stage < STAGES - 1; ++load_stage) {
        load_tiles(k_begin + load_stage * BK, load_stage);
        cp_async_commit_group();
    }
    for (int k0 = k_begin; k0 < k_end; k0 += BK) {
        const int stage = (k0 - k_begin) / BK % STAGES;
        const int load_stage = ((k0 - k_begin) / BK + STAGES - 1) % STAGES;
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        load_tiles(k0 + (STAGES - 1) * BK, load_stage);
        cp_async_commit_group();
        #pragma unroll 8
        for (int kk = 0; kk < BK; ++kk) {
            __align__(16) float a_frag[TM];
            __align__(16) float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                copy2(&a_frag[i * 2], &shared.a[stage][kk][local_row * 2 + i * 2]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                copy4(&b_frag[j * 4], &shared.b[stage][kk][local_col * 4 + j * 4]);
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    const int turn = i % 2 == 0 ? j : TN - 1 - j;
                    acc[i][turn] = fmaf(a_frag[i], b_frag[turn], acc[i][turn]);
                }
            }
        }
    }

    // Split-K: this part's partial sums.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                if (col + j * 4 + 4 <= n) {
                    copy4(&workspace[part * (m * ld_workspace) + (row + i) * ld_workspace + col +
                                     j * 4],
                          &acc[i][j * 4]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 4 + e < n) {
                            workspace[part * (m * ld_workspace) + (row + i) * ld_workspace + col +
                                      j * 4 + e] = acc[i][j * 4 + e];
                        }
                    }
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
few_rows_across_k_total(int m, int n, const float *__restrict__ workspace, float *__restrict__ c,
                        int ldc)
{
    using namespace few_rows_across_k_detail;

    const int ld_workspace = (n + 3) / 4 * 4;
    const int blocks_across = (n + 255) / 256;
    const int row = int(blockIdx.x) / blocks_across;
    const int col = int(blockIdx.x) % blocks_across * 256 + int(threadIdx.x);

    if (col < n) {
        // Reduction of split-K: the partial sums in order.
        float total = workspace[row * ld_workspace + col];
        #pragma unroll
        for (int s = 1; s < SPLIT_K; ++s) {
            total += workspace[s * (m * ld_workspace) + row * ld_workspace + col];
        }
        c[row * ldc + col] = total;
    }
}

#ifndef __CUDACC_RTC__
namespace few_rows_across_k_detail {

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

} // namespace few_rows_across_k_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t few_rows_across_k_launch(int m, int n, int k, const float *a, int lda,
                                                const float *b, int ldb, float *workspace, float *c,
                                                int ldc, cudaStream_t stream)
{
    using namespace few_rows_across_k_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(workspace, 16) ||
        !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || lda % 4 != 0 || ldb % 4 != 0 || ldc % 4 != 0 || !is_in_reach(m, k, lda) ||
        !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        1LL * m * ((n + 3) / 4 * 4) * SPLIT_K >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    {
        if (const cudaError_t error =
                cudaFuncSetAttribute(few_rows_across_k, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     int(sizeof(Shared)))) {
            return error;
        }
        const dim3 grid((m + BM - 1) / BM * ((n + BN - 1) / BN) * SPLIT_K, 1);
        const dim3 block(THREADS_N, THREADS_M);
        few_rows_across_k<<<grid, block, sizeof(Shared), stream>>>(m, n, k, a, lda, b, ldb,
                                                                   workspace);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const dim3 grid(m * ((n + 255) / 256), 1);
        const dim3 block(256, 1);
        few_rows_across_k_total<<<grid, block, 0, stream>>>(m, n, workspace, c, ldc);
        return cudaGetLastError();
    }
}
#endif
