// gemm_bf16_wgmma_128x128_cmhf: C = A * B; bfloat16, sums in float32
//
// Schedule   --method wgmma --tile 2x32 --group 64x4 --set c_width=1
// Tile       128x128 of C per block, 2x32 per thread, 64 along K per step
// Threads    2 consumer warpgroups, 232 registers per thread: multiply, then store C
//            1 producer warpgroup, 40 registers per thread: one thread loads A and B
// A          global memory, TMA, 4 stages in shared memory, 128-byte swizzle
// B          global memory, TMA, 4 stages in shared memory, 128-byte swizzle
// Pipeline   a full and an empty mbarrier for each stage
// Multiply   wgmma m64n128k16, sums in float32
// C          staged in shared memory, stores of single elements
// Grid       threadblock swizzle over 8 rows of blocks; programmatic dependent launch
// Sizes      any m, n, k; leading dimensions multiples of 8 (A), 8 (B), 1 (C); every matrix spans
//            less than 2^31 elements
// Unread     A and B where k is 0
// Launch     block (4, 96), grid ((m + 127) / 128 * ((n + 127) / 128), 1)
// Needs      132,096 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Werror all-warnings -c
//                gemm_bf16_wgmma_128x128_cmhf.cu

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

namespace gemm_bf16_wgmma_128x128_cmhf_detail {

constexpr int BM = 128, BN = 128, BK = 64; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 4; // stages of the pipeline
constexpr int GROUP_M = 8; // threadblock swizzle: rows of blocks that run together
constexpr int CONSUMERS = 256, PRODUCERS = 128; // threads that multiply, and threads that load
constexpr int THREADS = CONSUMERS + PRODUCERS; // threads of a block
static_assert(BM == 128 && BN == 128,
              "BM and BN cannot change here: emit it again with --set tile=2x16");
static_assert(CONSUMERS == 256,
              "CONSUMERS cannot change here: emit it again with --set group=32x4");
static_assert(PRODUCERS == 128,
              "PRODUCERS cannot change here: this schedule has no other producer_threads");
static_assert(BK % 64 == 0, "BK must be a multiple of 64");
static_assert(BK <= 256, "BK must be 256 or less: TMA tiles have no longer sides");
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

// bar.sync of the consumer threads only; barrier 0 is __syncthreads().
template <int threads>
__device__ __forceinline__ void named_barrier_sync()
{
    asm volatile("bar.sync 1, %0;" : : "n"(threads) : "memory");
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
        ACC(22), ACC(24), ACC(26), ACC(28), ACC(30)

// wgmma.wait_group 0: after it the accumulators may be read.
__device__ __forceinline__ void wgmma_wait_all(float (*acc)[32])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" : ALL_ACC : : "memory");
}

// wgmma.mma_async: acc += A * B of a warpgroup, 64 x 16 by 16 x 128, both from shared memory. A
// thread has two rows of the accumulators, eight apart.
__device__ __forceinline__ void wgmma_m64n128k16(float (*acc)[32], unsigned long long a,
                                                 unsigned long long b)
{
    asm volatile("{\n"
                 ".reg .pred accumulate;\n"
                 "setp.eq.u32 accumulate, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
                 "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
                 "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
                 "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, accumulate, 1, 1, 0, 1;\n"
                 "}"
                 : ALL_ACC
                 : "l"(a), "l"(b));
}

#undef ALL_ACC
#undef ACC

// Shared memory of a block: the tiles, and when they have been read, what takes their place.
// TMA swizzles the lines of tiles, so that a column of them lies in different banks.
union Shared {
    struct {
        alignas(1024) __nv_bfloat16 a[STAGES][BK / 64][BM][64];
        alignas(1024) __nv_bfloat16 b[STAGES][BN / 64][BK][64];
        unsigned long long full[STAGES];
        unsigned long long empty[STAGES];
    } tiles;
    alignas(16) float sums[BM][BN + 8]; // padded: lines begin in different banks
};

// Its size is an argument of the launch.
extern __shared__ __align__(1024) unsigned char shared_memory[];

} // namespace gemm_bf16_wgmma_128x128_cmhf_detail

extern "C" __global__ void __launch_bounds__(gemm_bf16_wgmma_128x128_cmhf_detail::THREADS, 1)
gemm_bf16_wgmma_128x128_cmhf(int m, int n, int k, const __grid_constant__ CUtensorMap a_map,
                             const __grid_constant__ CUtensorMap b_map, __nv_bfloat16 *c, int ldc)
{
    using namespace gemm_bf16_wgmma_128x128_cmhf_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int block = int(blockIdx.x);
    const int band_row = block / (blocks_across * GROUP_M) * GROUP_M;
    const int in_band = block % (blocks_across * GROUP_M);
    const int block_row = band_row + in_band % min(GROUP_M, blocks_down - band_row);
    const int block_col = in_band / min(GROUP_M, blocks_down - band_row);

    // The last block begins earlier, to end where C does: TMA is slow outside of matrices.
    const int row0 = min(block_row * BM, m - min(m, BM));
    const int col0 = min(block_col * BN, (n - min(n, BN) + 7) / 8 * 8);
    const int local_index = local_row * 4 + local_col;
    const int warpgroup = __shfl_sync(0xffffffffu, local_row / 32, 0, 32);

    if (local_index == 0) {
        prefetch_tensormap(&a_map);
        prefetch_tensormap(&b_map);
        #pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&shared.tiles.full[stage], 1);
            mbarrier_init(&shared.tiles.empty[stage], CONSUMERS / 32);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (local_row < CONSUMERS / 4) {
        // Consumer warpgroups: multiply, then store C.
        setmaxnreg_inc<232>();
        float acc[2][BN / 4];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < BN / 4; ++j) {
                acc[i][j] = 0.0f;
            }
        }
        for (int k0 = 0; k0 < k; k0 += BK) {
            const int stage = k0 / BK % STAGES;
            mbarrier_wait(&shared.tiles.full[stage], k0 / BK / STAGES % 2);
            wgmma_fence();
            const unsigned long long a_tile =
                matrix_descriptor<16>(shared.tiles.a[stage][0][warpgroup * 64]);
            const unsigned long long b_tile =
                matrix_descriptor<BK * 128>(shared.tiles.b[stage][0][0]);
            #pragma unroll
            for (int k_block = 0; k_block < BK / 64; ++k_block) {
                #pragma unroll
                for (int kk = 0; kk < 64; kk += 16) {
                    wgmma_m64n128k16(acc, a_tile + (k_block * BM * 64 + kk) / 8,
                                     b_tile + (k_block * 64 + kk) * 8);
                }
            }
            wgmma_commit_group();

            // The previous step's wgmma are complete: its stage is free.
            wgmma_wait_group<1>();
            if (k0 > 0 && local_index % 32 == 0) {
                mbarrier_arrive(&shared.tiles.empty[(k0 / BK + STAGES - 1) % STAGES]);
            }
        }
        wgmma_wait_all(acc);

        // Staged epilogue: through shared memory, in place of the tiles, so that warps store whole
        // lines.
        named_barrier_sync<CONSUMERS>();
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int sums_row = local_row / 8 * 16 + local_row % 8 + i * 8;
            #pragma unroll
            for (int j = 0; j < BN / 8; ++j) {
                __align__(16) float sums_values[2];
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    sums_values[e] = acc[i][j * 2 + e];
                }
                copy2(&shared.sums[sums_row][local_col * 2 + j * 8], sums_values);
            }
        }
        named_barrier_sync<CONSUMERS>();
        const int sum_row = local_index / BN;
        const int sum_col = local_index % BN;
        const int first_col = col0 + sum_col;

        // C = A * B.
        if (first_col < n) {
            #pragma unroll 4
            for (int line = sum_row; line < min(BM, m - row0); line += CONSUMERS / BN) {
                const float total = shared.sums[line][sum_col];
                c[(row0 + line) * ldc + first_col] = __nv_bfloat16(total);
            }
        }
    } else {
        // Producer: one thread loads tiles by TMA while a stage is free.
        setmaxnreg_dec<40>();
        if (local_index == CONSUMERS) {
            for (int k0 = 0; k0 < k; k0 += BK) {
                const int stage = k0 / BK % STAGES;
                mbarrier_wait(&shared.tiles.empty[stage], (k0 / BK / STAGES + 1) % 2);
                mbarrier_arrive_expect_tx(&shared.tiles.full[stage], (BM + BN) * BK * 2);
                #pragma unroll
                for (int i = 0; i < BK / 64; ++i) {
                    tma_load_2d(shared.tiles.a[stage][i][0], &a_map, k0 + i * 64, row0,
                                &shared.tiles.full[stage]);
                }
                #pragma unroll
                for (int i = 0; i < BN / 64; ++i) {
                    tma_load_2d(shared.tiles.b[stage][i][0], &b_map, col0 + i * 64, k0,
                                &shared.tiles.full[stage]);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace gemm_bf16_wgmma_128x128_cmhf_detail {

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

} // namespace gemm_bf16_wgmma_128x128_cmhf_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t gemm_bf16_wgmma_128x128_cmhf_launch(int m, int n, int k,
                                                           const __nv_bfloat16 *a, int lda,
                                                           const __nv_bfloat16 *b, int ldb,
                                                           __nv_bfloat16 *c, int ldc,
                                                           cudaStream_t stream)
{
    using namespace gemm_bf16_wgmma_128x128_cmhf_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || lda % 8 != 0 || ldb % 8 != 0 || !is_in_reach(m, k, lda) ||
        !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    CUtensorMap a_map = {};
    if (const cudaError_t error = k > 0 ? make_tensor_map(&a_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                                          2, a, m, k, lda, BM, 64)
                                        : cudaSuccess) {
        return error;
    }
    CUtensorMap b_map = {};
    if (const cudaError_t error = k > 0 ? make_tensor_map(&b_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                                          2, b, k, n, ldb, BK, 64)
                                        : cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = cudaFuncSetAttribute(gemm_bf16_wgmma_128x128_cmhf,
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       int(sizeof(Shared)))) {
        return error;
    }
    const dim3 grid((m + BM - 1) / BM * ((n + BN - 1) / BN), 1);
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
    return cudaLaunchKernelEx(&config, gemm_bf16_wgmma_128x128_cmhf, m, n, k, a_map, b_map, c, ldc);
}
#endif
