// gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd: C = alpha * A * prologue(B) + beta * C; bfloat16,
// B stored in int4, two elements a byte along K, ldb in bytes, sums in float32; B col-major
//
// Schedule   --method wgmma --tile 4x2 --group 4x32 --set b.memory=private --set stages=8 --set
//            split_k=4 --set producer_threads=32 --set setmaxnreg=0x0
// Tile       16x64 of C per block, 4x2 per thread, 64 along K per step, computed as C^T = B^T * A^T
// Threads    1 consumer warpgroup: multiply, then store C
//            1 producer warp: one thread loads A and B
// A          global memory, TMA, 8 stages in shared memory, 128-byte swizzle
// B          global memory, TMA, 8 stages in shared memory, 32-byte swizzle, from there to
//            registers
// Pipeline   a full and an empty mbarrier for each stage
// Multiply   wgmma m64n16k16, sums in float32, B from registers
// C          stores of single elements, to the workspace
// Grid       split-K: 4 parts, added up by a second kernel; programmatic dependent launch
// Sizes      any m, n, k; leading dimensions multiples of 16; every matrix spans less than 2^31
//            elements; the workspace less than 2^31 elements
// Prologue   B: b * b_scale_128
// Takes      b_scale_128: an element for each group of 128 rows, and each column, of B
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd: block (4, 40), grid ((n + 63) / 64 *
//                ((m + 15) / 16) * 4, 1)
//            gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd_total: block (256, 1), grid (m * ((n +
//                255) / 256), 1)
// Needs      33,792 bytes of shared memory
//            a workspace of m * n * 4 elements, aligned to 16 bytes
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Werror all-warnings -c
//                gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd.cu

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

namespace gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd_detail {

constexpr int BM = 16, BN = 64, BK = 64; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 8; // stages of the pipeline
constexpr int SPLIT_K = 4; // parts of K (split-K)
constexpr int CONSUMERS = 128, PRODUCERS = 32; // threads that multiply, and threads that load
constexpr int THREADS = CONSUMERS + PRODUCERS; // threads of a block
static_assert(BM == 16 && BN == 64,
              "BM and BN cannot change here: emit it again with --set tile=2x2");
static_assert(BK == 64, "BK cannot change here: emit it again with --set block_k=32");
static_assert(SPLIT_K == 4, "SPLIT_K cannot change here: emit it again with --set split_k=8");
static_assert(CONSUMERS == 128,
              "CONSUMERS cannot change here: emit it again with --set group=8x32");
static_assert(PRODUCERS == 32,
              "PRODUCERS cannot change here: this schedule has no other producer_threads");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

// (word & mask) ^ bits by one instruction, where a compiler may take two.
__device__ __forceinline__ unsigned and_xor(unsigned word, unsigned mask, unsigned bits)
{
    unsigned result;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
    return result;
}

// The two int4 of a byte to registers, converted to their type, the low half first.
__device__ __forceinline__ void copy_pair(__nv_bfloat16 *to, const signed char *from)
{
    // The bits of 128 + 8 + v are those of 128 + 8, in either half of the word, but for the lowest
    // four.
    const unsigned zeros = 0x43084308u;
    const unsigned bits =
        and_xor(*reinterpret_cast<const unsigned char *>(from) * 0x1001u, 0x000f000fu, zeros);
    *reinterpret_cast<__nv_bfloat162 *>(to) =
        __hsub2(reinterpret_cast<const __nv_bfloat162 &>(bits),
                reinterpret_cast<const __nv_bfloat162 &>(zeros));
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

// Has the compiler write the registers of an array here, not later.
template <typename Array>
__device__ __forceinline__ void written_here(Array &array)
{
    unsigned *words = reinterpret_cast<unsigned *>(array);
    #pragma unroll
    for (int i = 0; i < int(sizeof(array) / sizeof(unsigned)); ++i) {
        asm volatile("" : "+r"(words[i]) : : "memory");
    }
}

// wgmma.fence: orders other instructions' writes of the accumulators and of the registers of A
// before the wgmma that follows.
template <typename... Arrays>
__device__ __forceinline__ void wgmma_fence(Arrays &...a)
{
    (written_here(a), ...);
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

// wgmma.mma_async: acc += A * B of a warpgroup, 64 x 16 by 16 x 16, A from registers and B from
// shared memory. A thread has two rows of A and of the accumulators, eight apart.
__device__ __forceinline__ void wgmma_m64n16k16(float (*acc)[4], const __nv_bfloat16 *a_upper,
                                                const __nv_bfloat16 *a_lower, unsigned long long b)
{
    const unsigned *a0 = reinterpret_cast<const unsigned *>(a_upper);
    const unsigned *a1 = reinterpret_cast<const unsigned *>(a_lower);
    asm volatile("{\n"
                 ".reg .pred accumulate;\n"
                 "setp.eq.u32 accumulate, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7"
                 "}, {%8, %9, %10, %11}, %12, accumulate, 1, 1, 0;\n"
                 "}"
                 : ALL_ACC
                 : "r"(a0[0]), "r"(a1[0]), "r"(a0[1]), "r"(a1[1]), "l"(b));
}

#undef ALL_ACC
#undef ACC

// Shared memory of a block.
// TMA swizzles the lines of tiles, so that a column of them lies in different banks.
struct Shared {
    alignas(1024) __nv_bfloat16 a[STAGES][BM][BK];
    alignas(256) signed char b[STAGES][BN][BK / 2];
    unsigned long long full[STAGES];
    unsigned long long empty[STAGES];
};

// Its size is an argument of the launch.
extern __shared__ __align__(1024) unsigned char shared_memory[];

} // namespace gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd_detail

extern "C" __global__ void
    __launch_bounds__(gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd_detail::THREADS)
    gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd(int m, int n, int k, float alpha,
                                                   const __grid_constant__ CUtensorMap a_map,
                                                   const __grid_constant__ CUtensorMap b_map,
                                                   float *workspace, const float *b_scale_128)
{
    using namespace gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_col = int(threadIdx.y);
    const int local_row = int(threadIdx.x);
    const int blocks_across = (n + BN - 1) / BN;
    const int blocks_down = (m + BM - 1) / BM;
    const int part = int(blockIdx.x) / (blocks_across * blocks_down);
    const int block = int(blockIdx.x) % (blocks_across * blocks_down);
    const int block_col = block / blocks_down;
    const int block_row = block % blocks_down;

    // The last block begins earlier, to end where C does: TMA is slow outside of matrices.
    const int col0 = min(block_col * BN, (n - min(n, BN) + 7) / 8 * 8);
    const int row0 = min(block_row * BM, m - min(m, BM));
    const int col = col0 + local_col / 8 * 16 + local_col % 8;
    const int row = row0 + local_row * 2;
    const int k_part = (k + SPLIT_K * BK - 1) / (SPLIT_K * BK) * BK;
    const int k_begin = part * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int local_index = local_col * 4 + local_row;
    const int b_col = local_col / 8 * 16 + local_col % 8;

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
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
    if (local_col < CONSUMERS / 4) {
        // Consumer warpgroups: multiply, then store C.
        __align__(16) __nv_bfloat16 b_frag[BK / 16][2][4];
        float acc[2][BM / 4];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < BM / 4; ++j) {
                acc[i][j] = 0.0f;
            }
        }
        float step_sums[2][BM / 4];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < BM / 4; ++j) {
                step_sums[i][j] = 0.0f;
            }
        }
        float own_b_scale_128[2];
        float next_b_scale_128[2];

        // What the prologue takes of a group along K is read a step ahead.
        if (k_begin < k_end) {
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                next_b_scale_128[i] = b_scale_128[k_begin / 128 * n + min(col + i * 8, n - 1)];
            }
        }

        // C^T = B^T * A^T: columns of C are the rows of the sums.
        for (int k0 = k_begin; k0 < k_end; k0 += BK) {
            const int stage = (k0 - k_begin) / BK % STAGES;
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                own_b_scale_128[i] = next_b_scale_128[i];
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                next_b_scale_128[i] =
                    b_scale_128[min(k0 + BK, k - 1) / 128 * n + min(col + i * 8, n - 1)];
            }
            mbarrier_wait(&shared.full[stage], (k0 - k_begin) / BK / STAGES % 2);
            const unsigned long long a_tile = matrix_descriptor<16>(shared.a[stage][0]);
            #pragma unroll
            for (int kk = 0; kk < BK; kk += 16) {
                // What took these registers a step ago is complete; later wgmma are under way.
                wgmma_wait_group<3>();
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int tile_col = b_col + i * 8;
                    #pragma unroll
                    for (int j = 0; j < 2; ++j) {
                        copy_pair(&b_frag[kk / 16][i][j * 2],
                                  &shared.b[stage][tile_col]
                                           [((kk / 2) ^ (tile_col / (256 / BK) % (BK / 32) * 16)) +
                                            local_row + j * 4]);
                    }
                }
                wgmma_fence(b_frag[kk / 16]);
                wgmma_m64n16k16(step_sums, b_frag[kk / 16][0], b_frag[kk / 16][1], a_tile + kk / 8);
                wgmma_commit_group();
            }
            wgmma_wait_all(step_sums);
            if (local_index % 32 == 0) {
                mbarrier_arrive(&shared.empty[stage]);
            }

            // The step's sum is scaled, and added.
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < BM / 4; ++j) {
                    acc[i][j] = fmaf(step_sums[i][j], own_b_scale_128[i], acc[i][j]);
                }
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < BM / 4; ++j) {
                    step_sums[i][j] = 0.0f;
                }
            }
        }

        // Split-K: this part's partial sums.
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < BM / 4; ++j) {
                if (row + j / 2 * 8 + j % 2 < m && col + i * 8 < n) {
                    workspace[part * (m * n) + (row + j / 2 * 8 + j % 2) * n + col + i * 8] =
                        alpha * acc[i][j];
                }
            }
        }
    } else {
        // Producer: one thread loads tiles by TMA while a stage is free.
        if (local_index == CONSUMERS) {
            for (int k0 = k_begin; k0 < k_end; k0 += BK) {
                const int stage = (k0 - k_begin) / BK % STAGES;
                mbarrier_wait(&shared.empty[stage], ((k0 - k_begin) / BK / STAGES + 1) % 2);
                mbarrier_arrive_expect_tx(&shared.full[stage], (BM * 2 + BN / 2) * BK);
                tma_load_2d(shared.b[stage][0], &b_map, k0 / 2, col0, &shared.full[stage]);
                tma_load_2d(shared.a[stage][0], &a_map, k0, row0, &shared.full[stage]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd_total(int m, int n, const float *workspace,
                                                     float beta, __nv_bfloat16 *__restrict__ c,
                                                     int ldc)
{
    using namespace gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd_detail;

    const int blocks_across = (n + 255) / 256;
    const int row = int(blockIdx.x) / blocks_across;
    const int col = int(blockIdx.x) % blocks_across * 256 + int(threadIdx.x);

    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    if (col < n) {
        // Reduction of split-K: the partial sums in order.
        float total = workspace[row * n + col];
        #pragma unroll
        for (int s = 1; s < SPLIT_K; ++s) {
            total += workspace[s * (m * n) + row * n + col];
        }
        const float c_value = beta == 0.0f ? total : fmaf(beta, float(c[row * ldc + col]), total);
        c[row * ldc + col] = __nv_bfloat16(c_value);
    }
}

#ifndef __CUDACC_RTC__
namespace gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd_detail {

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
                                   unsigned box_lines, unsigned box_length,
                                   CUtensorMapSwizzle swizzle)
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
        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

} // namespace gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd_launch(
    int m, int n, int k, float alpha, const __nv_bfloat16 *a, int lda, const signed char *b,
    int ldb, float *workspace, float beta, __nv_bfloat16 *c, int ldc, const float *b_scale_128,
    cudaStream_t stream)
{
    using namespace gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(workspace, 16) ||
        !is_aligned(c, 16) || !is_aligned(b_scale_128, 4)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || lda % 16 != 0 || ldb % 16 != 0 || ldc % 16 != 0 || !is_in_reach(m, k, lda) ||
        !is_in_reach(n, (k + 1) / 2, ldb) || !is_in_reach(m, n, ldc) ||
        1LL * m * n * SPLIT_K >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    {
        CUtensorMap a_map = {};
        if (const cudaError_t error =
                k > 0 ? make_tensor_map(&a_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, a, m, k, lda,
                                        BM, BK, CU_TENSOR_MAP_SWIZZLE_128B)
                      : cudaSuccess) {
            return error;
        }
        CUtensorMap b_map = {};
        if (const cudaError_t error =
                k > 0 ? make_tensor_map(&b_map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, b, n, (k + 1) / 2,
                                        ldb, BN, BK / 2, CU_TENSOR_MAP_SWIZZLE_32B)
                      : cudaSuccess) {
            return error;
        }
        if (const cudaError_t error = cudaFuncSetAttribute(
                gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd,
                cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Shared)))) {
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
        const cudaError_t launched =
            cudaLaunchKernelEx(&config, gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd, m, n, k,
                               alpha, a_map, b_map, workspace, b_scale_128);
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
        return cudaLaunchKernelEx(&config, gemm_bf16_s4_wgmma_16x64_by4x32_s8_split4_5gjd_total, m,
                                  n, workspace, beta, c, ldc);
    }
}
#endif
