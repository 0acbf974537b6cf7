// wgmma_16x64_s8_joined2: C = alpha * A * B + beta * C; bfloat16, sums in float32
//
// Tile       16x64 of C per block, 4x2 per thread, 64 along K per step, computed as C^T = B^T * A^T
// Threads    1 consumer warpgroup: multiply, then store C
//            1 producer warp: one thread loads A and B
// A          global memory, TMA, 8 stages in shared memory, 128-byte swizzle
// B          global memory, TMA, 8 stages in shared memory, 128-byte swizzle
// Pipeline   a full and an empty mbarrier for each stage
// Multiply   wgmma m64n16k16, sums in float32
// C          parts of K added up across a cluster of 2 (distributed shared memory), stores of 4
//            elements
// Grid       split-K: 2 parts, added up by clusters of 2 blocks; programmatic dependent launch
// Sizes      any m, n, k; leading dimensions multiples of 8; every matrix spans less than 2^31
//            elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (4, 40), grid ((n + 63) / 64 * ((m + 15) / 16) * 2, 1)
// Needs      87,040 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Werror all-warnings -c
//                wgmma_16x64_s8_joined2.cu

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

namespace wgmma_16x64_s8_joined2_detail {

constexpr int BM = 16, BN = 64, BK = 64; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 8; // stages of the pipeline
constexpr int SPLIT_K = 2; // parts of K (split-K)
constexpr int CONSUMERS = 128, PRODUCERS = 32; // threads that multiply, and threads that load
constexpr int THREADS = CONSUMERS + PRODUCERS; // threads of a block
static_assert(BM == 16 && BN == 64,
              "BM and BN cannot change here: "
              "gemmgen emit --preset wgmma_16x64_s8_joined2 --backend cuda --set tile=8x2");
static_assert(SPLIT_K == 2,
              "SPLIT_K cannot change here: "
              "gemmgen emit --preset wgmma_16x64_s8_joined2 --backend cuda --set split_k=4");
static_assert(CONSUMERS == 128,
              "CONSUMERS cannot change here: "
              "gemmgen emit --preset wgmma_16x64_s8_joined2 --backend cuda --set group=8x32");
static_assert(PRODUCERS == 32,
              "PRODUCERS cannot change here: this schedule has no other producer_threads");
static_assert(BK % 64 == 0, "BK must be a multiple of 64");
static_assert(BK <= 256, "BK must be 256 or less: TMA tiles have no longer sides");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

// 4 neighbouring elements; both addresses are multiples of 8 bytes.
__device__ __forceinline__ void copy4(__nv_bfloat16 *to, const __nv_bfloat16 *from)
{
    *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(from);
}

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// 4 neighbouring elements to registers, converted to their type; `from` is a multiple of 8 bytes.
__device__ __forceinline__ void copy4(float *to, const __nv_bfloat16 *from)
{
    __align__(8) __nv_bfloat16 elements[4];
    copy4(elements, from);
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
        to[e] = float(elements[e]);
    }
}

// 4 neighbouring elements from registers, in the type of memory; `to` is a multiple of 8 bytes.
__device__ __forceinline__ void copy4(__nv_bfloat16 *to, const float *from)
{
    __align__(8) __nv_bfloat16 elements[4];
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
        elements[e] = __nv_bfloat16(from[e]);
    }
    copy4(to, elements);
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

// barrier.cluster.arrive: arrives at the cluster's barrier, without waiting.
__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.relaxed;" : : : "memory");
}

// barrier.cluster.wait: waits until all threads of the cluster have arrived.
__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait;" : : : "memory");
}

// barrier.cluster of all threads that have not exited; it publishes what each has written before.
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release;" : : : "memory");
    asm volatile("barrier.cluster.wait.acquire;" : : : "memory");
}

// mapa: the same array in the shared memory of block `rank` of the cluster.
template <typename Array>
__device__ __forceinline__ Array &map_shared_rank(Array &own, int rank)
{
    Array *mapped;
    asm("mapa.u64 %0, %1, %2;" : "=l"(mapped) : "l"(&own), "r"(rank));
    return *mapped;
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

#define ALL_ACC ACC(0), ACC(2)

// wgmma.wait_group 0: after it the accumulators may be read.
__device__ __forceinline__ void wgmma_wait_all(float (*acc)[4])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" : ALL_ACC : : "memory");
}

// wgmma.mma_async: acc += A * B of a warpgroup, 64 x 16 by 16 x 16, both from shared memory. A
// thread has two rows of the accumulators, eight apart.
__device__ __forceinline__ void wgmma_m64n16k16(float (*acc)[4], unsigned long long a,
                                                unsigned long long b)
{
    asm volatile("{\n"
                 ".reg .pred accumulate;\n"
                 "setp.eq.u32 accumulate, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7"
                 "}, %8, %9, accumulate, 1, 1, 1, 0;\n"
                 "}"
                 : ALL_ACC
                 : "l"(a), "l"(b));
}

#undef ALL_ACC
#undef ACC

// Shared memory of a block.
// TMA swizzles the lines of tiles, so that a column of them lies in different banks.
struct Shared {
    alignas(1024) __nv_bfloat16 b[STAGES][BK][BN];
    alignas(1024) __nv_bfloat16 a[STAGES][BK / 64][BM][64];
    alignas(16) float sums[2][BM / 2][BN + 4]; // padded: lines begin in different banks
    unsigned long long full[STAGES];
    unsigned long long empty[STAGES];
};

// Its size is an argument of the launch.
extern __shared__ __align__(1024) unsigned char shared_memory[];

} // namespace wgmma_16x64_s8_joined2_detail

extern "C" __global__ void __cluster_dims__(2, 1, 1)
__launch_bounds__(wgmma_16x64_s8_joined2_detail::THREADS)
wgmma_16x64_s8_joined2(int m, int n, int k, float alpha, const __grid_constant__ CUtensorMap a_map,
                       const __grid_constant__ CUtensorMap b_map, float beta, __nv_bfloat16 *c,
                       int ldc)
{
    using namespace wgmma_16x64_s8_joined2_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_col = int(threadIdx.y);
    const int local_row = int(threadIdx.x);
    const int rank = int(blockIdx.x) % 2;
    const int blocks_down = (m + BM - 1) / BM;
    const int block = int(blockIdx.x) / 2;
    const int block_col = block / blocks_down;
    const int block_row = block % blocks_down;

    // Where C is not read, the last block begins earlier, to end where C does: TMA is slow outside
    // of matrices.
    const int col0 =
        beta == 0.0f ? min(block_col * BN, (n - min(n, BN) + 7) / 8 * 8) : block_col * BN;
    const int row0 = beta == 0.0f ? min(block_row * BM, m - min(m, BM)) : block_row * BM;
    const int k_part = (k + SPLIT_K * BK - 1) / (SPLIT_K * BK) * BK;
    const int k_begin = rank * k_part;
    const int k_end = k_begin + k_part;
    const int local_index = local_col * 4 + local_row;

    if (local_index == 0) {
        prefetch_tensormap(&a_map);
        prefetch_tensormap(&b_map);
        #pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(&shared.full[stage], 1);
            mbarrier_init(&shared.empty[stage], CONSUMERS / 32);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    cluster_arrive();
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (local_col < CONSUMERS / 4) {
        // Consumer warpgroups: multiply, then store C.
        float acc[2][BM / 4];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < BM / 4; ++j) {
                acc[i][j] = 0.0f;
            }
        }

        // C^T = B^T * A^T: columns of C are the rows of the sums.
        for (int k0 = k_begin; k0 < k_end; k0 += BK) {
            const int stage = (k0 - k_begin) / BK % STAGES;
            mbarrier_wait(&shared.full[stage], (k0 - k_begin) / BK / STAGES % 2);
            wgmma_fence();
            const unsigned long long b_tile = own_matrix_descriptor<16>(shared.b[stage][0]);
            const unsigned long long a_tile = own_matrix_descriptor<16>(shared.a[stage][0][0]);
            #pragma unroll
            for (int k_block = 0; k_block < BK / 64; ++k_block) {
                #pragma unroll
                for (int kk = 0; kk < 64; kk += 16) {
                    wgmma_m64n16k16(acc, b_tile + (k_block * 64 + kk) * (BN / 8),
                                    a_tile + (k_block * BM * 64 + kk) / 8);
                }
            }
            wgmma_commit_group();

            // The previous step's wgmma are complete: its stage is free.
            wgmma_wait_group<1>();
            if (k_begin < k0 && local_index % 32 == 0) {
                mbarrier_arrive(&shared.empty[((k0 - k_begin) / BK + STAGES - 1) % STAGES]);
            }
        }
        wgmma_wait_all(acc);

        // All blocks of the cluster have begun, so that their shared memory exists.
        cluster_wait();

        // Cluster reduction of split-K: each block adds up some lines of all parts of K.
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int sums_col = local_col / 8 * 16 + local_col % 8 + i * 8;
            #pragma unroll
            for (int j = 0; j < BM / 4; ++j) {
                const int line = local_row * 2 + j / 2 * 8 + j % 2;
                map_shared_rank(shared.sums, line / (BM / 2))[rank][line % (BM / 2)][sums_col] =
                    alpha * acc[i][j];
            }
        }
        cluster_sync();
        const int sum_row = local_index / (BN / 4);
        const int sum_col = local_index % (BN / 4);
        const int first_col = col0 + sum_col * 4;
        __align__(16) float total[4];
        copy4(total, &shared.sums[0][sum_row][sum_col * 4]);
        __align__(16) float term[4];
        copy4(term, &shared.sums[1][sum_row][sum_col * 4]);
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            total[e] += term[e];
        }

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        const int c_row = row0 + rank * (BM / 2) + sum_row;
        if (c_row < m) {
            if (first_col + 4 <= n) {
                if (beta != 0.0f) {
                    __align__(16) float c_old[4];
                    copy4(c_old, &c[c_row * ldc + first_col]);
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        total[e] = fmaf(beta, c_old[e], total[e]);
                    }
                }
                copy4(&c[c_row * ldc + first_col], total);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    if (first_col + e < n) {
                        const float c_value =
                            beta == 0.0f
                                ? total[e]
                                : fmaf(beta, float(c[c_row * ldc + first_col + e]), total[e]);
                        c[c_row * ldc + first_col + e] = __nv_bfloat16(c_value);
                    }
                }
            }
        }
    } else {
        // Producer: one thread loads tiles by TMA while a stage is free.
        if (local_index == CONSUMERS) {
            for (int k0 = k_begin; k0 < k_end; k0 += BK) {
                const int stage = (k0 - k_begin) / BK % STAGES;
                mbarrier_wait(&shared.empty[stage], ((k0 - k_begin) / BK / STAGES + 1) % 2);
                mbarrier_arrive_expect_tx(&shared.full[stage], (BM + BN) * BK * 2);
                tma_load_2d(shared.b[stage][0], &b_map, col0, k0, &shared.full[stage]);
                #pragma unroll
                for (int i = 0; i < BK / 64; ++i) {
                    tma_load_2d(shared.a[stage][i][0], &a_map, k0 + i * 64, row0,
                                &shared.full[stage]);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace wgmma_16x64_s8_joined2_detail {

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

} // namespace wgmma_16x64_s8_joined2_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t wgmma_16x64_s8_joined2_launch(int m, int n, int k, float alpha,
                                                     const __nv_bfloat16 *a, int lda,
                                                     const __nv_bfloat16 *b, int ldb, float beta,
                                                     __nv_bfloat16 *c, int ldc, cudaStream_t stream)
{
    using namespace wgmma_16x64_s8_joined2_detail;

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
                                                          2, a, m, k, lda, BM, 64)
                                        : cudaSuccess) {
        return error;
    }
    CUtensorMap b_map = {};
    if (const cudaError_t error = k > 0 ? make_tensor_map(&b_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                                          2, b, k, n, ldb, BK, BN)
                                        : cudaSuccess) {
        return error;
    }
    if (const cudaError_t error = cudaFuncSetAttribute(wgmma_16x64_s8_joined2,
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       int(sizeof(Shared)))) {
        return error;
    }
    const dim3 grid((n + BN - 1) / BN * ((m + BM - 1) / BM) * SPLIT_K, 1);
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
    return cudaLaunchKernelEx(&config, wgmma_16x64_s8_joined2, m, n, k, alpha, a_map, b_map, beta,
                              c, ldc);
}
#endif
