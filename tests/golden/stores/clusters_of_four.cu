// gemm_bf16_wgmma_128x168_cluster4x1_454z: C = alpha * A * B + beta * C; bfloat16, sums in float32
//
// Schedule   --method wgmma --tile 2x42 --group 64x4 --set epilogue_stages=2 --set cluster=4x1
// Tile       128x168 of C per block, 2x42 per thread, 64 along K per step
// Threads    2 consumer warpgroups, 232 registers per thread: multiply, then store C
//            1 producer warpgroup, 40 registers per thread: one thread loads A and B
// A          global memory, TMA, 4 stages in shared memory, 128-byte swizzle
// B          global memory, TMA, 4 stages in shared memory, 128-byte swizzle, multicast to 4 blocks
// Pipeline   a full and an empty mbarrier for each stage
// Multiply   wgmma m64n168k16, sums in float32
// C          2 stages in shared memory, stored by TMA
// Grid       clusters of 4 blocks with TMA multicast; threadblock swizzle over 8 rows of blocks;
//            programmatic dependent launch
// Sizes      any m, n, k; leading dimensions multiples of 8; every matrix spans less than 2^31
//            elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (4, 96), grid ((m + 511) / 512 * ((n + 167) / 168) * 4, 1)
// Needs      197,632 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Werror all-warnings -c
//                gemm_bf16_wgmma_128x168_cluster4x1_454z.cu

#ifndef __CUDACC_RTC__
#include <cuda.h>
#include <cuda_runtime.h>
#elif !defined(GEMMGEN_TENSOR_MAP)
#define GEMMGEN_TENSOR_MAP
struct alignas(64) CUtensorMap {
    unsigned long long words[16];
};
#endif
#include <cuda_bf16.h>

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
// It has tensor maps (TMA) and instructions of warpgroups (wgmma, setmaxnreg).
#error "it needs sm_90a alone (-gencode arch=compute_90a,code=sm_90a)"
#endif

namespace gemm_bf16_wgmma_128x168_cluster4x1_454z_detail {

constexpr int BM = 128, BN = 168, BK = 64; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 4; // stages of the pipeline
constexpr int GROUP_M = 8; // threadblock swizzle: rows of blocks that run together
constexpr int CLUSTER = 4; // blocks of a cluster, which share tiles by multicast
constexpr int CONSUMERS = 256, PRODUCERS = 128; // threads that multiply, and threads that load
constexpr int THREADS = CONSUMERS + PRODUCERS; // threads of a block
static_assert(BM == 128 && BN == 168,
              "BM and BN cannot change here: this schedule has no other tile");
static_assert(BK == 64, "BK cannot change here: emit it again with --set block_k=32");
static_assert(CLUSTER == 4, "CLUSTER cannot change here: emit it again with --set cluster=2x1");
static_assert(CONSUMERS == 256,
              "CONSUMERS cannot change here: emit it again with --set group=32x4");
static_assert(PRODUCERS == 128,
              "PRODUCERS cannot change here: this schedule has no other producer_threads");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

// 2 neighbouring elements; both addresses are multiples of 4 bytes.
__device__ __forceinline__ void copy2(__nv_bfloat16 *to, const __nv_bfloat16 *from)
{
    *reinterpret_cast<unsigned *>(to) = *reinterpret_cast<const unsigned *>(from);
}

// 4 neighbouring elements; both addresses are multiples of 8 bytes.
__device__ __forceinline__ void copy4(__nv_bfloat16 *to, const __nv_bfloat16 *from)
{
    *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(from);
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

// mapa and mbarrier.arrive: one arrival at the same barrier of block `rank` of the cluster. It
// publishes no other writes, which would cost a wait for all of them.
__device__ __forceinline__ void mbarrier_arrive_cluster(unsigned long long *barrier, int rank)
{
    asm volatile("{\n"
                 ".reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
                 "}"
                 :
                 : "r"(shared_address(barrier)), "r"(rank)
                 : "memory");
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

// TMA multicast load (cp.async.bulk.tensor, .multicast::cluster) of one tile of the matrix to the
// same place in all blocks of a cluster, zeros for what lies outside the matrix. The barrier at the
// same place in each block counts the bytes that arrive there.
__device__ __forceinline__ void tma_load_2d_multicast(void *to, const CUtensorMap *map, int column,
                                                      int row, unsigned long long *barrier)
{
    const unsigned short all_blocks = 15;
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                 :
                 : "r"(shared_address(to)), "l"(map), "r"(column), "r"(row),
                   "r"(shared_address(barrier)), "h"(all_blocks)
                 : "memory");
}

// barrier.cluster of all threads of the cluster. It orders no memory except the mbarriers, which
// fence_mbarrier_init has published.
__device__ __forceinline__ void cluster_sync_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed;" : : : "memory");
    asm volatile("barrier.cluster.wait;" : : : "memory");
}

// wgmma's shared-memory matrix descriptor ("Matrix-descriptor format" in the PTX ISA) of a tile
// whose lines of 128 bytes are swizzled. Sizes count in units of 16 bytes.
template <int leading_bytes>
__device__ __forceinline__ unsigned long long own_matrix_descriptor(const void *tile)
{
    // In a cluster the upper bits of a shared address name the block, which is no part of the
    // field.
    const unsigned long long start_address = (__cvta_generic_to_shared(tile) & 0x3ffff) >> 4;
    const unsigned long long leading_offset = leading_bytes / 16; // to the next block of lines
    const unsigned long long stride_offset = 8 * 128 / 16; // to the next 8 lines
    const unsigned long long swizzle_mode = 1; // 128 bytes
    return start_address | leading_offset << 16 | stride_offset << 32 | swizzle_mode << 62;
}

// wgmma.fence: orders other instructions' writes of the accumulators before the wgmma that follows.
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

// wgmma.commit_group: makes a group of the wgmma issued since the last commit.
__device__ __forceinline__ void wgmma_commit_group()
{
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

// wgmma.wait_group: waits until at most the `pending` newest groups are incomplete.
template <int pending>
__device__ __forceinline__ void wgmma_wait_group()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(pending) : "memory");
}

// Four accumulators of a thread: two neighbours of its upper row, two of its lower row.
#define ACC(j) "+f"(acc[0][j]), "+f"(acc[0][j + 1]), "+f"(acc[1][j]), "+f"(acc[1][j + 1])

#define ALL_ACC \
    ACC(0), ACC(2), ACC(4), ACC(6), ACC(8), ACC(10), ACC(12), ACC(14), ACC(16), ACC(18), ACC(20), \
        ACC(22), ACC(24), ACC(26), ACC(28), ACC(30), ACC(32), ACC(34), ACC(36), ACC(38), ACC(40)

// wgmma.wait_group 0: after it the accumulators may be read.
__device__ __forceinline__ void wgmma_wait_all(float (*acc)[42])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" : ALL_ACC : : "memory");
}

// wgmma.mma_async: acc += A * B of a warpgroup, 64 x 16 by 16 x 168, both from shared memory. A
// thread has two rows of the accumulators, eight apart.
__device__ __forceinline__ void wgmma_m64n168k16(float (*acc)[42], unsigned long long a,
                                                 unsigned long long b)
{
    asm volatile("{\n"
                 ".reg .pred accumulate;\n"
                 "setp.eq.u32 accumulate, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n168k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
                 "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
                 "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
                 "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, "
                 "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83"
                 "}, %84, %85, accumulate, 1, 1, 0, 1;\n"
                 "}"
                 : ALL_ACC
                 : "l"(a), "l"(b));
}

#undef ALL_ACC
#undef ACC

// TMA store (cp.async.bulk.tensor) of one tile from shared memory to the matrix; what lies outside
// the matrix is not written.
__device__ __forceinline__ void tma_store_2d(const CUtensorMap *map, int column, int row,
                                             const void *from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 :
                 : "l"(map), "r"(column), "r"(row), "r"(shared_address(from))
                 : "memory");
}

// fence.proxy.async: makes this thread's writes to shared memory visible to TMA.
__device__ __forceinline__ void fence_proxy_async()
{
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

// cp.async.bulk.commit_group: makes a group of this thread's TMA stores since the last commit.
__device__ __forceinline__ void cp_async_bulk_commit_group()
{
    asm volatile("cp.async.bulk.commit_group;" : : : "memory");
}

// cp.async.bulk.wait_group.read: waits until at most the `pending` newest groups of this thread's
// TMA stores still read shared memory.
template <int pending>
__device__ __forceinline__ void cp_async_bulk_wait_group_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(pending) : "memory");
}

// The shared address of an element of a tile with the 128-byte swizzle of TMA: the line's number
// is added (xor) to the number of its 16-byte chunk, so that a column lies in different banks.
__device__ __forceinline__ unsigned swizzled_address(const void *element)
{
    const unsigned address = shared_address(element);
    return address ^ (address >> 3 & 112);
}

// stmatrix: stores four 8 x 8 matrices of a warp's accumulators to a swizzled tile, as
// __nv_bfloat16. Lane 8 q + i has the address of line i of matrix q.
__device__ __forceinline__ void stmatrix_x4(__nv_bfloat16 *line, const float *upper,
                                            const float *lower)
{
    const __nv_bfloat162 pairs[4] = {
        __floats2bfloat162_rn(upper[0], upper[1]), __floats2bfloat162_rn(lower[0], lower[1]),
        __floats2bfloat162_rn(upper[2], upper[3]), __floats2bfloat162_rn(lower[2], lower[3])};
    const unsigned *words = reinterpret_cast<const unsigned *>(pairs);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(swizzled_address(line)), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                   "r"(words[3])
                 : "memory");
}

// stmatrix: stores two 8 x 8 matrices of a warp's accumulators to a swizzled tile, as
// __nv_bfloat16. Lane 8 q + i has the address of line i of matrix q.
__device__ __forceinline__ void stmatrix_x2(__nv_bfloat16 *line, const float *upper,
                                            const float *lower)
{
    const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(upper[0], upper[1]),
                                     __floats2bfloat162_rn(lower[0], lower[1])};
    const unsigned *words = reinterpret_cast<const unsigned *>(pairs);
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                 :
                 : "r"(swizzled_address(line)), "r"(words[0]), "r"(words[1])
                 : "memory");
}

// Shared memory of a block.
// TMA swizzles the lines of tiles, so that a column of them lies in different banks.
struct Shared {
    alignas(1024) __nv_bfloat16 a[STAGES][BM][BK];
    alignas(1024) __nv_bfloat16 b[STAGES][3][BK][64];
    alignas(1024) __nv_bfloat16 c[2][CONSUMERS / 2][64];
    unsigned long long full[STAGES];
    unsigned long long empty[STAGES];
};

// Its size is an argument of the launch.
extern __shared__ __align__(1024) unsigned char shared_memory[];

} // namespace gemm_bf16_wgmma_128x168_cluster4x1_454z_detail

extern "C" __global__ void __cluster_dims__(4, 1, 1)
__launch_bounds__(gemm_bf16_wgmma_128x168_cluster4x1_454z_detail::THREADS, 1)
gemm_bf16_wgmma_128x168_cluster4x1_454z(int m, int n, int k, float alpha,
                                        const __grid_constant__ CUtensorMap a_map,
                                        const __grid_constant__ CUtensorMap b_map,
                                        const __grid_constant__ CUtensorMap b_end_map, float beta,
                                        const __grid_constant__ CUtensorMap c_map,
                                        const __grid_constant__ CUtensorMap c_end_map,
                                        __nv_bfloat16 *c, int ldc)
{
    using namespace gemm_bf16_wgmma_128x168_cluster4x1_454z_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int rank = int(blockIdx.x) % CLUSTER;
    const int blocks_down = (m + CLUSTER * BM - 1) / (CLUSTER * BM);
    const int blocks_across = (n + BN - 1) / BN;
    const int block = int(blockIdx.x) / CLUSTER;
    const int band_row = block / (blocks_across * GROUP_M) * GROUP_M;
    const int in_band = block % (blocks_across * GROUP_M);
    const int block_row = band_row + in_band % min(GROUP_M, blocks_down - band_row);
    const int block_col = in_band / min(GROUP_M, blocks_down - band_row);

    // Where C is not read, the last block begins earlier, to end where C does: TMA is slow outside
    // of matrices.
    const int row0 = beta == 0.0f ? min((block_row * CLUSTER + rank) * BM, m - min(m, BM))
                                  : (block_row * CLUSTER + rank) * BM;
    const int col0 =
        beta == 0.0f ? min(block_col * BN, (n - min(n, BN) + 7) / 8 * 8) : block_col * BN;
    const int row = row0 + local_row / 8 * 16 + local_row % 8;
    const int col = col0 + local_col * 2;
    const int local_index = local_row * 4 + local_col;
    const int warpgroup = __shfl_sync(0xffffffffu, local_row / 32, 0, 32);

    if (local_index == 0) {
        prefetch_tensormap(&a_map);
        prefetch_tensormap(&b_map);
        prefetch_tensormap(&b_end_map);
        prefetch_tensormap(&c_map);
        prefetch_tensormap(&c_end_map);
        #pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&shared.full[stage], 1);
            mbarrier_init(&shared.empty[stage], CLUSTER * CONSUMERS / 32);
        }
        fence_mbarrier_init();
    }
    cluster_sync_relaxed();
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (local_row < CONSUMERS / 4) {
        // Consumer warpgroups: multiply, then store C.
        setmaxnreg_inc<232>();
        __align__(16) float acc[2][BN / 4];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < BN / 4; ++j) {
                acc[i][j] = 0.0f;
            }
        }

        // The accumulators' zeros are written here, not later, so that no wgmma waits for another
        // (ptxas C7515).
        wgmma_wait_all(acc);
        for (int k0 = 0; k0 < k; k0 += BK) {
            const int stage = k0 / BK % STAGES;
            mbarrier_wait(&shared.full[stage], k0 / BK / STAGES % 2);
            wgmma_fence();
            const unsigned long long a_tile =
                own_matrix_descriptor<16>(shared.a[stage][warpgroup * 64]);
            const unsigned long long b_tile =
                own_matrix_descriptor<BK * 128>(shared.b[stage][0][0]);
            #pragma unroll
            for (int kk = 0; kk < BK; kk += 16) {
                wgmma_m64n168k16(acc, a_tile + kk / 8, b_tile + kk * 8);
            }
            wgmma_commit_group();

            // The previous step's wgmma are complete: its stage is free.
            wgmma_wait_group<1>();
            if (k0 > 0 && local_index % 32 < CLUSTER) {
                mbarrier_arrive_cluster(&shared.empty[(k0 / BK + STAGES - 1) % STAGES],
                                        local_index % 32);
            }
        }
        wgmma_wait_all(acc);

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < BN / 4; ++j) {
                acc[i][j] = alpha * acc[i][j];
            }
        }
        if (beta != 0.0f) {
            const bool is_low = local_col % 2 == 0;
            const int first_col = col + local_col % 2 * 6;
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int c_row = row + i * 8;
                __align__(16) __nv_bfloat16 c_old[BN / 16][4];
                #pragma unroll
                for (int j = 0; j < BN / 16; ++j) {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_old[j][e] = __nv_bfloat16();
                    }
                }
                __align__(16) __nv_bfloat16 c_old_end[2];
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    c_old_end[e] = __nv_bfloat16();
                }
                if (n % 4 == 0) {
                    #pragma unroll
                    for (int j = 0; j < BN / 16; ++j) {
                        const int c_col = first_col + j * 16;
                        if (c_row < m && c_col + 4 <= n) {
                            copy4(c_old[j], &c[c_row * ldc + c_col]);
                        }
                    }
                    const int end_col = col + BN / 16 * 16;
                    if (c_row < m && end_col + 2 <= n) {
                        copy2(c_old_end, &c[c_row * ldc + end_col]);
                    }
                } else {
                    #pragma unroll
                    for (int j = 0; j < BN / 16; ++j) {
                        const int c_col = first_col + j * 16;
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            if (c_row < m && c_col + e < n) {
                                c_old[j][e] = c[c_row * ldc + c_col + e];
                            }
                        }
                    }
                    const int end_col = col + BN / 16 * 16;
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        if (c_row < m && end_col + e < n) {
                            c_old_end[e] = c[c_row * ldc + end_col + e];
                        }
                    }
                }
                #pragma unroll
                for (int j = 0; j < BN / 16; ++j) {
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const __nv_bfloat16 received = __shfl_xor_sync(
                            0xffffffffu, is_low ? c_old[j][e + 2] : c_old[j][e], 1, 32);
                        c_old[j][e] = is_low ? c_old[j][e] : received;
                        c_old[j][e + 2] = is_low ? received : c_old[j][e + 2];
                    }
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        acc[i][j * 4 + e] = fmaf(beta, float(c_old[j][e]), acc[i][j * 4 + e]);
                    }
                }
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    acc[i][e + BN / 16 * 4] =
                        fmaf(beta, float(c_old_end[e]), acc[i][e + BN / 16 * 4]);
                }
            }
            __syncwarp();
        }

        // Each warp stores its rows of C by TMA, one box after the other.
        const int first_line = local_index / 32 * 16;
        const int own_line = first_line + local_index % 16;
        const int own_part = local_index % 32 / 16 * 8;
        #pragma unroll
        for (int tma_tile = 0; tma_tile < 2; ++tma_tile) {
            if (n % 8 != 0 && n < col0 + tma_tile * 64 + 64) {
                // TMA stores at least 16 bytes: the ragged end of C goes element by element.
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int c_row = row + i * 8;
                    #pragma unroll
                    for (int j = 0; j < 16; ++j) {
                        const int c_col = col + tma_tile * 64 + j / 2 * 8 + j % 2;
                        if (c_row < m && c_col < n) {
                            c[c_row * ldc + c_col] = __nv_bfloat16(acc[i][tma_tile * 16 + j]);
                        }
                    }
                }
            } else {
                // Wait until an earlier TMA store has read this stage.
                cp_async_bulk_wait_group_read<1>();
                __syncwarp();
                #pragma unroll
                for (int p = 0; p < 4; ++p) {
                    stmatrix_x4(&shared.c[tma_tile % 2][own_line][own_part + p * 16],
                                &acc[0][tma_tile * 16 + p * 4], &acc[1][tma_tile * 16 + p * 4]);
                }
                fence_proxy_async();
                __syncwarp();
                if (local_col == 0 && local_row % 8 == 0) {
                    tma_store_2d(&c_map, col0 + tma_tile * 64, row0 + first_line,
                                 shared.c[tma_tile % 2][first_line]);
                }
            }
            cp_async_bulk_commit_group();
        }
        if (n % 8 != 0 && n < col0 + 168) {
            // TMA stores at least 16 bytes: the ragged end of C goes element by element.
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int c_row = row + i * 8;
                #pragma unroll
                for (int j = 0; j < 10; ++j) {
                    const int c_col = col + j / 2 * 8 + j % 2 + 128;
                    if (c_row < m && c_col < n) {
                        c[c_row * ldc + c_col] = __nv_bfloat16(acc[i][j + 32]);
                    }
                }
            }
        } else {
            // Wait until an earlier TMA store has read this stage.
            cp_async_bulk_wait_group_read<1>();
            __syncwarp();
            #pragma unroll
            for (int p = 0; p < 2; ++p) {
                stmatrix_x4(&shared.c[0][own_line][own_part + p * 16], &acc[0][p * 4 + 32],
                            &acc[1][p * 4 + 32]);
            }
            stmatrix_x2(&shared.c[0][own_line][own_part + 32], &acc[0][40], &acc[1][40]);
            fence_proxy_async();
            __syncwarp();
            if (local_col == 0 && local_row % 8 == 0) {
                tma_store_2d(&c_end_map, col0 + 128, row0 + first_line, shared.c[0][first_line]);
            }
        }
        cp_async_bulk_commit_group();

        // A block may not exit while TMA stores still read its shared memory.
        cp_async_bulk_wait_group_read<0>();
    } else {
        // Producer: one thread loads tiles by TMA while a stage is free.
        setmaxnreg_dec<40>();
        if (local_index == CONSUMERS) {
            for (int k0 = 0; k0 < k; k0 += BK) {
                const int stage = k0 / BK % STAGES;
                mbarrier_wait(&shared.empty[stage], (k0 / BK / STAGES + 1) % 2);
                mbarrier_arrive_expect_tx(&shared.full[stage], (BM + BN) * BK * 2);
                tma_load_2d(shared.a[stage][0], &a_map, k0, row0, &shared.full[stage]);
                #pragma unroll
                for (int i = 0; i < BN / 64; ++i) {
                    tma_load_2d_multicast(shared.b[stage][i][rank * (BK / CLUSTER)], &b_map,
                                          col0 + i * 64, k0 + rank * (BK / CLUSTER),
                                          &shared.full[stage]);
                }
                tma_load_2d_multicast(shared.b[stage][BN / 64][rank * (BK / CLUSTER)], &b_end_map,
                                      col0 + BN / 64 * 64, k0 + rank * (BK / CLUSTER),
                                      &shared.full[stage]);
            }
        }
    }

    // A block may not exit while others of the cluster still copy to it.
    cluster_sync_relaxed();
}

#ifndef __CUDACC_RTC__
namespace gemm_bf16_wgmma_128x168_cluster4x1_454z_detail {

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
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

} // namespace gemm_bf16_wgmma_128x168_cluster4x1_454z_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t gemm_bf16_wgmma_128x168_cluster4x1_454z_launch(
    int m, int n, int k, float alpha, const __nv_bfloat16 *a, int lda, const __nv_bfloat16 *b,
    int ldb, float beta, __nv_bfloat16 *c, int ldc, cudaStream_t stream)
{
    using namespace gemm_bf16_wgmma_128x168_cluster4x1_454z_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || lda % 8 != 0 || ldb % 8 != 0 || ldc % 8 != 0 || !is_in_reach(m, k, lda) ||
        !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    CUtensorMap a_map = {};
    if (const cudaError_t error = k > 0 ? make_tensor_map(&a_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                                          2, a, m, k, lda, BM, BK)
                                        : cudaSuccess) {
        return error;
    }
    CUtensorMap b_map = {};
    if (const cudaError_t error = k > 0 ? make_tensor_map(&b_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                                          2, b, k, n, ldb, BK / CLUSTER, 64)
                                        : cudaSuccess) {
        return error;
    }
    CUtensorMap b_end_map = {};
    if (const cudaError_t error =
            k > 0 ? make_tensor_map(&b_end_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, b, k, n, ldb,
                                    BK / CLUSTER, 40)
                  : cudaSuccess) {
        return error;
    }
    CUtensorMap c_map = {};
    if (const cudaError_t error =
            make_tensor_map(&c_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, c, m, n, ldc, 16, 64)) {
        return error;
    }
    CUtensorMap c_end_map = {};
    if (const cudaError_t error = make_tensor_map(&c_end_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
                                                  c, m, n, ldc, 16, 40)) {
        return error;
    }
    if (const cudaError_t error = cudaFuncSetAttribute(gemm_bf16_wgmma_128x168_cluster4x1_454z,
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       int(sizeof(Shared)))) {
        return error;
    }
    const dim3 grid((m + CLUSTER * BM - 1) / (CLUSTER * BM) * ((n + BN - 1) / BN) * CLUSTER, 1);
    const dim3 block(4, CONSUMERS / 4 + PRODUCERS / 4);
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
    return cudaLaunchKernelEx(&config, gemm_bf16_wgmma_128x168_cluster4x1_454z, m, n, k, alpha,
                              a_map, b_map, b_end_map, beta, c_map, c_end_map, c, ldc);
}
#endif
