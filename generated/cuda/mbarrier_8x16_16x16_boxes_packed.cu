// mbarrier_8x16_16x16_boxes_packed: C = alpha * A * B + beta * C; float32
//
// Tile       128x256 of C per block, 8x16 per thread, 8 along K per step
// Threads    2 consumer warpgroups, 232 registers per thread: multiply, then store C
//            1 producer warpgroup, 40 registers per thread: one thread loads A and B
// A          global memory, prepacked by a kernel before, TMA, 16 stages in shared memory,
//            registers double-buffered across tiles
// B          global memory, prepacked by a kernel before, TMA, 16 stages in shared memory,
//            registers double-buffered across tiles
// Pipeline   a full and an empty mbarrier for every 4 stages
// Multiply   fused multiply-add, rows in serpentine order
// C          stores of 4 elements
// Grid       stream-K: a block per multiprocessor, parts of blocks added up by a second kernel;
//            threadblock swizzle over 8 rows of blocks; programmatic dependent launch
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     mbarrier_8x16_16x16_boxes_packed_pack: block (32, 8), grid ((k + 31) / 32 * ((m + 127)
//                / 128 * 4) + (k + 31) / 32 * ((n + 255) / 256 * 8), 1)
//            mbarrier_8x16_16x16_boxes_packed: block (16, 24), grid (groups, 1)
//            mbarrier_8x16_16x16_boxes_packed_total: block (256, 1), grid (min((m + 127) / 128 *
//                ((n + 255) / 256), (m + 127) / 128 * ((n + 255) / 256) % groups + groups) * 128,
//                1)
// Needs      196,736 bytes of shared memory
//            a_packed of (k + 31) / 32 * 32 * ((m + 127) / 128 * 128) elements, aligned to 16 bytes
//            b_packed of (k + 31) / 32 * 32 * ((n + 255) / 256 * 256) elements, aligned to 16 bytes
//            a workspace of groups * 65536 elements, aligned to 16 bytes
//            matrices that begin on multiples of 16 bytes
//            groups as many as the device has multiprocessors
// Build      nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Werror all-warnings -c
//                mbarrier_8x16_16x16_boxes_packed.cu

#ifndef __CUDACC_RTC__
#include <cuda.h>
#include <cuda_runtime.h>
#elif !defined(GEMMGEN_TENSOR_MAP)
#define GEMMGEN_TENSOR_MAP
struct alignas(64) CUtensorMap {
    unsigned long long words[16];
};
#endif

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
// It has tensor maps (TMA) and instructions of warpgroups (wgmma, setmaxnreg).
#error "it needs sm_90a alone (-gencode arch=compute_90a,code=sm_90a)"
#endif

namespace mbarrier_8x16_16x16_boxes_packed_detail {

constexpr int BM = 128, BN = 256, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 16; // stages of the pipeline
constexpr int GROUP_M = 8; // threadblock swizzle: rows of blocks that run together
constexpr int THREADS_M = 16, THREADS_N = 16; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int PRODUCERS = 128; // threads that load
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: gemmgen emit --preset "
              "mbarrier_8x16_16x16_boxes_packed --backend cuda --set group=8x16");
static_assert(PRODUCERS == 128,
              "PRODUCERS cannot change here: this schedule has no other producer_threads");
static_assert(TM % 4 == 0 && TN % 4 == 0 && STAGES % 4 == 0,
              "TM, TN and STAGES must be multiples of 4");
static_assert(BM * BK * 16 % 128 == 0 && BN * BK * 16 % 128 == 0,
              "BM * BK * 16 and BN * BK * 16 must be multiples of 128");
static_assert(BK % 8 == 0, "BK must be a multiple of 8");
static_assert(BM % 32 == 0 && BN % 32 == 0, "BM and BN must be multiples of 32");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 4 && TN > 4, "TM and TN must exceed 4 here: gemmgen emit --preset "
                                "mbarrier_8x16_16x16_boxes_packed --backend cuda --set tile=4x16");
static_assert(STAGES >= 12, "STAGES must be 12 or more: mbarriers hand over 3 batches");
static_assert(BM <= 256 && BN <= 256 && BK * 4 <= 256,
              "BM, BN and BK * 4 must be 256 or less: TMA tiles have no longer sides");
static_assert(BK >= 2, "BK must be 2 or more: a TMA tile has several lines");

constexpr int BLOCK_THREADS = PRODUCERS / THREADS_N * THREADS_N + THREADS;

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

// mbarrier.arrive.expect_tx: one arrival; the phase also waits for `bytes` bytes of TMA loads.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned long long *barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// fence.mbarrier_init: makes initialised barriers visible to TMA and to the cluster.
__device__ __forceinline__ void fence_mbarrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

// prefetch.tensormap: fetches a tensor map into the cache.
__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" : : "l"(map) : "memory");
}

// TMA load (cp.async.bulk.tensor) of one tile of the matrix to shared memory, zeros for what lies
// outside the matrix. `barrier` counts the bytes that arrive.
__device__ __forceinline__ void tma_load_2d(void *to, const CUtensorMap *map, int column, int row,
                                            unsigned long long *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :
                 : "r"(shared_address(to)), "l"(map), "r"(column), "r"(row),
                   "r"(shared_address(barrier))
                 : "memory");
}

// setmaxnreg.inc: waits until the other warps have freed enough registers, then takes them.
template <int registers>
__device__ __forceinline__ void setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(registers));
}

// setmaxnreg.dec: keeps `registers` registers and frees the others.
template <int registers>
__device__ __forceinline__ void setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(registers));
}

// Shared memory of a block.
struct Shared {
    alignas(128) float a[STAGES][BK][BM];
    alignas(128) float b[STAGES][BK][BN];
    unsigned long long full[STAGES / 4];
    unsigned long long empty[STAGES / 4];
};

// Its size is an argument of the launch.
extern __shared__ __align__(128) unsigned char shared_memory[];

} // namespace mbarrier_8x16_16x16_boxes_packed_detail

extern "C" __global__ void __launch_bounds__(256)
mbarrier_8x16_16x16_boxes_packed_pack(int m, int n, int k, const float *__restrict__ a, int lda,
                                      const float *__restrict__ b, int ldb,
                                      float *__restrict__ a_packed, float *__restrict__ b_packed)
{
    using namespace mbarrier_8x16_16x16_boxes_packed_detail;

    griddepcontrol_launch_dependents();

    const int m_whole = (m + BM - 1) / BM * BM;
    const int n_whole = (n + BN - 1) / BN * BN;
    const int k_whole = (k + BK * 4 - 1) / (BK * 4) * BK * 4;
    const int a_blocks = (k_whole + 31) / 32 * ((m_whole + 31) / 32);
    const int block = int(blockIdx.x) < a_blocks ? int(blockIdx.x) : int(blockIdx.x) - a_blocks;
    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);

    // Padded: lines begin in different banks.
    __shared__ float a_tile[32][33];
    if (int(blockIdx.x) < a_blocks) {
        const int a_slow = block / ((m_whole + 31) / 32) * 32;
        const int a_fast = block % ((m_whole + 31) / 32) * 32;

        // Transposed through a tile, so that reads and writes are both contiguous.
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            a_tile[i * 8 + local_row][local_col] =
                a_fast + i * 8 + local_row < m && a_slow + local_col < k
                    ? a[(a_fast + i * 8 + local_row) * lda + a_slow + local_col]
                    : 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (a_slow + i * 8 + local_row < k_whole && a_fast + local_col < m_whole) {
                a_packed[(a_slow + i * 8 + local_row) * m_whole + a_fast + local_col] =
                    a_tile[local_col][i * 8 + local_row];
            }
        }
    } else {
        const int b_slow = block / ((n_whole + 31) / 32) * 32;
        const int b_fast = block % ((n_whole + 31) / 32) * 32;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (b_slow + i * 8 + local_row < k_whole && b_fast + local_col < n_whole) {
                b_packed[(b_slow + i * 8 + local_row) * n_whole + b_fast + local_col] =
                    b_slow + i * 8 + local_row < k && b_fast + local_col < n
                        ? b[(b_slow + i * 8 + local_row) * ldb + b_fast + local_col]
                        : 0.0f;
            }
        }
    }
}

extern "C" __global__ void
    __launch_bounds__(mbarrier_8x16_16x16_boxes_packed_detail::BLOCK_THREADS, 1)
    mbarrier_8x16_16x16_boxes_packed(int m, int n, int k, float alpha,
                                     const __grid_constant__ CUtensorMap a_packed_map,
                                     const __grid_constant__ CUtensorMap b_packed_map,
                                     float *__restrict__ workspace, float beta,
                                     float *__restrict__ c, int ldc)
{
    using namespace mbarrier_8x16_16x16_boxes_packed_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_index = int(threadIdx.y) * THREADS_N + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int local_row =
        warp / (THREADS_N / 8) * 4 + lane / 16 * 2 + (lane / 8 + lane / 2 + lane) % 2;
    const int local_col = warp % (THREADS_N / 8) * 8 + lane % 8;
    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int groups = int(gridDim.x);

    // Stream-K: groups compute whole blocks in turn; the others' batches along K are dealt out.
    const int blocks = blocks_down * blocks_across;
    const int batches = max(1, (k + BK * 4 - 1) / (BK * 4));
    const int whole_blocks = blocks - min(blocks, blocks % groups + groups);
    const int dealt = (blocks - whole_blocks) * batches;

    // This group: whole blocks, then an equal part of the batches; a segment is of one block.
    const int group = int(blockIdx.x);
    const int own = whole_blocks / groups;
    const int first_batch = group * (dealt / groups) + min(group, dealt % groups);
    const int last_batch = (group + 1) * (dealt / groups) + min(group + 1, dealt % groups);
    const int segments = own + (last_batch + batches - 1) / batches - first_batch / batches;
    const int k_whole = (k + BK * 4 - 1) / (BK * 4) * BK * 4;

    if (local_index == 0) {
        prefetch_tensormap(&a_packed_map);
        prefetch_tensormap(&b_packed_map);
        #pragma unroll
        for (int stage = 0; stage < STAGES / 4; ++stage) {
            mbarrier_init(&shared.full[stage], 1);
            mbarrier_init(&shared.empty[stage], THREADS);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    griddepcontrol_wait();
    if (local_row < THREADS_M) {
        // Consumer warpgroups: multiply, then store C.
        setmaxnreg_inc<232>();
        __align__(16) float a_frag[2][TM];
        __align__(16) float b_frag[2][TN];
        for (int segment = 0; segment < segments; ++segment) {
            // The block of this segment, and its batches from batch_begin to batch_end.
            const int block = segment < own ? segment * groups + group
                                            : whole_blocks + first_batch / batches + segment - own;
            const int batch_begin =
                segment < own ? 0 : max(0, first_batch - (block - whole_blocks) * batches);
            const int batch_end = segment < own
                                      ? batches
                                      : min(batches, last_batch - (block - whole_blocks) * batches);

            // Batches that this group loaded before, which say where the ring stands.
            const int before = segment < own ? segment * batches
                                             : own * batches + (block - whole_blocks) * batches +
                                                   batch_begin - first_batch;

            // A group has two places for partial sums: of a block's end, then of a block's begin.
            const int share = group * 2 + (batch_begin > 0 ? 0 : 1);
            const int band_row = block / (blocks_across * GROUP_M) * GROUP_M;
            const int in_band = block % (blocks_across * GROUP_M);
            const int block_row = band_row + in_band % min(GROUP_M, blocks_down - band_row);
            const int block_col = in_band / min(GROUP_M, blocks_down - band_row);
            const int row0 = block_row * BM;
            const int col0 = block_col * BN;
            const int row = row0 + local_row * 4;
            const int col = col0 + local_col * 4;
            const int k_begin = batch_begin * BK * 4;
            const int k_end = min(k_whole, batch_end * BK * 4);
            float acc[TM][TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = 0.0f;
                }
            }

            // Pointers to this thread's operands in the current stage.
            const float *a_tile = &shared.a[before * 4 % STAGES][0][local_row * 4];
            const float *b_tile = &shared.b[before * 4 % STAGES][0][local_col * 4];
            int slot = before * 4 % STAGES;
            if (k_begin < k_end) {
                mbarrier_wait(&shared.full[before % (STAGES / 4)], before / (STAGES / 4) % 2);
                #pragma unroll
                for (int i = 0; i < TM / 4; ++i) {
                    copy4(&a_frag[0][i * 4], &a_tile[i * THREADS_M * 4]);
                }
                #pragma unroll
                for (int j = 0; j < TN / 4; ++j) {
                    copy4(&b_frag[0][j * 4], &b_tile[j * THREADS_N * 4]);
                }
            }
            for (int k_batch = k_begin; k_batch < k_end; k_batch += BK * 4) {
                const int k_next = k_batch + BK * 4;
                if (k_next < k_end) {
                    mbarrier_wait(
                        &shared.full[(before + (k_next - k_begin) / (BK * 4)) % (STAGES / 4)],
                        (before + (k_next - k_begin) / (BK * 4)) / (STAGES / 4) % 2);
                }
                for (int k0 = k_batch; k0 < k_batch + BK * 4; k0 += BK) {
                    #pragma unroll
                    for (int kk = 0; kk < BK - 1; ++kk) {
                        #pragma unroll
                        for (int i = 0; i < TM / 4; ++i) {
                            copy4(&a_frag[(kk + 1) % 2][i * 4],
                                  &a_tile[(kk + 1) * BM + i * THREADS_M * 4]);
                        }
                        #pragma unroll
                        for (int j = 0; j < TN / 4; ++j) {
                            copy4(&b_frag[(kk + 1) % 2][j * 4],
                                  &b_tile[(kk + 1) * BN + j * THREADS_N * 4]);
                        }
                        #pragma unroll
                        for (int i = 0; i < TM; ++i) {
                            #pragma unroll
                            for (int j = 0; j < TN; ++j) {
                                const int turn = i % 2 == 0 ? j : TN - 1 - j;
                                acc[i][turn] =
                                    fmaf(a_frag[kk % 2][i], b_frag[kk % 2][turn], acc[i][turn]);
                            }
                        }
                    }
                    const bool last = slot == STAGES - 1;
                    slot = last ? 0 : slot + 1;
                    a_tile += last ? (1 - STAGES) * BM * BK : BM * BK;
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
                }
                mbarrier_arrive(
                    &shared.empty[(before + (k_batch - k_begin) / (BK * 4)) % (STAGES / 4)]);
            }
            if (batch_begin == 0 && batch_end == batches) {
                // C = alpha * A * B + beta * C; C is not read where beta is zero.
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
                    if (c_row < m) {
                        #pragma unroll
                        for (int j = 0; j < TN / 4; ++j) {
                            if (col + j * THREADS_N * 4 + 4 <= n && ldc % 4 == 0) {
                                __align__(16) float c_values[4];
                                #pragma unroll
                                for (int e = 0; e < 4; ++e) {
                                    c_values[e] = alpha * acc[i][j * 4 + e];
                                }
                                if (beta != 0.0f) {
                                    __align__(16) float c_old[4];
                                    copy4(c_old, &c[c_row * ldc + col + j * THREADS_N * 4]);
                                    #pragma unroll
                                    for (int e = 0; e < 4; ++e) {
                                        c_values[e] = fmaf(beta, c_old[e], c_values[e]);
                                    }
                                }
                                copy4(&c[c_row * ldc + col + j * THREADS_N * 4], c_values);
                            } else {
                                #pragma unroll
                                for (int e = 0; e < 4; ++e) {
                                    if (col + j * THREADS_N * 4 + e < n) {
                                        c[c_row * ldc + col + j * THREADS_N * 4 + e] =
                                            beta == 0.0f
                                                ? alpha * acc[i][j * 4 + e]
                                                : fmaf(beta,
                                                       c[c_row * ldc + col + j * THREADS_N * 4 + e],
                                                       alpha * acc[i][j * 4 + e]);
                                    }
                                }
                            }
                        }
                    }
                }
            } else {
                // A part of a block: partial sums for the fix-up.
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    const int workspace_row = local_row * 4 + i / 4 * THREADS_M * 4 + i % 4;
                    if (workspace_row < BM) {
                        #pragma unroll
                        for (int j = 0; j < TN / 4; ++j) {
                            __align__(16) float workspace_values[4];
                            #pragma unroll
                            for (int e = 0; e < 4; ++e) {
                                workspace_values[e] = alpha * acc[i][j * 4 + e];
                            }
                            copy4(&workspace[share * BM * BN + workspace_row * BN + local_col * 4 +
                                             j * THREADS_N * 4],
                                  workspace_values);
                        }
                    }
                }
            }
        }
        griddepcontrol_launch_dependents();
    } else {
        // Producer: one thread loads tiles by TMA while a stage is free.
        setmaxnreg_dec<40>();
        if (local_index == THREADS) {
            for (int segment = 0; segment < segments; ++segment) {
                const int block = segment < own
                                      ? segment * groups + group
                                      : whole_blocks + first_batch / batches + segment - own;
                const int batch_begin =
                    segment < own ? 0 : max(0, first_batch - (block - whole_blocks) * batches);
                const int batch_end =
                    segment < own ? batches
                                  : min(batches, last_batch - (block - whole_blocks) * batches);
                const int before = segment < own
                                       ? segment * batches
                                       : own * batches + (block - whole_blocks) * batches +
                                             batch_begin - first_batch;
                const int band_row = block / (blocks_across * GROUP_M) * GROUP_M;
                const int in_band = block % (blocks_across * GROUP_M);
                const int block_row = band_row + in_band % min(GROUP_M, blocks_down - band_row);
                const int block_col = in_band / min(GROUP_M, blocks_down - band_row);
                const int row0 = block_row * BM;
                const int col0 = block_col * BN;
                const int k_begin = batch_begin * BK * 4;
                const int k_end = min(k_whole, batch_end * BK * 4);
                for (int k_batch = k_begin; k_batch < k_end; k_batch += BK * 4) {
                    mbarrier_wait(
                        &shared.empty[(before + (k_batch - k_begin) / (BK * 4)) % (STAGES / 4)],
                        ((before + (k_batch - k_begin) / (BK * 4)) / (STAGES / 4) + 1) % 2);
                    mbarrier_arrive_expect_tx(
                        &shared.full[(before + (k_batch - k_begin) / (BK * 4)) % (STAGES / 4)],
                        (BM + BN) * BK * 16);
                    tma_load_2d(
                        shared.a[(before * 4 + (k_batch - k_begin) / BK) % STAGES][0],
                        &a_packed_map, row0, k_batch,
                        &shared.full[(before + (k_batch - k_begin) / (BK * 4)) % (STAGES / 4)]);
                    tma_load_2d(
                        shared.b[(before * 4 + (k_batch - k_begin) / BK) % STAGES][0],
                        &b_packed_map, col0, k_batch,
                        &shared.full[(before + (k_batch - k_begin) / (BK * 4)) % (STAGES / 4)]);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(mbarrier_8x16_16x16_boxes_packed_detail::BN)
mbarrier_8x16_16x16_boxes_packed_total(int m, int n, int k, int groups, const float *workspace,
                                       float beta, float *__restrict__ c, int ldc)
{
    using namespace mbarrier_8x16_16x16_boxes_packed_detail;

    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;

    // Stream-K: groups compute whole blocks in turn; the others' batches along K are dealt out.
    const int blocks = blocks_down * blocks_across;
    const int batches = max(1, (k + BK * 4 - 1) / (BK * 4));
    const int whole_blocks = blocks - min(blocks, blocks % groups + groups);
    const int dealt = (blocks - whole_blocks) * batches;
    const int local_row = int(blockIdx.x) % BM;
    const int local_col = int(threadIdx.x);

    // The block that this group finishes a row of.
    const int block = whole_blocks + int(blockIdx.x) / BM;
    const int band_row = block / (blocks_across * GROUP_M) * GROUP_M;
    const int in_band = block % (blocks_across * GROUP_M);
    const int block_row = band_row + in_band % min(GROUP_M, blocks_down - band_row);
    const int block_col = in_band / min(GROUP_M, blocks_down - band_row);
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int row = row0 + local_row;
    const int col = col0 + local_col;

    // Groups that computed its first and its last batch; where they are one, it stored C itself.
    const int first_group = (block - whole_blocks) * batches < dealt % groups * (dealt / groups + 1)
                                ? (block - whole_blocks) * batches / (dealt / groups + 1)
                                : dealt % groups + ((block - whole_blocks) * batches -
                                                    dealt % groups * (dealt / groups + 1)) /
                                                       max(1, dealt / groups);
    const int last_group =
        (block - whole_blocks) * batches + batches - 1 < dealt % groups * (dealt / groups + 1)
            ? ((block - whole_blocks) * batches + batches - 1) / (dealt / groups + 1)
            : dealt % groups + ((block - whole_blocks) * batches + batches - 1 -
                                dealt % groups * (dealt / groups + 1)) /
                                   max(1, dealt / groups);

    griddepcontrol_wait();
    if (first_group < last_group && row < m && col < n) {
        // Fix-up of stream-K: the partial sums in order. C = alpha * A * B + beta * C; C is not
        // read where beta is zero.
        float total = workspace[(first_group * 2 + 1) * BM * BN + local_row * BN + local_col];
        for (int group = first_group + 1; group < last_group + 1; ++group) {
            total += workspace[group * BM * BN * 2 + local_row * BN + local_col];
        }
        c[row * ldc + col] = beta == 0.0f ? total : fmaf(beta, c[row * ldc + col], total);
    }
}

#ifndef __CUDACC_RTC__
namespace mbarrier_8x16_16x16_boxes_packed_detail {

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

// The tensor map of a matrix for TMA: `lines` of `length` elements of `size` bytes, `pitch`
// elements apart, in TMA tiles of box_lines x box_length. The driver's entry point is looked up, so
// that nothing has to be linked. It refuses a matrix, or lines, that are not aligned to 16 bytes.
static cudaError_t make_tensor_map(CUtensorMap *map, CUtensorMapDataType type, int size,
                                   const void *matrix, int lines, int length, long long pitch,
                                   unsigned box_lines, unsigned box_length)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult known;
#if CUDART_VERSION >= 12050
    const cudaError_t asked = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                               12000, cudaEnableDefault, &known);
#else
    const cudaError_t asked =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &known);
#endif
    if (asked != cudaSuccess || known != cudaDriverEntryPointSuccess) {
        return asked != cudaSuccess ? asked : cudaErrorInsufficientDriver;
    }
    const cuuint64_t extents[2] = {cuuint64_t(length), cuuint64_t(lines)};
    // The pitch of a single line is never used, and need not be a multiple of 16 bytes.
    const cuuint64_t between = cuuint64_t(pitch) * cuuint64_t(size);
    const cuuint64_t strides[1] = {lines > 1 ? between : (extents[0] * size + 15) / 16 * 16};
    const cuuint32_t box[2] = {box_length, box_lines};
    const cuuint32_t steps[2] = {1, 1};
    const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
        map, type, 2, const_cast<void *>(matrix), extents, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// How many multiprocessors the current device has.
static cudaError_t multiprocessors(int *count)
{
    int device = 0;
    const cudaError_t found = cudaGetDevice(&device);
    return found != cudaSuccess
               ? found
               : cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

} // namespace mbarrier_8x16_16x16_boxes_packed_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t
mbarrier_8x16_16x16_boxes_packed_launch(int m, int n, int k, float alpha, const float *a, int lda,
                                        const float *b, int ldb, float *a_packed, float *b_packed,
                                        float *workspace, float beta, float *c, int ldc,
                                        cudaStream_t stream)
{
    using namespace mbarrier_8x16_16x16_boxes_packed_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(a_packed, 16) ||
        !is_aligned(b_packed, 16) || !is_aligned(workspace, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        1LL * (k + BK * 4 - 1) / (BK * 4) * BK * 4 * ((m + BM - 1) / BM * BM) >= 1LL << 31 ||
        1LL * (k + BK * 4 - 1) / (BK * 4) * BK * 4 * ((n + BN - 1) / BN * BN) >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    int groups = 0;
    const cudaError_t counted = multiprocessors(&groups);
    if (counted != cudaSuccess) {
        return counted;
    }
    if (k > 0) {
        const dim3 grid((k + BK * 4 - 1) / (BK * 4) * (BK / 8) * ((m + BM - 1) / BM * (BM / 32)) +
                            (k + BK * 4 - 1) / (BK * 4) * (BK / 8) *
                                ((n + BN - 1) / BN * (BN / 32)),
                        1);
        const dim3 block(32, 8);
        mbarrier_8x16_16x16_boxes_packed_pack<<<grid, block, 0, stream>>>(m, n, k, a, lda, b, ldb,
                                                                          a_packed, b_packed);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        CUtensorMap a_packed_map = {};
        if (const cudaError_t error =
                k > 0 ? make_tensor_map(&a_packed_map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, a_packed,
                                        (k + BK * 4 - 1) / (BK * 4) * BK * 4,
                                        (m + BM - 1) / BM * BM, (m + BM - 1) / BM * BM, BK * 4, BM)
                      : cudaSuccess) {
            return error;
        }
        CUtensorMap b_packed_map = {};
        if (const cudaError_t error =
                k > 0 ? make_tensor_map(&b_packed_map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, b_packed,
                                        (k + BK * 4 - 1) / (BK * 4) * BK * 4,
                                        (n + BN - 1) / BN * BN, (n + BN - 1) / BN * BN, BK * 4, BN)
                      : cudaSuccess) {
            return error;
        }
        if (const cudaError_t error = cudaFuncSetAttribute(
                mbarrier_8x16_16x16_boxes_packed, cudaFuncAttributeMaxDynamicSharedMemorySize,
                int(sizeof(Shared)))) {
            return error;
        }
        const dim3 grid(groups, 1);
        const dim3 block(THREADS_N, THREADS_M + PRODUCERS / THREADS_N);
        // Programmatic dependent launch: it may begin while the previous kernel ends.
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = sizeof(Shared);
        config.stream = stream;
        config.attrs = &early;
        config.numAttrs = 1;
        const cudaError_t launched =
            cudaLaunchKernelEx(&config, mbarrier_8x16_16x16_boxes_packed, m, n, k, alpha,
                               a_packed_map, b_packed_map, workspace, beta, c, ldc);
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const dim3 grid(min((m + BM - 1) / BM * ((n + BN - 1) / BN),
                            (m + BM - 1) / BM * ((n + BN - 1) / BN) % groups + groups) *
                            BM,
                        1);
        const dim3 block(BN, 1);
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
        return cudaLaunchKernelEx(&config, mbarrier_8x16_16x16_boxes_packed_total, m, n, k, groups,
                                  workspace, beta, c, ldc);
    }
}
#endif
