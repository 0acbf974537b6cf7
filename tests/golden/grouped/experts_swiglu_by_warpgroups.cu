// experts_swiglu_by_warpgroups: C = A * B, then swiglu; bfloat16, sums in float32; groups of rows
// by offsets
//
// Tile       128x128 of C per block, 2x32 per thread, 64 along K per step
// Threads    2 consumer warpgroups, 232 registers per thread: multiply, then store C
//            1 producer warpgroup, 40 registers per thread: one thread loads A and B
// A          global memory, TMA, 4 stages in shared memory, 128-byte swizzle
// B          global memory, TMA, 4 stages in shared memory, 128-byte swizzle
// Pipeline   a full and an empty mbarrier for each stage
// Multiply   wgmma m64n256k16, sums in float32
// C          2 stages in shared memory, stored by TMA
// Grid       persistent blocks, each loops over tiles of C; threadblock swizzle over 16 rows of
//            blocks; programmatic dependent launch
// Sizes      any m, n, k; leading dimensions multiples of 8; every matrix spans less than 2^31
//            elements
// Epilogue   swiglu: acc * fast_sigmoid(acc) * up
// Takes      offsets: group_count ends of groups among the rows of A and C, 65,536 at most,
//                ascending, the last at most m; a group begins where the one before ends, and has a
//                B of its own, stride_b elements behind the one before
//            B: 2 n columns; acc is the sum of column j of them, up that of column n + j
// Unread     A and B where k is 0
// Launch     block (4, 96), grid (min((m / 128 + group_count) * ((n + 127) / 128), as many as run
//            at once))
// Needs      230,400 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Werror all-warnings -c
//                experts_swiglu_by_warpgroups.cu

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

namespace experts_swiglu_by_warpgroups_detail {

constexpr int BM = 128, BN = 256, BK = 64; // block tile: BM x BN of A * B, BK along K per step
constexpr int STAGES = 4; // stages of the pipeline
constexpr int GROUP_M = 16; // threadblock swizzle: rows of blocks that run together
constexpr int CONSUMERS = 256, PRODUCERS = 128; // threads that multiply, and threads that load
constexpr int THREADS = CONSUMERS + PRODUCERS; // threads of a block
static_assert(BM == 128 && BN == 256,
              "BM and BN cannot change here: emit it again with --set tile=2x32");
static_assert(CONSUMERS == 256,
              "CONSUMERS cannot change here: emit it again with --set group=32x4");
static_assert(PRODUCERS == 128,
              "PRODUCERS cannot change here: this schedule has no other producer_threads");
static_assert(BK % 64 == 0, "BK must be a multiple of 64");
static_assert(BK <= 256, "BK must be 256 or less: TMA tiles have no longer sides");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

// An address in shared memory as PTX instructions take it.
__device__ __forceinline__ unsigned shared_address(const void *pointer)
{
    return unsigned(__cvta_generic_to_shared(pointer));
}

// 2^x by one instruction; results below 2^-126 become 0.
__device__ __forceinline__ float fast_exp2(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// 1 / (1 + exp(-x)), by a polynomial for 1 / (1 + power), where power = exp(-|x|); the relative
// error is below 2^-14.
__device__ __forceinline__ float fast_sigmoid(float x)
{
    const float power = fast_exp2(-1.4426950408889634f * fabsf(x));
    float sigmoid = -0.10911257f;
    sigmoid = fmaf(sigmoid, power, 0.43077686f);
    sigmoid = fmaf(sigmoid, power, -0.78354042f);
    sigmoid = fmaf(sigmoid, power, 0.95915479f);
    sigmoid = fmaf(sigmoid, power, -0.99730819f);
    sigmoid = fmaf(sigmoid, power, 1.0f);
    return x < 0.0f ? power * sigmoid : sigmoid;
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
__device__ __forceinline__ void tma_load_3d(void *to, const CUtensorMap *map, int column, int row,
                                            int batch, unsigned long long *barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %5}], [%4];"
                 :
                 : "r"(shared_address(to)), "l"(map), "r"(column), "r"(row),
                   "r"(shared_address(barrier)), "r"(batch)
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

// wgmma's shared-memory matrix descriptor ("Matrix-descriptor format" in the PTX ISA) of a tile
// whose lines of 128 bytes are swizzled. Sizes count in units of 16 bytes.
template <int leading_bytes>
__device__ __forceinline__ unsigned long long matrix_descriptor(const void *tile)
{
    const unsigned long long start_address = __cvta_generic_to_shared(tile) >> 4;
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
        ACC(22), ACC(24), ACC(26), ACC(28), ACC(30), ACC(32), ACC(34), ACC(36), ACC(38), ACC(40), \
        ACC(42), ACC(44), ACC(46), ACC(48), ACC(50), ACC(52), ACC(54), ACC(56), ACC(58), ACC(60), \
        ACC(62)

// wgmma.wait_group 0: after it the accumulators may be read.
__device__ __forceinline__ void wgmma_wait_all(float (*acc)[64])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" : ALL_ACC : : "memory");
}

// wgmma.mma_async: acc += A * B of a warpgroup, 64 x 16 by 16 x 256, both from shared memory. A
// thread has two rows of the accumulators, eight apart.
__device__ __forceinline__ void wgmma_m64n256k16(float (*acc)[64], unsigned long long a,
                                                 unsigned long long b)
{
    asm volatile("{\n"
                 ".reg .pred accumulate;\n"
                 "setp.eq.u32 accumulate, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
                 "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
                 "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
                 "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, "
                 "%67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, "
                 "%93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, "
                 "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, "
                 "%116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
                 "%127"
                 "}, %128, %129, accumulate, 1, 1, 0, 1;\n"
                 "}"
                 : ALL_ACC
                 : "l"(a), "l"(b));
}

#undef ALL_ACC
#undef ACC

// TMA store (cp.async.bulk.tensor) of one tile from shared memory to the matrix; what lies outside
// the matrix is not written.
__device__ __forceinline__ void tma_store_3d(const CUtensorMap *map, int column, int row, int batch,
                                             const void *from)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %4}], [%3];"
                 :
                 : "l"(map), "r"(column), "r"(row), "r"(shared_address(from)), "r"(batch)
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

// Shared memory of a block.
// TMA swizzles the lines of tiles, so that a column of them lies in different banks.
struct Shared {
    alignas(1024) __nv_bfloat16 a[STAGES][BK / 64][BM][64];
    alignas(1024) __nv_bfloat16 b[STAGES][BN / 64][BK][64];
    alignas(1024) __nv_bfloat16 c[BN / 128][CONSUMERS / 2][64];
    unsigned long long full[STAGES];
    unsigned long long empty[STAGES];
};

// Its size is an argument of the launch.
extern __shared__ __align__(1024) unsigned char shared_memory[];

} // namespace experts_swiglu_by_warpgroups_detail

extern "C" __global__ void __launch_bounds__(experts_swiglu_by_warpgroups_detail::THREADS, 1)
experts_swiglu_by_warpgroups(int m, int n, int k, int group_count, const int *offsets,
                             const __grid_constant__ CUtensorMap a_map,
                             const __grid_constant__ CUtensorMap b_map,
                             const __grid_constant__ CUtensorMap c_map, __nv_bfloat16 *c, int ldc)
{
    using namespace experts_swiglu_by_warpgroups_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    griddepcontrol_wait();

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int blocks_across = (n + BN / 2 - 1) / (BN / 2);
    const int local_index = local_row * 4 + local_col;
    const int warpgroup = __shfl_sync(0xffffffffu, local_row / 32, 0, 32);

    if (local_index == 0) {
        prefetch_tensormap(&a_map);
        prefetch_tensormap(&b_map);
        prefetch_tensormap(&c_map);
        #pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&shared.full[stage], 1);
            mbarrier_init(&shared.empty[stage], CONSUMERS / 32);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    griddepcontrol_launch_dependents();
    if (local_row < CONSUMERS / 4) {
        // Consumer warpgroups: multiply, then store C.
        setmaxnreg_inc<232>();
        int next_block = int(blockIdx.x);
        int steps_done = 0;
        for (int group = 0; group < group_count; ++group) {
            // The blocks of all groups in line: the first that is dealt to this one, then every so
            // many.
            const int group_begin = group == 0 ? 0 : offsets[group - 1];
            const int group_rows = min(offsets[group], m) - group_begin;
            const int blocks_down = (max(0, group_rows) + BM - 1) / BM;
            const int blocks = blocks_down * blocks_across;
            const int first_block = next_block;
            const int waves = (max(0, blocks - first_block) + int(gridDim.x) - 1) / int(gridDim.x);
            next_block = first_block + waves * int(gridDim.x) - blocks;
            for (int wave = 0; wave < waves; ++wave) {
                const int block = first_block + wave * int(gridDim.x);
                const int band_row = block / (blocks_across * GROUP_M) * GROUP_M;
                const int in_band = block % (blocks_across * GROUP_M);
                const int block_row = band_row + in_band % min(GROUP_M, blocks_down - band_row);
                const int block_col = in_band / min(GROUP_M, blocks_down - band_row);

                // The last block begins earlier, to end where C does: TMA is slow outside of
                // matrices.
                const int row0 = block_row * BM;
                const int col0 = min(block_col * (BN / 2), (n - min(n, BN / 2) + 7) / 8 * 8);
                const int col = col0 + local_col * 2;
                __align__(16) float acc[2][BN / 4];
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    #pragma unroll
                    for (int j = 0; j < BN / 4; ++j) {
                        acc[i][j] = 0.0f;
                    }
                }
                const int steps = (max(0, k) + BK - 1) / BK;
                const int steps_before = steps_done;
                steps_done = steps_before + steps;
                for (int k0 = 0; k0 < k; k0 += BK) {
                    const int step = steps_before + k0 / BK;
                    const int stage = step % STAGES;
                    mbarrier_wait(&shared.full[stage], step / STAGES % 2);
                    wgmma_fence();
                    const unsigned long long a_tile =
                        matrix_descriptor<16>(shared.a[stage][0][warpgroup * 64]);
                    const unsigned long long b_tile =
                        matrix_descriptor<BK * 128>(shared.b[stage][0][0]);
                    #pragma unroll
                    for (int k_block = 0; k_block < BK / 64; ++k_block) {
                        #pragma unroll
                        for (int kk = 0; kk < 64; kk += 16) {
                            wgmma_m64n256k16(acc, a_tile + (k_block * BM * 64 + kk) / 8,
                                             b_tile + (k_block * 64 + kk) * 8);
                        }
                    }
                    wgmma_commit_group();

                    // The previous step's wgmma are complete: its stage is free.
                    wgmma_wait_group<1>();
                    if (k0 > 0 && local_index % 32 == 0) {
                        mbarrier_arrive(&shared.empty[(step + STAGES - 1) % STAGES]);
                    }
                }
                wgmma_wait_all(acc);

                // The last step's stage is free as well.
                if (steps > 0 && local_index % 32 == 0) {
                    mbarrier_arrive(&shared.empty[(steps_before + steps - 1) % STAGES]);
                }
                cp_async_bulk_wait_group_read<0>();
                __syncwarp();

                // swiglu: one element of C of the sums in both halves of B's columns.
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    #pragma unroll
                    for (int j = 0; j < BN / 8; ++j) {
                        const float gate = acc[i][j];
                        const float up = acc[i][j + BN / 8];
                        acc[i][j] = gate * fast_sigmoid(gate) * up;
                    }
                }

                // Each warp stores its rows of C by TMA, one box after the other.
                const int first_line = local_index / 32 * 16;
                const int own_line = first_line + local_index % 16;
                const int own_part = local_index % 32 / 16 * 8;
                #pragma unroll
                for (int tma_tile = 0; tma_tile < 2; ++tma_tile) {
                    if (n % 8 != 0 && n < col0 + tma_tile * 64 + 64) {
                        // TMA stores at least 16 bytes: the ragged end of C goes element by
                        // element.
                        #pragma unroll
                        for (int i = 0; i < 2; ++i) {
                            const int c_row =
                                m - group_rows + row0 + local_row / 8 * 16 + local_row % 8 + i * 8;
                            #pragma unroll
                            for (int j = 0; j < 16; ++j) {
                                const int c_col = col + tma_tile * 64 + j / 2 * 8 + j % 2;
                                if (c_row < m && c_col < n) {
                                    c[(group_begin + group_rows + c_row - m) * ldc + c_col] =
                                        __nv_bfloat16(acc[i][tma_tile * 16 + j]);
                                }
                            }
                        }
                    } else {
                        #pragma unroll
                        for (int p = 0; p < 4; ++p) {
                            stmatrix_x4(
                                &shared.c[tma_tile % (BN / 128)][own_line][own_part + p * 16],
                                &acc[0][tma_tile * 16 + p * 4], &acc[1][tma_tile * 16 + p * 4]);
                        }
                        fence_proxy_async();
                        __syncwarp();
                        if (local_col == 0 && local_row % 8 == 0) {
                            tma_store_3d(&c_map, col0 + tma_tile * 64,
                                         m - group_rows + row0 + first_line,
                                         group_begin + group_rows,
                                         shared.c[tma_tile % (BN / 128)][first_line]);
                        }
                    }
                    cp_async_bulk_commit_group();
                }
            }
        }

        // A block may not exit while TMA stores still read its shared memory.
        cp_async_bulk_wait_group_read<0>();
    } else {
        // Producer: one thread loads tiles by TMA while a stage is free.
        setmaxnreg_dec<40>();
        if (local_index == CONSUMERS) {
            int next_block = int(blockIdx.x);
            int steps_done = 0;
            for (int group = 0; group < group_count; ++group) {
                const int group_begin = group == 0 ? 0 : offsets[group - 1];
                const int group_rows = min(offsets[group], m) - group_begin;
                const int blocks_down = (max(0, group_rows) + BM - 1) / BM;
                const int blocks = blocks_down * blocks_across;
                const int first_block = next_block;
                const int waves =
                    (max(0, blocks - first_block) + int(gridDim.x) - 1) / int(gridDim.x);
                next_block = first_block + waves * int(gridDim.x) - blocks;
                for (int wave = 0; wave < waves; ++wave) {
                    const int block = first_block + wave * int(gridDim.x);
                    const int band_row = block / (blocks_across * GROUP_M) * GROUP_M;
                    const int in_band = block % (blocks_across * GROUP_M);
                    const int block_row = band_row + in_band % min(GROUP_M, blocks_down - band_row);
                    const int block_col = in_band / min(GROUP_M, blocks_down - band_row);
                    const int row0 = block_row * BM;
                    const int col0 = min(block_col * (BN / 2), (n - min(n, BN / 2) + 7) / 8 * 8);
                    const int steps = (max(0, k) + BK - 1) / BK;
                    const int steps_before = steps_done;
                    steps_done = steps_before + steps;
                    for (int k0 = 0; k0 < k; k0 += BK) {
                        const int step = steps_before + k0 / BK;
                        const int stage = step % STAGES;
                        mbarrier_wait(&shared.empty[stage], (step / STAGES + 1) % 2);
                        mbarrier_arrive_expect_tx(&shared.full[stage], (BM + BN) * BK * 2);
                        #pragma unroll
                        for (int i = 0; i < BK / 64; ++i) {
                            tma_load_3d(shared.a[stage][i][0], &a_map, k0 + i * 64,
                                        m - group_rows + row0, group_begin + group_rows,
                                        &shared.full[stage]);
                        }
                        #pragma unroll
                        for (int i = 0; i < BN / 128; ++i) {
                            tma_load_3d(shared.b[stage][i][0], &b_map, col0 + i * 64, k0, group,
                                        &shared.full[stage]);
                        }
                        #pragma unroll
                        for (int i = 0; i < BN / 128; ++i) {
                            tma_load_3d(shared.b[stage][i + BN / 128][0], &b_map, n + col0 + i * 64,
                                        k0, group, &shared.full[stage]);
                        }
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace experts_swiglu_by_warpgroups_detail {

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

// The tensor map of a batch of matrices for TMA: `count` of them, `step` elements apart, or one for
// all where that is 0; each of `lines` of `length` elements of `size` bytes, `pitch` elements
// apart, in TMA tiles of box_lines x box_length. The driver's entry point is looked up, so that
// nothing has to be linked. It refuses a matrix, or lines, that are not aligned to 16 bytes.
static cudaError_t make_tensor_map(CUtensorMap *map, CUtensorMapDataType type, int size,
                                   const void *matrix, int lines, int length, long long pitch,
                                   int count, long long step, unsigned box_lines,
                                   unsigned box_length)
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
    const cuuint64_t extents[3] = {cuuint64_t(length), cuuint64_t(lines), cuuint64_t(count)};
    // The pitch of a single line and the step of a single matrix are never used, and need not be
    // multiples of 16 bytes.
    const cuuint64_t between = cuuint64_t(pitch) * cuuint64_t(size);
    const cuuint64_t apart = cuuint64_t(step) * cuuint64_t(size);
    const cuuint64_t strides[2] = {lines > 1 ? between : (extents[0] * size + 15) / 16 * 16,
                                   count > 1 ? apart : 0};
    const cuuint32_t box[3] = {box_length, box_lines, 1};
    const cuuint32_t steps[3] = {1, 1, 1};
    const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
        map, type, 3, const_cast<void *>(matrix), extents, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// How many blocks of a kernel the current device runs at once.
template <typename Kernel>
static cudaError_t blocks_at_once(int *blocks, Kernel *kernel, int threads, int shared_bytes)
{
    int device = 0;
    int multiprocessors = 0;
    int together = 0;
    cudaError_t done = cudaGetDevice(&device);
    if (done == cudaSuccess) {
        done = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (done == cudaSuccess) {
        done =
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, kernel, threads, shared_bytes);
    }
    *blocks = multiprocessors * together;
    return done;
}

} // namespace experts_swiglu_by_warpgroups_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t experts_swiglu_by_warpgroups_launch(int m, int n, int k, int group_count,
                                                           const int *offsets,
                                                           const __nv_bfloat16 *a, int lda,
                                                           const __nv_bfloat16 *b, int ldb,
                                                           long long stride_b, __nv_bfloat16 *c,
                                                           int ldc, cudaStream_t stream)
{
    using namespace experts_swiglu_by_warpgroups_detail;

    if (m < 1 || n < 1 || group_count < 1) {
        return cudaSuccess;
    }
    if (!is_aligned(offsets, 4) || !is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || group_count > 65536 || n >= 1 << 30 || lda % 8 != 0 || ldb % 8 != 0 ||
        stride_b % 8 != 0 || ldc % 8 != 0 || !is_in_reach(m, k, lda) ||
        !is_in_reach(k, n * 2, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    // For each line e that a group may end at, the map has a matrix of the m lines before line e:
    // TMA fills what lies past a group with zeros. The first of these matrices ends where a begins.
    CUtensorMap a_map = {};
    if (const cudaError_t error = k > 0 ? make_tensor_map(&a_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                                          2, a - static_cast<long long>(m) * lda, m,
                                                          k, lda, m + 1, lda, BM, 64)
                                        : cudaSuccess) {
        return error;
    }
    CUtensorMap b_map = {};
    if (const cudaError_t error =
            k > 0 ? make_tensor_map(&b_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, b, k, n * 2, ldb,
                                    group_count, stride_b, BK, 64)
                  : cudaSuccess) {
        return error;
    }
    // For each line e that a group may end at, the map has a matrix of the m lines before line e:
    // TMA fills what lies past a group with zeros. The first of these matrices ends where c begins.
    CUtensorMap c_map = {};
    if (const cudaError_t error =
            make_tensor_map(&c_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
                            c - static_cast<long long>(m) * ldc, m, n, ldc, m + 1, ldc, 16, 64)) {
        return error;
    }
    if (const cudaError_t error = cudaFuncSetAttribute(experts_swiglu_by_warpgroups,
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       int(sizeof(Shared)))) {
        return error;
    }
    // No more blocks than run at once: each goes on until all of C is computed.
    int most = 0;
    const cudaError_t asked = blocks_at_once(&most, experts_swiglu_by_warpgroups,
                                             CONSUMERS + PRODUCERS, int(sizeof(Shared)));
    if (asked != cudaSuccess) {
        return asked;
    }
    const int blocks = (m / BM + group_count) * ((n + BN / 2 - 1) / (BN / 2));
    const dim3 grid(blocks < most ? blocks : most);
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
    return cudaLaunchKernelEx(&config, experts_swiglu_by_warpgroups, m, n, k, group_count, offsets,
                              a_map, b_map, c_map, c, ldc);
}
#endif
