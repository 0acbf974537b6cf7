// gemm_bf16_mma_128x128_s3: C = alpha * A * B, then swiglu; bfloat16, sums in float32; B col-major
//
// Schedule   --method mma --tile 8x16 --group 16x8 --set stages=3
// Tile       128x64 of C per block, 8x8 per thread, 32 along K per step
// Threads    16x8 per block, warps of 8x4 threads
//            lanes of a warp as mma.sync has its accumulators
// A          global memory, cp.async of 8 elements, 3 stages in shared memory, rows padded by 8,
//            ldmatrix, registers double-buffered across tiles
// B          global memory, cp.async of 8 elements, 3 stages in shared memory, rows padded by 8,
//            ldmatrix, registers double-buffered across tiles
// Pipeline   cp.async groups, then a barrier
// Multiply   mma.sync m16n8k16, sums in float32
// C          stores of 4 elements, for which lanes exchange sums
// Sizes      any m, n, k; leading dimensions multiples of 8; every matrix spans less than 2^31
//            elements
// Epilogue   swiglu: acc * fast_sigmoid(acc) * up
// Takes      B: 2 n columns; acc is the sum of column j of them, up that of column n + j
// Unread     A and B where k is 0: pass k = 0 where alpha is 0
// Launch     block (8, 16), grid ((n + 63) / 64, (m + 127) / 128) of at most 65,535 along y
// Needs      61,440 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c gemm_bf16_mma_128x128_s3.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_bf16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// It has cp.async and mma.sync.
#error "gemm_bf16_mma_128x128_s3 needs sm_80 or later"
#endif

namespace gemm_bf16_mma_128x128_s3_detail {

constexpr int BM = 128, BN = 128, BK = 32; // block tile: BM x BN of A * B, BK along K per step
constexpr int STAGES = 3; // stages of the pipeline
constexpr int THREADS_M = 16, THREADS_N = 8; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of A * B of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(THREADS_M == 16 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=8x8");
static_assert(BK % 32 == 0, "BK must be a multiple of 32");
static_assert(BM * BK % (THREADS * 8) == 0, "BM * BK must be a multiple of THREADS * 8");
static_assert(THREADS % BK == 0, "THREADS must be a multiple of BK");
static_assert(BN * BK % (THREADS * 16) == 0, "BN * BK must be a multiple of THREADS * 16");
static_assert(TM % 2 == 0, "TM must be a multiple of 2");
static_assert(TN % 8 == 0, "TN must be a multiple of 8");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 2, "TM must exceed 2 here: emit it again with --set tile=4x16");
static_assert(TN > 8, "TN must exceed 8 here: emit it again with --set tile=4x16");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

// The first `inside` of 4 neighbouring elements from registers, in the type of memory: by vectors
// as wide as their place allows.
__device__ __forceinline__ void store4_inside(__nv_bfloat16 *to, const float *from, int inside)
{
    __align__(8) __nv_bfloat16 elements[4];
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
        elements[e] = __nv_bfloat16(from[e]);
    }
    if (inside >= 4 && reinterpret_cast<size_t>(to) % 8 == 0) {
        *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(elements);
    } else if (inside >= 4 && reinterpret_cast<size_t>(to) % 4 == 0) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
            reinterpret_cast<unsigned *>(to)[e] = reinterpret_cast<const unsigned *>(elements)[e];
        }
    } else {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            if (e < inside) {
                to[e] = elements[e];
            }
        }
    }
}

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

// cp.async with zero fill: begins the copy of `width` elements, which are 4, 8 or 16 bytes, to
// shared memory: the first `valid` from global memory, zeros for the others. The width is a
// constant where this is called.
__device__ __forceinline__ void cp_async_zfill(__nv_bfloat16 *to, const __nv_bfloat16 *from,
                                               int width, int valid)
{
    const unsigned address = shared_address(to);
    const int bytes = valid * 2;
    if (width == 8) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(address), "l"(from), "r"(bytes)
                     : "memory");
    } else if (width == 4) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                     :
                     : "r"(address), "l"(from), "r"(bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :
                     : "r"(address), "l"(from), "r"(bytes)
                     : "memory");
    }
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

// ldmatrix: 16 rows of A, 32 bytes deep in K.
// Lane 8 q + i has the address of line i of matrix q; each lane gets two neighbours of a line of
// each.
__device__ __forceinline__ void ldmatrix_a_x4(__nv_bfloat16 *to, const __nv_bfloat16 *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[2]), "=r"(words[1]), "=r"(words[3])
                 : "r"(shared_address(line))
                 : "memory");
}

// ldmatrix: 16 columns of B, 32 bytes deep in K.
// Lane 8 q + i has the address of line i of matrix q; each lane gets two neighbours of a line of
// each.
__device__ __forceinline__ void ldmatrix_b_x4(__nv_bfloat16 *to, const __nv_bfloat16 *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(line))
                 : "memory");
}

// mma.sync: acc += A * B of a warp, 16 x 16 by 16 x 8. A lane has two rows of A and of the
// accumulators, eight apart, and one column of B.
__device__ __forceinline__ void mma_m16n8k16(float *acc_upper, float *acc_lower,
                                             const __nv_bfloat16 *a_upper,
                                             const __nv_bfloat16 *a_lower, const __nv_bfloat16 *b)
{
    const unsigned *a0 = reinterpret_cast<const unsigned *>(a_upper);
    const unsigned *a1 = reinterpret_cast<const unsigned *>(a_lower);
    const unsigned *b0 = reinterpret_cast<const unsigned *>(b);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(acc_upper[0]), "+f"(acc_upper[1]), "+f"(acc_lower[0]), "+f"(acc_lower[1])
        : "r"(a0[0]), "r"(a1[0]), "r"(a0[1]), "r"(a1[1]), "r"(b0[0]), "r"(b0[1]));
}

// Shared memory of a block.
struct Shared {
    alignas(16) __nv_bfloat16 a[STAGES][BM][BK + 8]; // padded: lines begin in different banks
    alignas(16) __nv_bfloat16 b[STAGES][BN][BK + 8]; // padded: lines begin in different banks
};

// Its size is an argument of the launch.
extern __shared__ __align__(16) unsigned char shared_memory[];

} // namespace gemm_bf16_mma_128x128_s3_detail

extern "C" __global__ void __launch_bounds__(gemm_bf16_mma_128x128_s3_detail::THREADS)
gemm_bf16_mma_128x128_s3(int m, int n, int k, float alpha, const __nv_bfloat16 *__restrict__ a,
                         int lda, const __nv_bfloat16 *__restrict__ b, int ldb,
                         __nv_bfloat16 *__restrict__ c, int ldc)
{
    using namespace gemm_bf16_mma_128x128_s3_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_index = int(threadIdx.y) * THREADS_N + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int warp_row = warp / (THREADS_N / 4) * 8;
    const int warp_col = warp % (THREADS_N / 4) * 8;
    const int local_row = warp / (THREADS_N / 4) * 8 + lane / 4;
    const int local_col = warp % (THREADS_N / 4) * 4 + lane % 4;
    const int row0 = int(blockIdx.y) * BM;
    const int col0 = int(blockIdx.x) * (BN / 2);
    const int row = row0 + local_row;
    const int col = col0 + (local_col / 4 * 4 + local_col % 2 * 2 + local_col % 4 / 2) * 4;
    const int a_line_row = lane / 8 % 2 * THREADS_M + warp_row + lane % 8;
    const int a_line_k = lane / 16 * 8;
    const int b_line_col = lane / 16 * 8 + warp_col * 2 + lane % 8;
    const int b_line_k = lane / 8 % 2 * 8;

    __align__(16) __nv_bfloat16 a_frag[2][TM][4];
    __align__(16) __nv_bfloat16 b_frag[2][TN / 2][4];
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
            const int a_line = local_index / (BK / 8);
            const int a_at = local_index % (BK / 8) * 8;
            #pragma unroll 4
            for (int i = 0; i < BM * BK / (THREADS * 8); ++i) {
                const int a_fits = k_load + a_at + 8 <= k ? 8
                                   : k_load + a_at < k    ? k - (k_load + a_at)
                                                          : 0;
                const int a_inside = row0 + a_line + i * (THREADS * 8 / BK) < m ? a_fits : 0;
                cp_async_zfill(&shared.a[load_stage][a_line + i * (THREADS * 8 / BK)][a_at],
                               &a[(row0 + a_line + i * (THREADS * 8 / BK)) * lda + k_load + a_at],
                               8, a_inside);
            }
            const int b_line = local_index / (BK / 8);
            const int b_at = local_index % (BK / 8) * 8;
            #pragma unroll 2
            for (int i = 0; i < BN * BK / (THREADS * 8 * 2); ++i) {
                const int b_fits = k_load + b_at + 8 <= k ? 8
                                   : k_load + b_at < k    ? k - (k_load + b_at)
                                                          : 0;
                const int b_inside = col0 + b_line + i * (THREADS * 8 / BK) < n * 2 ? b_fits : 0;
                cp_async_zfill(&shared.b[load_stage][b_line + i * (THREADS * 8 / BK)][b_at],
                               &b[(col0 + b_line + i * (THREADS * 8 / BK)) * ldb + k_load + b_at],
                               8, b_inside);
            }
            #pragma unroll 2
            for (int i = 0; i < BN * BK / (THREADS * 8 * 2); ++i) {
                const int b_fits = k_load + b_at + 8 <= k ? 8
                                   : k_load + b_at < k    ? k - (k_load + b_at)
                                                          : 0;
                const int b_inside =
                    n + col0 + b_line + i * (THREADS * 8 / BK) < n * 2 ? b_fits : 0;
                cp_async_zfill(
                    &shared.b[load_stage][b_line + i * (THREADS * 8 / BK) + BN / 2][b_at],
                    &b[(n + col0 + b_line + i * (THREADS * 8 / BK)) * ldb + k_load + b_at], 8,
                    b_inside);
            }
        }
    };

    // Main loop; cp.async fills in zeros past K.
    #pragma unroll
    for (int load_stage = 0; load_stage < STAGES - 1; ++load_stage) {
        load_tiles(load_stage * BK, load_stage);
        cp_async_commit_group();
    }
    cp_async_wait_group<STAGES - 2>();
    __syncthreads();
    if (k > 0) {
        #pragma unroll
        for (int i = 0; i < TM / 2; ++i) {
            ldmatrix_a_x4(a_frag[0][i * 2], &shared.a[0][a_line_row + i * THREADS_M * 2][a_line_k]);
        }
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            ldmatrix_b_x4(b_frag[0][j * 2], &shared.b[0][b_line_col + j * THREADS_N * 4][b_line_k]);
        }
    }
    for (int k0 = 0; k0 < k; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        load_tiles(k0 + (STAGES - 1) * BK, load_stage);
        cp_async_commit_group();
        #pragma unroll
        for (int kk = 0; kk < BK - 16; kk += 16) {
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                ldmatrix_a_x4(a_frag[(kk / 16 + 1) % 2][i * 2],
                              &shared.a[stage][a_line_row + i * THREADS_M * 2][kk + a_line_k + 16]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                ldmatrix_b_x4(b_frag[(kk / 16 + 1) % 2][j * 2],
                              &shared.b[stage][b_line_col + j * THREADS_N * 4][kk + b_line_k + 16]);
            }
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                #pragma unroll
                for (int j = 0; j < TN / 2; ++j) {
                    mma_m16n8k16(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2],
                                 a_frag[kk / 16 % 2][i * 2], a_frag[kk / 16 % 2][i * 2 + 1],
                                 b_frag[kk / 16 % 2][j]);
                }
            }
        }
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        if (k0 + BK < k) {
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                ldmatrix_a_x4(
                    a_frag[0][i * 2],
                    &shared.a[(k0 / BK + 1) % STAGES][a_line_row + i * THREADS_M * 2][a_line_k]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                ldmatrix_b_x4(
                    b_frag[0][j * 2],
                    &shared.b[(k0 / BK + 1) % STAGES][b_line_col + j * THREADS_N * 4][b_line_k]);
            }
        }
        #pragma unroll
        for (int i = 0; i < TM / 2; ++i) {
            #pragma unroll
            for (int j = 0; j < TN / 2; ++j) {
                mma_m16n8k16(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2], a_frag[1][i * 2],
                             a_frag[1][i * 2 + 1], b_frag[1][j]);
            }
        }
    }

    // swiglu: one element of C of the sums in both halves of B's columns.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN / 2; ++j) {
            const float gate = alpha * acc[i][j];
            const float up = alpha * acc[i][j + TN / 2];
            acc[i][j] = gate * fast_sigmoid(gate) * up;
        }
    }

    // Lanes exchange sums, so that each has 4 neighbouring columns of C.
    const bool is_low = lane % 2 == 0;

    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN / 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                const float received = __shfl_xor_sync(
                    0xffffffffu, is_low ? acc[i][j * 4 + e + 2] : acc[i][j * 4 + e], 1, 32);
                acc[i][j * 4 + e] = is_low ? acc[i][j * 4 + e] : received;
                acc[i][j * 4 + e + 2] = is_low ? received : acc[i][j * 4 + e + 2];
            }
        }
    }

    // C = alpha * A * B, then swiglu.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i * THREADS_M < m) {
            #pragma unroll
            for (int j = 0; j < TN / 8; ++j) {
                store4_inside(&c[(row + i * THREADS_M) * ldc + col + j * THREADS_N * 4],
                              &acc[i][j * 4], n - (col + j * THREADS_N * 4));
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace gemm_bf16_mma_128x128_s3_detail {

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

} // namespace gemm_bf16_mma_128x128_s3_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t gemm_bf16_mma_128x128_s3_launch(int m, int n, int k, float alpha,
                                                       const __nv_bfloat16 *a, int lda,
                                                       const __nv_bfloat16 *b, int ldb,
                                                       __nv_bfloat16 *c, int ldc,
                                                       cudaStream_t stream)
{
    using namespace gemm_bf16_mma_128x128_s3_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || n >= 1 << 30 || lda % 8 != 0 || ldb % 8 != 0 || ldc % 8 != 0 ||
        !is_in_reach(m, k, lda) || !is_in_reach(n * 2, k, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    if (const cudaError_t error = cudaFuncSetAttribute(gemm_bf16_mma_128x128_s3,
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       int(sizeof(Shared)))) {
        return error;
    }
    const dim3 grid((n + BN / 2 - 1) / (BN / 2), (m + BM - 1) / BM);
    const dim3 block(THREADS_N, THREADS_M);
    gemm_bf16_mma_128x128_s3<<<grid, block, sizeof(Shared), stream>>>(m, n, k, alpha, a, lda, b,
                                                                      ldb, c, ldc);
    return cudaGetLastError();
}
#endif
