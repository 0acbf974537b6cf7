// mbarrier_8x8_4x8_slices8: C = alpha * A * B + beta * C; float32
//
// Tile       32x64 of C per block, 8x8 per thread, 64 along K per step
// Threads    256 per block, 8 slices of each step along K (sliced-K), warps of 4x8 threads, lanes
//                swizzled
//            a warp reads few different elements of A and B, next to one another: no bank conflicts
//            neighbouring lanes read different rows of A: no read of shared memory is a broadcast
// A          global memory, cp.async of single elements, 6 stages in shared memory, transposed,
//            rows padded by 4, registers double-buffered across tiles
// B          global memory, cp.async of 4 elements, 6 stages in shared memory, registers
//            double-buffered across tiles
// Pipeline   a full and an empty mbarrier for each stage
// Multiply   fused multiply-add, rows in serpentine order
// C          slices added up in shared memory, stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (8, 32), grid ((n + 63) / 64, (m + 31) / 32) of at most 65,535 along y
// Needs      153,696 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_90 -Werror all-warnings -c mbarrier_8x8_4x8_slices8.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
// It has mbarrier.try_wait.
#error "mbarrier_8x8_4x8_slices8 needs sm_90 or later"
#endif

namespace mbarrier_8x8_4x8_slices8_detail {

constexpr int BM = 32, BN = 64, BK = 64; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 6; // stages of the pipeline
constexpr int SLICES = 8; // parts of a block's K (sliced-K)
constexpr int THREADS_M = 4, THREADS_N = 8; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a slice
static_assert(SLICES == 8,
              "SLICES cannot change here: "
              "gemmgen emit --preset mbarrier_8x8_4x8_slices8 --backend cuda --set sliced_k=16");
static_assert(THREADS_M == 4 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset mbarrier_8x8_4x8_slices8 --backend cuda --set group=8x8");
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
              "gemmgen emit --preset mbarrier_8x8_4x8_slices8 --backend cuda --set tile=4x8");
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

} // namespace mbarrier_8x8_4x8_slices8_detail

extern "C" __global__ void __launch_bounds__(mbarrier_8x8_4x8_slices8_detail::BLOCK_THREADS)
mbarrier_8x8_4x8_slices8(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                         const float *__restrict__ b, int ldb, float beta, float *__restrict__ c,
                         int ldc)
{
    using namespace mbarrier_8x8_4x8_slices8_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_index = int(threadIdx.y) * THREADS_N + int(threadIdx.x);
    const int slice = local_index / THREADS;
    const int warp = local_index % THREADS / 32;
    const int lane = local_index % 32;
    const int local_row = warp * 4 + lane / 16 * 2 + (lane / 8 + lane / 2 + lane) % 2;
    const int local_col = lane % 8;
    const int row0 = int(blockIdx.y) * BM;
    const int col0 = int(blockIdx.x) * BN;
    const int a_row = local_index / BK;
    const int a_k = local_index % BK;
    const int b_k = local_index / (BN / 4);
    const int b_col = local_index % (BN / 4) * 4;
    const int b_k_by1 = local_index / BN;
    const int b_col_by1 = local_index % BN;

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
        if (k_load + BK <= k && ldb % 4 == 0) {
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
    for (int k0 = 0; k0 < min((STAGES - 2) * BK, k); k0 += BK) {
        const int load_stage = k0 / BK % STAGES;
        load_tiles(k0, load_stage);
        cp_async_mbarrier_arrive(&shared.tiles.full[k0 / BK % STAGES]);
    }

    // Pointers to this thread's operands in the current stage.
    const float *a_tile = &shared.tiles.a[0][slice * (BK / SLICES)][local_row * 4];
    const float *b_tile = &shared.tiles.b[0][slice * (BK / SLICES)][local_col * 4];
    int slot = 0;
    if (k > 0) {
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
    for (int k0 = 0; k0 < k; k0 += BK) {
        const int k_ahead = k0 + (STAGES - 2) * BK;
        if (k_ahead < k) {
            mbarrier_wait(&shared.tiles.empty[k_ahead / BK % STAGES],
                          (k_ahead / BK / STAGES + 1) % 2);
            const int load_stage = k_ahead / BK % STAGES;
            load_tiles(k_ahead, load_stage);
            cp_async_mbarrier_arrive(&shared.tiles.full[k_ahead / BK % STAGES]);
        }
        const int k_next = k0 + BK;
        if (k_next < k) {
            mbarrier_wait(&shared.tiles.full[k_next / BK % STAGES], k_next / BK / STAGES % 2);
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
        mbarrier_arrive(&shared.tiles.empty[k0 / BK % STAGES]);
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

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < BM / (SLICES * THREADS * 4 / BN); ++i) {
        const int c_row = row0 + sum_row + i * (SLICES * THREADS * 4 / BN);
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
                            beta == 0.0f ? total[i][e]
                                         : fmaf(beta, c[c_row * ldc + first_col + e], total[i][e]);
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace mbarrier_8x8_4x8_slices8_detail {

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

} // namespace mbarrier_8x8_4x8_slices8_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t mbarrier_8x8_4x8_slices8_launch(int m, int n, int k, float alpha,
                                                       const float *a, int lda, const float *b,
                                                       int ldb, float beta, float *c, int ldc,
                                                       cudaStream_t stream)
{
    using namespace mbarrier_8x8_4x8_slices8_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    if (const cudaError_t error = cudaFuncSetAttribute(mbarrier_8x8_4x8_slices8,
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       int(sizeof(Shared)))) {
        return error;
    }
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    const dim3 block(THREADS_N, SLICES * THREADS_M);
    mbarrier_8x8_4x8_slices8<<<grid, block, sizeof(Shared), stream>>>(m, n, k, alpha, a, lda, b,
                                                                      ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
