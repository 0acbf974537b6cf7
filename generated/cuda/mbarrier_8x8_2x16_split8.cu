// mbarrier_8x8_2x16_split8: C = alpha * A * B + beta * C; float32
//
// Tile       16x128 of C per block, 8x8 per thread, 32 along K per step
// Threads    128 per block, 4 slices of each step along K (sliced-K), warps of 2x16 threads, lanes
//                swizzled
//            a warp reads few different elements of A and B, next to one another: no bank conflicts
//            neighbouring lanes read different rows of A: no read of shared memory is a broadcast
// A          global memory, cp.async of single elements, 4 stages in shared memory, transposed,
//            rows padded by 4, registers double-buffered across tiles
// B          global memory, cp.async of 4 elements, 4 stages in shared memory, registers
//            double-buffered across tiles
// Pipeline   a full and an empty mbarrier for each stage
// Multiply   fused multiply-add, rows in serpentine order
// C          slices added up in shared memory, stores of 4 elements, to the workspace
// Grid       split-K: 8 parts, added up by a second kernel; programmatic dependent launch
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; the workspace less than 2^31
//            elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     mbarrier_8x8_2x16_split8: block (16, 8), grid ((m + 15) / 16 * ((n + 127) / 128) * 8,
//                1)
//            mbarrier_8x8_2x16_split8_total: block (256, 1), grid (m * ((n + 255) / 256), 1)
// Needs      75,840 bytes of shared memory
//            a workspace of m * ((n + 3) / 4 * 4) * 8 elements, aligned to 16 bytes
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_90 -Werror all-warnings -c mbarrier_8x8_2x16_split8.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
// It has mbarrier.try_wait and griddepcontrol.
#error "mbarrier_8x8_2x16_split8 needs sm_90 or later"
#endif

namespace mbarrier_8x8_2x16_split8_detail {

constexpr int BM = 16, BN = 128, BK = 32; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 4; // stages of the pipeline
constexpr int SPLIT_K = 8; // parts of K (split-K)
constexpr int SLICES = 4; // parts of a block's K (sliced-K)
constexpr int THREADS_M = 2, THREADS_N = 16; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a slice
static_assert(SPLIT_K == 8,
              "SPLIT_K cannot change here: "
              "gemmgen emit --preset mbarrier_8x8_2x16_split8 --backend cuda --set split_k=16");
static_assert(SLICES == 4,
              "SLICES cannot change here: "
              "gemmgen emit --preset mbarrier_8x8_2x16_split8 --backend cuda --set sliced_k=8");
static_assert(THREADS_M == 2 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset mbarrier_8x8_2x16_split8 --backend cuda --set group=4x16");
static_assert(TM % 4 == 0 && TN % 4 == 0, "TM and TN must be multiples of 4");
static_assert(BK / SLICES % 2 == 0, "BK / SLICES must be a multiple of 2");
static_assert(BM * BK % (SLICES * THREADS) == 0, "BM * BK must be a multiple of SLICES * THREADS");
static_assert(SLICES * THREADS % BK == 0, "SLICES * THREADS must be a multiple of BK");
static_assert(BN * BK % (SLICES * THREADS * 4) == 0,
              "BN * BK must be a multiple of SLICES * THREADS * 4");
static_assert(SLICES * THREADS % BN == 0, "SLICES * THREADS must be a multiple of BN");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 4 && TN > 4,
              "TM and TN must exceed 4 here: "
              "gemmgen emit --preset mbarrier_8x8_2x16_split8 --backend cuda --set tile=4x8");
static_assert(STAGES >= 3, "STAGES must be 3 or more: mbarriers hand over 3 batches");

constexpr int BLOCK_THREADS = SLICES * THREADS;

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

// mbarrier.init: a phase of the barrier completes after `arrivals` arrivals.
__device__ __forceinline__ void mbarrier_init(unsigned long long *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}

// mbarrier.arrive: one arrival at the barrier.
__device__ __forceinline__ void mbarrier_arrive(unsigned long long *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                 :
                 : "r"(shared_address(barrier))
                 : "memory");
}

// cp.async.mbarrier.arrive.noinc: one arrival at the barrier when this thread's cp.async so far are
// complete.
__device__ __forceinline__ void cp_async_mbarrier_arrive(unsigned long long *barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
                 :
                 : "r"(shared_address(barrier))
                 : "memory");
}

// mbarrier.try_wait.parity: whether the phase of this parity is complete, perhaps after a while.
__device__ __forceinline__ bool mbarrier_try_wait(unsigned long long *barrier, int parity)
{
    unsigned complete;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(complete)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    return complete != 0;
}

// Waits until the phase of this parity is complete.
__device__ __forceinline__ void mbarrier_wait(unsigned long long *barrier, int parity)
{
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}

// griddepcontrol.launch_dependents: the next kernel may begin once all blocks have called this.
__device__ __forceinline__ void griddepcontrol_launch_dependents()
{
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

// griddepcontrol.wait: waits until the previous kernels are complete and their writes are visible.
__device__ __forceinline__ void griddepcontrol_wait()
{
    asm volatile("griddepcontrol.wait;" : : : "memory");
}

// Shared memory of a block: the tiles, and when they have been read, what takes their place.
union Shared {
    struct {
        float a[STAGES][BK][BM + 4]; // padded: lines begin in different banks
        alignas(16) float b[STAGES][BK][BN];
        unsigned long long full[STAGES];
        unsigned long long empty[STAGES];
    } tiles;
    alignas(16) float partial[SLICES][BM][BN];
};

// Its size is an argument of the launch.
extern __shared__ __align__(16) unsigned char shared_memory[];

} // namespace mbarrier_8x8_2x16_split8_detail

extern "C" __global__ void __launch_bounds__(mbarrier_8x8_2x16_split8_detail::BLOCK_THREADS)
mbarrier_8x8_2x16_split8(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                         const float *__restrict__ b, int ldb, float *__restrict__ workspace)
{
    using namespace mbarrier_8x8_2x16_split8_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_index = int(threadIdx.y) * THREADS_N + int(threadIdx.x);
    const int slice = local_index / THREADS;
    const int warp = local_index % THREADS / 32;
    const int lane = local_index % 32;
    const int local_row = warp * 2 + (lane / 16 + lane / 2 + lane) % 2;
    const int local_col = lane % 16;
    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int part = int(blockIdx.x) / (blocks_down * blocks_across);
    const int block = int(blockIdx.x) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int k_part = (k + SPLIT_K * BK - 1) / (SPLIT_K * BK) * BK;
    const int k_begin = part * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int ld_workspace = (n + 3) / 4 * 4;
    const int a_row = local_index / BK;
    const int a_k = local_index % BK;
    const int b_k = local_index / (BN / 4);
    const int b_col = local_index % (BN / 4) * 4;
    const int b_k_by1 = local_index / BN;
    const int b_col_by1 = local_index % BN;

    griddepcontrol_launch_dependents();
    __align__(16) float a_frag[2][TM];
    __align__(16) float b_frag[2][TN];
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    if (local_index < STAGES) {
        mbarrier_init(&shared.tiles.full[local_index], SLICES * THREADS);
        mbarrier_init(&shared.tiles.empty[local_index], SLICES * THREADS);
    }
    __syncthreads();

    // Begins the loads of the tiles at k_load to a stage.
    const auto load_tiles = [&](int k_load, int load_stage) {
        if (k_load + BK <= k_end && ldb % 4 == 0) {
            #pragma unroll
            for (int i = 0; i < BM * BK / (SLICES * THREADS); ++i) {
                cp_async_4(&shared.tiles.a[load_stage][a_k][a_row + i * (SLICES * THREADS / BK)],
                           &a[min(row0 + a_row + i * (SLICES * THREADS / BK), m - 1) * lda +
                              k_load + a_k]);
            }
            #pragma unroll
            for (int i = 0; i < BN * BK / (SLICES * THREADS * 4); ++i) {
                const int b_inside = col0 + b_col + 4 <= n ? 4
                                     : col0 + b_col < n    ? n - (col0 + b_col)
                                                           : 0;
                cp_async_16_zfill(
                    &shared.tiles.b[load_stage][b_k + i * (SLICES * THREADS * 4 / BN)][b_col],
                    &b[(k_load + b_k + i * (SLICES * THREADS * 4 / BN)) * ldb + col0 + b_col],
                    b_inside);
            }
        } else {
            #pragma unroll
            for (int i = 0; i < BM * BK / (SLICES * THREADS); ++i) {
                const int a_inside = k_load + a_k < k ? 1 : 0;
                cp_async_4_zfill(
                    &shared.tiles.a[load_stage][a_k][a_row + i * (SLICES * THREADS / BK)],
                    &a[min(row0 + a_row + i * (SLICES * THREADS / BK), m - 1) * lda + k_load + a_k],
                    a_inside);
            }
            #pragma unroll
            for (int i = 0; i < BN * BK / (SLICES * THREADS); ++i) {
                const int b_inside =
                    k_load + b_k_by1 + i * (SLICES * THREADS / BN) < k && col0 + b_col_by1 < n ? 1
                                                                                               : 0;
                cp_async_4_zfill(
                    &shared.tiles.b[load_stage][b_k_by1 + i * (SLICES * THREADS / BN)][b_col_by1],
                    &b[(k_load + b_k_by1 + i * (SLICES * THREADS / BN)) * ldb + col0 + b_col_by1],
                    b_inside);
            }
        }
    };

    // Main loop; cp.async fills in zeros past K.
    for (int k0 = k_begin; k0 < min(k_begin + (STAGES - 2) * BK, k_end); k0 += BK) {
        const int load_stage = (k0 - k_begin) / BK % STAGES;
        load_tiles(k0, load_stage);
        cp_async_mbarrier_arrive(&shared.tiles.full[(k0 - k_begin) / BK % STAGES]);
    }

    // Pointers to this thread's operands in the current stage.
    const float *a_tile = &shared.tiles.a[0][slice * (BK / SLICES)][local_row * 4];
    const float *b_tile = &shared.tiles.b[0][slice * (BK / SLICES)][local_col * 4];
    int slot = 0;
    if (k_begin < k_end) {
        mbarrier_wait(&shared.tiles.full[0], 0);
        #pragma unroll
        for (int i = 0; i < TM / 4; ++i) {
            copy4(&a_frag[0][i * 4], &a_tile[i * THREADS_M * 4]);
        }
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            copy4(&b_frag[0][j * 4], &b_tile[j * THREADS_N * 4]);
        }
    }
    for (int k0 = k_begin; k0 < k_end; k0 += BK) {
        const int k_ahead = k0 + (STAGES - 2) * BK;
        if (k_ahead < k_end) {
            mbarrier_wait(&shared.tiles.empty[(k_ahead - k_begin) / BK % STAGES],
                          ((k_ahead - k_begin) / BK / STAGES + 1) % 2);
            const int load_stage = (k_ahead - k_begin) / BK % STAGES;
            load_tiles(k_ahead, load_stage);
            cp_async_mbarrier_arrive(&shared.tiles.full[(k_ahead - k_begin) / BK % STAGES]);
        }
        const int k_next = k0 + BK;
        if (k_next < k_end) {
            mbarrier_wait(&shared.tiles.full[(k_next - k_begin) / BK % STAGES],
                          (k_next - k_begin) / BK / STAGES % 2);
        }
        #pragma unroll
        for (int kk = 0; kk < BK / SLICES - 1; ++kk) {
            #pragma unroll
            for (int i = 0; i < TM / 4; ++i) {
                copy4(&a_frag[(kk + 1) % 2][i * 4],
                      &a_tile[(kk + 1) * (BM + 4) + i * THREADS_M * 4]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                copy4(&b_frag[(kk + 1) % 2][j * 4], &b_tile[(kk + 1) * BN + j * THREADS_N * 4]);
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    const int turn = i % 2 == 0 ? j : TN - 1 - j;
                    acc[i][turn] = fmaf(a_frag[kk % 2][i], b_frag[kk % 2][turn], acc[i][turn]);
                }
            }
        }
        const bool last = slot == STAGES - 1;
        slot = last ? 0 : slot + 1;
        a_tile += last ? (1 - STAGES) * (BM + 4) * BK : (BM + 4) * BK;
        b_tile += last ? (1 - STAGES) * BN * BK : BN * BK;
        #pragma unroll
        for (int i = 0; i < TM / 4; ++i) {
            copy4(&a_frag[0][i * 4], &a_tile[i * THREADS_M * 4]);
        }
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            copy4(&b_frag[0][j * 4], &b_tile[j * THREADS_N * 4]);
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                const int turn = i % 2 == 0 ? j : TN - 1 - j;
                acc[i][turn] = fmaf(a_frag[1][i], b_frag[1][turn], acc[i][turn]);
            }
        }
        mbarrier_arrive(&shared.tiles.empty[(k0 - k_begin) / BK % STAGES]);
    }

    // Sliced-K: every slice writes its partial sums in place of the tiles; then they are added up.
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int partial_row = local_row * 4 + i / 4 * THREADS_M * 4 + i % 4;
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            __align__(16) float partial_values[4];
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                partial_values[e] = alpha * acc[i][j * 4 + e];
            }
            copy4(&shared.partial[slice][partial_row][local_col * 4 + j * THREADS_N * 4],
                  partial_values);
        }
    }
    __syncthreads();

    const int sum_row = local_index / (BN / 4);
    const int sum_col = local_index % (BN / 4);
    const int first_col = col0 + sum_col * 4;

    __align__(16) float total[BM / (SLICES * THREADS * 4 / BN)][4];
    #pragma unroll
    for (int i = 0; i < BM / (SLICES * THREADS * 4 / BN); ++i) {
        copy4(total[i], &shared.partial[0][sum_row + i * (SLICES * THREADS * 4 / BN)][sum_col * 4]);
        #pragma unroll
        for (int s = 1; s < SLICES; ++s) {
            __align__(16) float term[4];
            copy4(term, &shared.partial[s][sum_row + i * (SLICES * THREADS * 4 / BN)][sum_col * 4]);
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                total[i][e] += term[e];
            }
        }
    }

    // Split-K: this part's partial sums.
    #pragma unroll
    for (int i = 0; i < BM / (SLICES * THREADS * 4 / BN); ++i) {
        const int workspace_row = row0 + sum_row + i * (SLICES * THREADS * 4 / BN);
        if (workspace_row < m) {
            if (first_col + 4 <= n) {
                copy4(&workspace[part * (m * ld_workspace) + workspace_row * ld_workspace +
                                 first_col],
                      total[i]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    if (first_col + e < n) {
                        workspace[part * (m * ld_workspace) + workspace_row * ld_workspace +
                                  first_col + e] = total[i][e];
                    }
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
mbarrier_8x8_2x16_split8_total(int m, int n, const float *workspace, float beta,
                               float *__restrict__ c, int ldc)
{
    using namespace mbarrier_8x8_2x16_split8_detail;

    const int ld_workspace = (n + 3) / 4 * 4;
    const int blocks_across = (n + 255) / 256;
    const int row = int(blockIdx.x) / blocks_across;
    const int col = int(blockIdx.x) % blocks_across * 256 + int(threadIdx.x);

    griddepcontrol_wait();
    if (col < n) {
        // Reduction of split-K: the partial sums in order.
        float total = workspace[row * ld_workspace + col];
        #pragma unroll
        for (int s = 1; s < SPLIT_K; ++s) {
            total += workspace[s * (m * ld_workspace) + row * ld_workspace + col];
        }
        c[row * ldc + col] = beta == 0.0f ? total : fmaf(beta, c[row * ldc + col], total);
    }
}

#ifndef __CUDACC_RTC__
namespace mbarrier_8x8_2x16_split8_detail {

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

} // namespace mbarrier_8x8_2x16_split8_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t mbarrier_8x8_2x16_split8_launch(int m, int n, int k, float alpha,
                                                       const float *a, int lda, const float *b,
                                                       int ldb, float *workspace, float beta,
                                                       float *c, int ldc, cudaStream_t stream)
{
    using namespace mbarrier_8x8_2x16_split8_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(workspace, 16) ||
        !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        1LL * m * ((n + 3) / 4 * 4) * SPLIT_K >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    {
        if (const cudaError_t error = cudaFuncSetAttribute(
                mbarrier_8x8_2x16_split8, cudaFuncAttributeMaxDynamicSharedMemorySize,
                int(sizeof(Shared)))) {
            return error;
        }
        const dim3 grid((m + BM - 1) / BM * ((n + BN - 1) / BN) * SPLIT_K, 1);
        const dim3 block(THREADS_N, SLICES * THREADS_M);
        mbarrier_8x8_2x16_split8<<<grid, block, sizeof(Shared), stream>>>(m, n, k, alpha, a, lda, b,
                                                                          ldb, workspace);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const dim3 grid(m * ((n + 255) / 256), 1);
        const dim3 block(256, 1);
        // Programmatic dependent launch: it may begin while the previous kernel ends.
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = 0;
        config.stream = stream;
        config.attrs = &early;
        config.numAttrs = 1;
        return cudaLaunchKernelEx(&config, mbarrier_8x8_2x16_split8_total, m, n, workspace, beta, c,
                                  ldc);
    }
}
#endif
