// mbarrier_8x16_16x16_stream: C = alpha * A * B + beta * C; float32
//
// Tile       128x256 of C per block, 8x16 per thread, 8 along K per step
// Threads    16x16 per block, warps of 4x8 threads, lanes swizzled
//            a warp reads few different elements of A and B, next to one another: no bank conflicts
//            neighbouring lanes read different rows of A: no read of shared memory is a broadcast
// A          global memory, prepacked by a kernel before, cp.async of 4 elements, 16 stages in
//            shared memory, registers double-buffered across tiles
// B          global memory, cp.async of 4 elements, 16 stages in shared memory, registers
//            double-buffered across tiles
// Pipeline   a full and an empty mbarrier for every 4 stages
// Multiply   fused multiply-add, rows in serpentine order
// C          stores of 4 elements
// Grid       stream-K: a block per multiprocessor, parts of blocks added up by a second kernel;
//            threadblock swizzle over 8 rows of blocks; programmatic dependent launch
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     mbarrier_8x16_16x16_stream_pack: block (32, 8), grid ((k + 31) / 32 * ((m + 127) / 128
//                * 4), 1)
//            mbarrier_8x16_16x16_stream: block (16, 16), grid (groups, 1)
//            mbarrier_8x16_16x16_stream_total: block (256, 1), grid (min((m + 127) / 128 * ((n +
//                255) / 256), (m + 127) / 128 * ((n + 255) / 256) % groups + groups) * 128, 1)
// Needs      196,672 bytes of shared memory
//            a_packed of (k + 31) / 32 * 32 * ((m + 127) / 128 * 128) elements, aligned to 16 bytes
//            a workspace of groups * 65536 elements, aligned to 16 bytes
//            matrices that begin on multiples of 16 bytes
//            groups as many as the device has multiprocessors
// Build      nvcc -std=c++17 -O3 -arch=sm_90 -Werror all-warnings -c mbarrier_8x16_16x16_stream.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
// It has mbarrier.try_wait and griddepcontrol.
#error "mbarrier_8x16_16x16_stream needs sm_90 or later"
#endif

namespace mbarrier_8x16_16x16_stream_detail {

constexpr int BM = 128, BN = 256, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 16; // stages of the pipeline
constexpr int GROUP_M = 8; // threadblock swizzle: rows of blocks that run together
constexpr int THREADS_M = 16, THREADS_N = 16; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset mbarrier_8x16_16x16_stream --backend cuda --set group=8x16");
static_assert(TM % 4 == 0 && TN % 4 == 0 && STAGES % 4 == 0,
              "TM, TN and STAGES must be multiples of 4");
static_assert(BM * BK % (THREADS * 4) == 0 && BN * BK % (THREADS * 4) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 4");
static_assert(THREADS * 4 % BM == 0, "THREADS * 4 must be a multiple of BM");
static_assert(THREADS % BN == 0, "THREADS must be a multiple of BN");
static_assert(BK % 8 == 0, "BK must be a multiple of 8");
static_assert(BM % 32 == 0, "BM must be a multiple of 32");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 4 && TN > 4,
              "TM and TN must exceed 4 here: "
              "gemmgen emit --preset mbarrier_8x16_16x16_stream --backend cuda --set tile=4x16");
static_assert(STAGES >= 12, "STAGES must be 12 or more: mbarriers hand over 3 batches");

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

// cp.async: begins the copy of 16 bytes to shared memory.
__device__ __forceinline__ void cp_async_16(float *to, const float *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
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

// Shared memory of a block.
struct Shared {
    alignas(16) float a[STAGES][BK][BM];
    alignas(16) float b[STAGES][BK][BN];
    unsigned long long full[STAGES / 4];
    unsigned long long empty[STAGES / 4];
};

// Its size is an argument of the launch.
extern __shared__ __align__(16) unsigned char shared_memory[];

} // namespace mbarrier_8x16_16x16_stream_detail

extern "C" __global__ void __launch_bounds__(256)
mbarrier_8x16_16x16_stream_pack(int m, int k, const float *__restrict__ a, int lda,
                                float *__restrict__ a_packed)
{
    using namespace mbarrier_8x16_16x16_stream_detail;

    griddepcontrol_launch_dependents();

    const int m_whole = (m + BM - 1) / BM * BM;
    const int k_whole = (k + BK * 4 - 1) / (BK * 4) * BK * 4;
    const int block = int(blockIdx.x);
    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);

    // Padded: lines begin in different banks.
    __shared__ float a_tile[32][33];

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
}

extern "C" __global__ void __launch_bounds__(mbarrier_8x16_16x16_stream_detail::THREADS)
mbarrier_8x16_16x16_stream(int m, int n, int k, float alpha, const float *a_packed,
                           const float *__restrict__ b, int ldb, float *__restrict__ workspace,
                           float beta, float *__restrict__ c, int ldc)
{
    using namespace mbarrier_8x16_16x16_stream_detail;
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
    const int m_whole = (m + BM - 1) / BM * BM;
    const int a_packed_k = local_index / (BM / 4);
    const int a_packed_row = local_index % (BM / 4) * 4;
    const int b_k = local_index / (BN / 4);
    const int b_col = local_index % (BN / 4) * 4;
    const int b_k_by1 = local_index / BN;
    const int b_col_by1 = local_index % BN;

    __align__(16) float a_frag[2][TM];
    __align__(16) float b_frag[2][TN];
    if (local_index < STAGES / 4) {
        mbarrier_init(&shared.full[local_index], THREADS);
        mbarrier_init(&shared.empty[local_index], THREADS);
    }
    __syncthreads();
    griddepcontrol_wait();
    for (int segment = 0; segment < segments; ++segment) {
        // The block of this segment, and its batches from batch_begin to batch_end.
        const int block = segment < own ? segment * groups + group
                                        : whole_blocks + first_batch / batches + segment - own;
        const int batch_begin =
            segment < own ? 0 : max(0, first_batch - (block - whole_blocks) * batches);
        const int batch_end =
            segment < own ? batches : min(batches, last_batch - (block - whole_blocks) * batches);

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
        const int k_end = min(k, batch_end * BK * 4);
        float acc[TM][TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[i][j] = 0.0f;
            }
        }

        // Begins the loads of the tiles at k_load to a stage.
        const auto load_tiles = [&](int k_load, int load_stage) {
            if (k_load + BK * 4 <= k_end && ldb % 4 == 0) {
                #pragma unroll
                for (int t = 0; t < 4; ++t) {
                    #pragma unroll
                    for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                        cp_async_16(
                            &shared.a[load_stage + t][a_packed_k + i * (THREADS * 4 / BM)]
                                     [a_packed_row],
                            &a_packed[(k_load + t * BK + a_packed_k + i * (THREADS * 4 / BM)) *
                                          m_whole +
                                      row0 + a_packed_row]);
                    }
                    #pragma unroll
                    for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                        const int b_inside = col0 + b_col + 4 <= n ? 4
                                             : col0 + b_col < n    ? n - (col0 + b_col)
                                                                   : 0;
                        cp_async_16_zfill(
                            &shared.b[load_stage + t][b_k + i * (THREADS * 4 / BN)][b_col],
                            &b[(k_load + t * BK + b_k + i * (THREADS * 4 / BN)) * ldb + col0 +
                               b_col],
                            b_inside);
                    }
                }
            } else {
                for (int t = 0; t < 4; ++t) {
                    #pragma unroll
                    for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                        cp_async_16(
                            &shared.a[load_stage + t][a_packed_k + i * (THREADS * 4 / BM)]
                                     [a_packed_row],
                            &a_packed[(k_load + t * BK + a_packed_k + i * (THREADS * 4 / BM)) *
                                          m_whole +
                                      row0 + a_packed_row]);
                    }
                    #pragma unroll
                    for (int i = 0; i < BN * BK / THREADS; ++i) {
                        const int b_inside = k_load + t * BK + b_k_by1 + i * (THREADS / BN) < k &&
                                                     col0 + b_col_by1 < n
                                                 ? 1
                                                 : 0;
                        cp_async_4_zfill(
                            &shared.b[load_stage + t][b_k_by1 + i * (THREADS / BN)][b_col_by1],
                            &b[(k_load + t * BK + b_k_by1 + i * (THREADS / BN)) * ldb + col0 +
                               b_col_by1],
                            b_inside);
                    }
                }
            }
        };

        // Main loop; cp.async fills in zeros past K.
        for (int k_batch = k_begin; k_batch < min(k_begin + (STAGES - 8) * BK, k_end);
             k_batch += BK * 4) {
            const int load_stage = (before * 4 + (k_batch - k_begin) / BK) % STAGES;
            load_tiles(k_batch, load_stage);
            cp_async_mbarrier_arrive(
                &shared.full[(before + (k_batch - k_begin) / (BK * 4)) % (STAGES / 4)]);
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
            const int k_ahead = k_batch + (STAGES - 8) * BK;
            if (k_ahead < k_end) {
                mbarrier_wait(
                    &shared.empty[(before + (k_ahead - k_begin) / (BK * 4)) % (STAGES / 4)],
                    ((before + (k_ahead - k_begin) / (BK * 4)) / (STAGES / 4) + 1) % 2);
                const int load_stage = (before * 4 + (k_ahead - k_begin) / BK) % STAGES;
                load_tiles(k_ahead, load_stage);
                cp_async_mbarrier_arrive(
                    &shared.full[(before + (k_ahead - k_begin) / (BK * 4)) % (STAGES / 4)]);
            }
            const int k_next = k_batch + BK * 4;
            if (k_next < k_end) {
                mbarrier_wait(&shared.full[(before + (k_next - k_begin) / (BK * 4)) % (STAGES / 4)],
                              (before + (k_next - k_begin) / (BK * 4)) / (STAGES / 4) % 2);
            }
            for (int k0 = k_batch; k0 < min(k_batch + BK * 4, k_end); k0 += BK) {
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
        __syncthreads();
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
    griddepcontrol_launch_dependents();
}

extern "C" __global__ void __launch_bounds__(mbarrier_8x16_16x16_stream_detail::BN)
mbarrier_8x16_16x16_stream_total(int m, int n, int k, int groups, const float *workspace,
                                 float beta, float *__restrict__ c, int ldc)
{
    using namespace mbarrier_8x16_16x16_stream_detail;

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
namespace mbarrier_8x16_16x16_stream_detail {

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

// How many multiprocessors the current device has.
static cudaError_t multiprocessors(int *count)
{
    int device = 0;
    const cudaError_t found = cudaGetDevice(&device);
    return found != cudaSuccess
               ? found
               : cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

} // namespace mbarrier_8x16_16x16_stream_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t mbarrier_8x16_16x16_stream_launch(int m, int n, int k, float alpha,
                                                         const float *a, int lda, const float *b,
                                                         int ldb, float *a_packed, float *workspace,
                                                         float beta, float *c, int ldc,
                                                         cudaStream_t stream)
{
    using namespace mbarrier_8x16_16x16_stream_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(a_packed, 16) ||
        !is_aligned(workspace, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        1LL * (k + BK * 4 - 1) / (BK * 4) * BK * 4 * ((m + BM - 1) / BM * BM) >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    int groups = 0;
    const cudaError_t counted = multiprocessors(&groups);
    if (counted != cudaSuccess) {
        return counted;
    }
    if (k > 0) {
        const dim3 grid((k + BK * 4 - 1) / (BK * 4) * (BK / 8) * ((m + BM - 1) / BM * (BM / 32)),
                        1);
        const dim3 block(32, 8);
        mbarrier_8x16_16x16_stream_pack<<<grid, block, 0, stream>>>(m, k, a, lda, a_packed);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        if (const cudaError_t error = cudaFuncSetAttribute(
                mbarrier_8x16_16x16_stream, cudaFuncAttributeMaxDynamicSharedMemorySize,
                int(sizeof(Shared)))) {
            return error;
        }
        const dim3 grid(groups, 1);
        const dim3 block(THREADS_N, THREADS_M);
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
            cudaLaunchKernelEx(&config, mbarrier_8x16_16x16_stream, m, n, k, alpha, a_packed, b,
                               ldb, workspace, beta, c, ldc);
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
        return cudaLaunchKernelEx(&config, mbarrier_8x16_16x16_stream_total, m, n, k, groups,
                                  workspace, beta, c, ldc);
    }
}
#endif
