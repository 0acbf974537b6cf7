// few_columns_along_k: C = A * B; float32
//
// Tile       64x16 of C per block, 4x4 per thread, 32 along K per step
// Threads    16x4 per block, warps of 8x4 threads
//            a warp reads few different elements of A and B, next to one another: no bank conflicts
// A          global memory, cp.async of 4 elements, 3 stages in shared memory, rows padded by 4,
//            read along K by 4
// B          global memory, cp.async of 4 elements, 3 stages in shared memory
// Pipeline   cp.async groups, then a barrier
// Multiply   fused multiply-add, rows in serpentine order
// C          stores of 4 elements
// Sizes      any m, n, k; leading dimensions multiples of 4; every matrix spans less than 2^31
//            elements
// Unread     A and B where k is 0
// Launch     block (4, 16), grid ((n + 15) / 16, (m + 63) / 64) of at most 65,535 along y
// Needs      33,792 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c few_columns_along_k.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// It has cp.async.
#error "few_columns_along_k needs sm_80 or later"
#endif

namespace few_columns_along_k_detail {

constexpr int BM = 64, BN = 16, BK = 32; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 3; // stages of the pipeline
constexpr int THREADS_M = 16, THREADS_N = 4; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(THREADS_M == 16 && THREADS_N == 4,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=8x4");
static_assert(TN % 4 == 0 && BK % 4 == 0, "TN and BK must be multiples of 4");
static_assert(BM * BK % (THREADS * 4) == 0 && BN * BK % (THREADS * 4) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 4");
static_assert(THREADS % BK == 0, "THREADS must be a multiple of BK");
static_assert(THREADS % BN == 0, "THREADS must be a multiple of BN");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TN == 4, "TN must be 4 here: emit it again with --set tile=2x4");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

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

// cp.async.commit_group: makes a group of this thread's cp.async since the last commit.
__device__ __forceinline__ void cp_async_commit_group()
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

// cp.async.wait_group: waits until at most the `pending` newest groups are incomplete.
template <int pending>
__device__ __forceinline__ void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
}

// Shared memory of a block.
struct Shared {
    alignas(16) float a[STAGES][BM][BK + 4]; // padded: lines begin in different banks
    alignas(16) float b[STAGES][BK][BN];
};

// Its size is an argument of the launch.
extern __shared__ __align__(16) unsigned char shared_memory[];

} // namespace few_columns_along_k_detail

extern "C" __global__ void __launch_bounds__(few_columns_along_k_detail::THREADS)
few_columns_along_k(int m, int n, int k, const float *__restrict__ a, int lda,
                    const float *__restrict__ b, int ldb, float *__restrict__ c, int ldc)
{
    using namespace few_columns_along_k_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_index = int(threadIdx.y) * THREADS_N + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int local_row = warp * 8 + lane / 4;
    const int local_col = lane % 4;
    const int row0 = int(blockIdx.y) * BM;
    const int col0 = int(blockIdx.x) * BN;
    const int row = row0 + local_row;
    const int col = col0 + local_col * 4;
    const int a_row = local_index / (BK / 4);
    const int a_k = local_index % (BK / 4) * 4;
    const int a_row_by1 = local_index / BK;
    const int a_k_by1 = local_index % BK;
    const int b_k = local_index / (BN / 4);
    const int b_col = local_index % (BN / 4) * 4;
    const int b_k_by1 = local_index / BN;
    const int b_col_by1 = local_index % BN;

    __align__(16) float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Begins the loads of the tiles at k_load to a stage.
    const auto load_tiles = [&](int k_load, int load_stage) {
        if (k_load < k) {
            if (k_load + BK <= k) {
                #pragma unroll
                for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                    const int a_inside = row0 + a_row + i * (THREADS * 4 / BK) < m ? 4 : 0;
                    cp_async_16_zfill(
                        &shared.a[load_stage][a_row + i * (THREADS * 4 / BK)][a_k],
                        &a[(row0 + a_row + i * (THREADS * 4 / BK)) * lda + k_load + a_k], a_inside);
                }
            } else {
                #pragma unroll
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    const int a_inside = k_load + a_k_by1 < k ? 1 : 0;
                    cp_async_4_zfill(&shared.a[load_stage][a_row_by1 + i * (THREADS / BK)][a_k_by1],
                                     &a[min(row0 + a_row_by1 + i * (THREADS / BK), m - 1) * lda +
                                        k_load + a_k_by1],
                                     a_inside);
                }
            }
            if (k_load + BK <= k) {
                #pragma unroll
                for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                    const int b_inside = col0 + b_col + 4 <= n ? 4
                                         : col0 + b_col < n    ? n - (col0 + b_col)
                                                               : 0;
                    cp_async_16_zfill(
                        &shared.b[load_stage][b_k + i * (THREADS * 4 / BN)][b_col],
                        &b[(k_load + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col], b_inside);
                }
            } else {
                #pragma unroll
                for (int i = 0; i < BN * BK / THREADS; ++i) {
                    const int b_inside =
                        k_load + b_k_by1 + i * (THREADS / BN) < k && col0 + b_col_by1 < n ? 1 : 0;
                    cp_async_4_zfill(
                        &shared.b[load_stage][b_k_by1 + i * (THREADS / BN)][b_col_by1],
                        &b[(k_load + b_k_by1 + i * (THREADS / BN)) * ldb + col0 + b_col_by1],
                        b_inside);
                }
            }
        }
    };

    // Main loop; cp.async fills in zeros past K.
    #pragma unroll
    for (int load_stage = 0; load_stage < STAGES - 1; ++load_stage) {
        load_tiles(load_stage * BK, load_stage);
        cp_async_commit_group();
    }
    for (int k0 = 0; k0 < k; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        load_tiles(k0 + (STAGES - 1) * BK, load_stage);
        cp_async_commit_group();
        for (int kk = 0; kk < BK; kk += 4) {
            __align__(16) float a_frag[TM][4];
            __align__(16) float b_frag[4][TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                copy4(a_frag[i], &shared.a[stage][local_row + i * THREADS_M][kk]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < TN / 4; ++j) {
                    copy4(&b_frag[i][j * 4], &shared.b[stage][kk + i][local_col * 4 + j * 4]);
                }
            }
            #pragma unroll
            for (int p = 0; p < 4; ++p) {
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) {
                        const int turn = i % 2 == 0 ? j : TN - 1 - j;
                        acc[i][turn] = fmaf(a_frag[i][p], b_frag[p][turn], acc[i][turn]);
                    }
                }
            }
        }
    }

    // C = A * B.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i * THREADS_M < m) {
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                if (col + j * 4 + 4 <= n) {
                    copy4(&c[(row + i * THREADS_M) * ldc + col + j * 4], &acc[i][j * 4]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 4 + e < n) {
                            c[(row + i * THREADS_M) * ldc + col + j * 4 + e] = acc[i][j * 4 + e];
                        }
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace few_columns_along_k_detail {

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

} // namespace few_columns_along_k_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t few_columns_along_k_launch(int m, int n, int k, const float *a, int lda,
                                                  const float *b, int ldb, float *c, int ldc,
                                                  cudaStream_t stream)
{
    using namespace few_columns_along_k_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || lda % 4 != 0 || ldb % 4 != 0 || ldc % 4 != 0 || !is_in_reach(m, k, lda) ||
        !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    if (const cudaError_t error =
            cudaFuncSetAttribute(few_columns_along_k, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 int(sizeof(Shared)))) {
        return error;
    }
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    const dim3 block(THREADS_N, THREADS_M);
    few_columns_along_k<<<grid, block, sizeof(Shared), stream>>>(m, n, k, a, lda, b, ldb, c, ldc);
    return cudaGetLastError();
}
#endif
