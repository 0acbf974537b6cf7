// wgmma_3xtf32_128x128_s3: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per block, 2x32 per thread, 32 along K per step
// Threads    2 consumer warpgroups, 232 registers per thread: multiply, then store C
//            1 producer warpgroup, 40 registers per thread: one thread loads A and B
// A          global memory, prepacked by a kernel before, TMA, 3 stages in shared memory, 128-byte
//            swizzle
// B          global memory, prepacked by a kernel before, TMA, 3 stages in shared memory, 128-byte
//            swizzle
// Pipeline   a full and an empty mbarrier for each stage
// Multiply   wgmma m64n128k8, sums in float32, 3xTF32: three products for each
// C          staged in shared memory, stores of 4 elements
// Grid       threadblock swizzle over 8 rows of blocks; programmatic dependent launch
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     wgmma_3xtf32_128x128_s3_pack: block (32, 8), grid ((m + 127) / 128 * 4 * ((k + 31) /
//                32) + (n + 127) / 128 * 4 * ((k + 31) / 32), 1)
//            wgmma_3xtf32_128x128_s3: block (4, 96), grid ((m + 127) / 128 * ((n + 127) / 128), 1)
// Needs      197,632 bytes of shared memory
//            a_packed of (m + 127) / 128 * 128 * ((k + 31) / 32 * 64) elements, aligned to 16 bytes
//            b_packed of (n + 127) / 128 * 128 * ((k + 31) / 32 * 64) elements, aligned to 16 bytes
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Werror all-warnings -c
//                wgmma_3xtf32_128x128_s3.cu

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

namespace wgmma_3xtf32_128x128_s3_detail {

constexpr int BM = 128, BN = 128, BK = 32; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 3; // stages of the pipeline
constexpr int GROUP_M = 8; // threadblock swizzle: rows of blocks that run together
constexpr int CONSUMERS = 256, PRODUCERS = 128; // threads that multiply, and threads that load
constexpr int THREADS = CONSUMERS + PRODUCERS; // threads of a block
static_assert(BM == 128 && BN == 128,
              "BM and BN cannot change here: "
              "gemmgen emit --preset wgmma_3xtf32_128x128_s3 --backend cuda --set tile=2x16");
static_assert(BK == 32, "BK cannot change here: this schedule has no other block_k");
static_assert(CONSUMERS == 256,
              "CONSUMERS cannot change here: "
              "gemmgen emit --preset wgmma_3xtf32_128x128_s3 --backend cuda --set group=32x4");
static_assert(PRODUCERS == 128,
              "PRODUCERS cannot change here: this schedule has no other producer_threads");
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

// 3xTF32, high part: the number cut to 10 bits of mantissa.
__device__ __forceinline__ float tf32_high(float value)
{
    return __uint_as_float(__float_as_uint(value) & 0xffffe000u);
}

// 3xTF32, low part: the rest beside the high part, plus 2^-23 of the number, so that it is zero for
// zero only. Inf and NaN are their own low part: as integers, the bits of Inf - Inf are greater
// than those of Inf, and the bits of a low part at least those of a finite number's.
__device__ __forceinline__ float tf32_low(float value, float high)
{
    const int low = __float_as_int(fmaf(value, 0x1.000002p0f, -high));
    return __int_as_float(min(low, __float_as_int(value)));
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

// wgmma.mma_async: acc += A * B of a warpgroup, 64 x 8 by 8 x 128, both from shared memory. A
// thread has two rows of the accumulators, eight apart.
__device__ __forceinline__ void wgmma_m64n128k8(float (*acc)[32], unsigned long long a,
                                                unsigned long long b)
{
    asm volatile("{\n"
                 ".reg .pred accumulate;\n"
                 "setp.eq.u32 accumulate, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
                 "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
                 "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
                 "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, accumulate, 1, 1;\n"
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
        alignas(1024) float a[STAGES][2][BM][BK];
        alignas(1024) float b[STAGES][2][BN][BK];
        unsigned long long full[STAGES];
        unsigned long long empty[STAGES];
    } tiles;
    alignas(16) float sums[BM][BN + 8]; // padded: lines begin in different banks
};

// Its size is an argument of the launch.
extern __shared__ __align__(1024) unsigned char shared_memory[];

} // namespace wgmma_3xtf32_128x128_s3_detail

extern "C" __global__ void __launch_bounds__(256)
wgmma_3xtf32_128x128_s3_pack(int m, int n, int k, const float *__restrict__ a, int lda,
                             const float *__restrict__ b, int ldb, float *__restrict__ a_packed,
                             float *__restrict__ b_packed)
{
    using namespace wgmma_3xtf32_128x128_s3_detail;

    griddepcontrol_launch_dependents();

    const int m_whole = (m + BM - 1) / BM * BM;
    const int n_whole = (n + BN - 1) / BN * BN;
    const int k_whole = (k + BK - 1) / BK * BK;
    const int a_blocks = (m_whole + 31) / 32 * ((k_whole + 31) / 32);
    const int block = int(blockIdx.x) < a_blocks ? int(blockIdx.x) : int(blockIdx.x) - a_blocks;
    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);

    // Padded: lines begin in different banks.
    __shared__ float b_tile[32][33];
    if (int(blockIdx.x) < a_blocks) {
        const int a_slow = block / ((k_whole + 31) / 32) * 32;
        const int a_fast = block % ((k_whole + 31) / 32) * 32;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (a_slow + i * 8 + local_row < m_whole && a_fast * 2 + local_col + 32 < k_whole * 2) {
                const float element =
                    a_slow + i * 8 + local_row < m && a_fast + local_col < k
                        ? a[(a_slow + i * 8 + local_row) * lda + a_fast + local_col]
                        : 0.0f;
                const float head = tf32_high(element);
                a_packed[(a_slow + i * 8 + local_row) * (k_whole * 2) + a_fast * 2 + local_col] =
                    head;
                a_packed[(a_slow + i * 8 + local_row) * (k_whole * 2) + a_fast * 2 + local_col +
                         32] = tf32_low(element, head);
            }
        }
    } else {
        const int b_slow = block / ((k_whole + 31) / 32) * 32;
        const int b_fast = block % ((k_whole + 31) / 32) * 32;

        // Transposed through a tile, so that reads and writes are both contiguous.
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            b_tile[i * 8 + local_row][local_col] =
                b_fast + i * 8 + local_row < k && b_slow + local_col < n
                    ? b[(b_fast + i * 8 + local_row) * ldb + b_slow + local_col]
                    : 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (b_slow + i * 8 + local_row < n_whole && b_fast * 2 + local_col + 32 < k_whole * 2) {
                const float element = b_tile[local_col][i * 8 + local_row];
                const float head = tf32_high(element);
                b_packed[(b_slow + i * 8 + local_row) * (k_whole * 2) + b_fast * 2 + local_col] =
                    head;
                b_packed[(b_slow + i * 8 + local_row) * (k_whole * 2) + b_fast * 2 + local_col +
                         32] = tf32_low(element, head);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(wgmma_3xtf32_128x128_s3_detail::THREADS, 1)
wgmma_3xtf32_128x128_s3(int m, int n, int k, float alpha,
                        const __grid_constant__ CUtensorMap a_packed_map,
                        const __grid_constant__ CUtensorMap b_packed_map, float beta, float *c,
                        int ldc)
{
    using namespace wgmma_3xtf32_128x128_s3_detail;
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
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int k_whole = (k + BK - 1) / BK * BK;
    const int local_index = local_row * 4 + local_col;
    const int warpgroup = __shfl_sync(0xffffffffu, local_row / 32, 0, 32);

    if (local_index == 0) {
        prefetch_tensormap(&a_packed_map);
        prefetch_tensormap(&b_packed_map);
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
        float step_sums[2][BN / 4];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < BN / 4; ++j) {
                step_sums[i][j] = 0.0f;
            }
        }
        for (int k0 = 0; k0 < k_whole; k0 += BK) {
            const int stage = k0 / BK % STAGES;
            mbarrier_wait(&shared.tiles.full[stage], k0 / BK / STAGES % 2);
            wgmma_fence();
            const unsigned long long a_tile =
                matrix_descriptor<16>(shared.tiles.a[stage][0][warpgroup * 64]);
            const unsigned long long b_tile = matrix_descriptor<16>(shared.tiles.b[stage][0][0]);
            #pragma unroll
            for (int kk = 0; kk < BK; kk += 8) {
                wgmma_m64n128k8(step_sums, a_tile + kk / 4 + BM * BK / 4, b_tile + kk / 4);
                wgmma_m64n128k8(step_sums, a_tile + kk / 4, b_tile + kk / 4 + BN * BK / 4);
                wgmma_m64n128k8(step_sums, a_tile + kk / 4, b_tile + kk / 4);
            }
            wgmma_commit_group();
            wgmma_wait_all(step_sums);
            if (local_index % 32 == 0) {
                mbarrier_arrive(&shared.tiles.empty[stage]);
            }

            // The step's sum is added in float32, rounded.
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < BN / 4; ++j) {
                    acc[i][j] += step_sums[i][j];
                }
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < BN / 4; ++j) {
                    step_sums[i][j] = 0.0f;
                }
            }
        }

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
                    sums_values[e] = alpha * acc[i][j * 2 + e];
                }
                copy2(&shared.sums[sums_row][local_col * 2 + j * 8], sums_values);
            }
        }
        named_barrier_sync<CONSUMERS>();
        const int sum_row = local_index / (BN / 4);
        const int sum_col = local_index % (BN / 4);
        const int first_col = col0 + sum_col * 4;
        __align__(16) float total[BM / (CONSUMERS * 4 / BN)][4];
        #pragma unroll
        for (int i = 0; i < BM / (CONSUMERS * 4 / BN); ++i) {
            copy4(total[i], &shared.sums[sum_row + i * (CONSUMERS * 4 / BN)][sum_col * 4]);
        }

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        #pragma unroll
        for (int i = 0; i < BM / (CONSUMERS * 4 / BN); ++i) {
            const int c_row = row0 + sum_row + i * (CONSUMERS * 4 / BN);
            if (c_row < m) {
                if (first_col + 4 <= n && ldc % 4 == 0) {
                    if (beta != 0.0f) {
                        __align__(16) float c_old[4];
                        copy4(c_old, &c[c_row * ldc + first_col]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            total[i][e] = fmaf(beta, c_old[e], total[i][e]);
                        }
                    }
                    copy4(&c[c_row * ldc + first_col], total[i]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (first_col + e < n) {
                            c[c_row * ldc + first_col + e] =
                                beta == 0.0f
                                    ? total[i][e]
                                    : fmaf(beta, c[c_row * ldc + first_col + e], total[i][e]);
                        }
                    }
                }
            }
        }
    } else {
        // Producer: one thread loads tiles by TMA while a stage is free.
        setmaxnreg_dec<40>();
        if (local_index == CONSUMERS) {
            for (int k0 = 0; k0 < k_whole; k0 += BK) {
                const int stage = k0 / BK % STAGES;
                mbarrier_wait(&shared.tiles.empty[stage], (k0 / BK / STAGES + 1) % 2);
                mbarrier_arrive_expect_tx(&shared.tiles.full[stage], (BM + BN) * BK * 8);
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    tma_load_2d(shared.tiles.a[stage][i][0], &a_packed_map, k0 * 2 + i * BK, row0,
                                &shared.tiles.full[stage]);
                }
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    tma_load_2d(shared.tiles.b[stage][i][0], &b_packed_map, k0 * 2 + i * BK, col0,
                                &shared.tiles.full[stage]);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace wgmma_3xtf32_128x128_s3_detail {

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

} // namespace wgmma_3xtf32_128x128_s3_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t wgmma_3xtf32_128x128_s3_launch(int m, int n, int k, float alpha,
                                                      const float *a, int lda, const float *b,
                                                      int ldb, float *a_packed, float *b_packed,
                                                      float beta, float *c, int ldc,
                                                      cudaStream_t stream)
{
    using namespace wgmma_3xtf32_128x128_s3_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(a_packed, 16) ||
        !is_aligned(b_packed, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        1LL * (m + BM - 1) / BM * BM * ((k + BK - 1) / BK * BK * 2) >= 1LL << 31 ||
        1LL * (n + BN - 1) / BN * BN * ((k + BK - 1) / BK * BK * 2) >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    if (k > 0) {
        const dim3 grid((m + BM - 1) / BM * (BM / 32) * ((k + BK - 1) / BK) +
                            (n + BN - 1) / BN * (BN / 32) * ((k + BK - 1) / BK),
                        1);
        const dim3 block(32, 8);
        wgmma_3xtf32_128x128_s3_pack<<<grid, block, 0, stream>>>(m, n, k, a, lda, b, ldb, a_packed,
                                                                 b_packed);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        CUtensorMap a_packed_map = {};
        if (const cudaError_t error =
                k > 0 ? make_tensor_map(&a_packed_map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, a_packed,
                                        (m + BM - 1) / BM * BM, (k + BK - 1) / BK * BK * 2,
                                        (k + BK - 1) / BK * BK * 2, BM, BK)
                      : cudaSuccess) {
            return error;
        }
        CUtensorMap b_packed_map = {};
        if (const cudaError_t error =
                k > 0 ? make_tensor_map(&b_packed_map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, b_packed,
                                        (n + BN - 1) / BN * BN, (k + BK - 1) / BK * BK * 2,
                                        (k + BK - 1) / BK * BK * 2, BN, BK)
                      : cudaSuccess) {
            return error;
        }
        if (const cudaError_t error = cudaFuncSetAttribute(
                wgmma_3xtf32_128x128_s3, cudaFuncAttributeMaxDynamicSharedMemorySize,
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
        return cudaLaunchKernelEx(&config, wgmma_3xtf32_128x128_s3, m, n, k, alpha, a_packed_map,
                                  b_packed_map, beta, c, ldc);
    }
}
#endif
