// gemm_f16_mma_direct_32x32_sliced8_k256: C = alpha * A * B + beta * C; float16, sums in float32; B
// col-major
//
// Schedule   --method mma_direct --tile 8x4 --group 4x8 --set block_k=256 --set sliced_k=8
// Tile       32x32 of C per block, 8x4 per thread, 256 along K per step
// Threads    256 per block, 8 slices of each step along K (sliced-K)
//            lanes of a warp as mma.sync has its accumulators
// A          global memory, loads of 8 elements
// B          global memory, loads of 8 elements
// Multiply   mma.sync m16n8k16, sums in float32
// C          slices added up in shared memory, stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (8, 32), grid ((n + 31) / 32, (m + 31) / 32) of at most 65,535 along y,
//            registers for 1 block per multiprocessor
// Needs      32,768 bytes of shared memory
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c
//                gemm_f16_mma_direct_32x32_sliced8_k256.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// It has mma.sync.
#error "gemm_f16_mma_direct_32x32_sliced8_k256 needs sm_80 or later"
#endif

namespace gemm_f16_mma_direct_32x32_sliced8_k256_detail {

constexpr int BM = 32, BN = 32; // block tile of C
constexpr int SLICES = 8; // parts of a block's K (sliced-K)
constexpr int LOAD_K = 8; // elements of a lane's load along K
constexpr int THREADS_M = 4, THREADS_N = 8; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a slice
static_assert(BM == 32 && BN == 32,
              "BM and BN cannot change here: emit it again with --set tile=4x4");
static_assert(SLICES == 8, "SLICES cannot change here: emit it again with --set sliced_k=4");
static_assert(LOAD_K == 8, "LOAD_K cannot change here: this schedule has no other b.width");
static_assert(THREADS_M == 4 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: this schedule has no other group");

constexpr int BLOCK_THREADS = SLICES * THREADS;

// 8 neighbouring elements that begin anywhere; `to` is a multiple of 16 bytes. They are cut out of
// the two vectors that do begin on such multiples and have a part of them. Those must be there as a
// whole, and nobody may write to them meanwhile.
__device__ __forceinline__ void copy8_from_anywhere(__half *to, const __half *from)
{
    const unsigned past = unsigned(reinterpret_cast<unsigned long long>(from) % 16);
    const uint4 *around = reinterpret_cast<const uint4 *>(from - past / sizeof(__half));
    const uint4 low = __ldg(around);
    const uint4 high = __ldg(around + 1);
    unsigned words[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    #pragma unroll
    for (int i = 0; i < 6; ++i) {
        words[i] = past & 8 ? words[i + 2] : words[i];
    }
    #pragma unroll
    for (int i = 0; i < 5; ++i) {
        words[i] = past & 4 ? words[i + 1] : words[i];
    }
    const unsigned bits = past % 4 * 8;
    *reinterpret_cast<uint4 *>(to) =
        uint4{__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
              __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits)};
}

// mma.sync: acc += A * B of a warp, 16 x 16 by 16 x 8. A lane has two rows of A and of the
// accumulators, eight apart, and one column of B.
__device__ __forceinline__ void mma_m16n8k16(float *acc_upper, float *acc_lower,
                                             const __half *a_upper, const __half *a_lower,
                                             const __half *b)
{
    const unsigned *a0 = reinterpret_cast<const unsigned *>(a_upper);
    const unsigned *a1 = reinterpret_cast<const unsigned *>(a_lower);
    const unsigned *b0 = reinterpret_cast<const unsigned *>(b);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(acc_upper[0]), "+f"(acc_upper[1]), "+f"(acc_lower[0]), "+f"(acc_lower[1])
        : "r"(a0[0]), "r"(a1[0]), "r"(a0[1]), "r"(a1[1]), "r"(b0[0]), "r"(b0[1]));
}

} // namespace gemm_f16_mma_direct_32x32_sliced8_k256_detail

extern "C" __global__ void
    __launch_bounds__(gemm_f16_mma_direct_32x32_sliced8_k256_detail::BLOCK_THREADS, 1)
    gemm_f16_mma_direct_32x32_sliced8_k256(int m, int n, int k, float alpha,
                                           const __half *__restrict__ a, int lda,
                                           const __half *__restrict__ b, int ldb, float beta,
                                           __half *__restrict__ c, int ldc)
{
    using namespace gemm_f16_mma_direct_32x32_sliced8_k256_detail;

    const int local_index = int(threadIdx.y) * THREADS_N + int(threadIdx.x);
    const int slice = local_index / THREADS;
    const int lane = local_index % 32;
    const int local_row = lane % 4;
    const int local_col = lane / 4;
    const int row0 = int(blockIdx.y) * BM;
    const int col0 = int(blockIdx.x) * BN;
    const int col = col0 + local_col;

    float acc[TN][TM];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[j][i] = 0.0f;
        }
    }

    // Vectors lie in two that begin where they may, neither before nor behind the matrix.
    const int k_main = k - 7;

    // Each warp goes along K by LOAD_K * 4 elements at a time.
    for (int k0 = slice * LOAD_K * 4 + LOAD_K * 4; k0 < k_main - (LOAD_K * 4 - 1);
         k0 += SLICES * LOAD_K * 4) {
        __align__(16) __half a_frag[BM / 8][LOAD_K];
        __align__(16) __half b_frag[TN][LOAD_K];
        #pragma unroll
        for (int i = 0; i < BM / 8; ++i) {
            copy8_from_anywhere(
                a_frag[i], &a[min(row0 + lane / 4 + i * 8, m - 1) * lda + k0 + lane % 4 * LOAD_K]);
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            copy8_from_anywhere(b_frag[j],
                                &b[min(col + j * THREADS_N, n - 1) * ldb + k0 + lane % 4 * LOAD_K]);
        }

        // Operands are exchanged: columns of B are the instruction's rows.
        #pragma unroll
        for (int p = 0; p < LOAD_K / 4; ++p) {
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                #pragma unroll
                for (int j = 0; j < TN / 2; ++j) {
                    mma_m16n8k16(&acc[j * 2][i * 2], &acc[j * 2 + 1][i * 2], &b_frag[j * 2][p * 4],
                                 &b_frag[j * 2 + 1][p * 4], &a_frag[i][p * 4]);
                }
            }
        }
    }

    // What is left of K, in front of that and behind; what lies past it counts as zero.
    const int k_last = k_main > LOAD_K * 4 ? k_main - k_main % (LOAD_K * 4) : LOAD_K * 4;

    for (int k_rest = slice * 16; k_rest < k - k_last + LOAD_K * 4; k_rest += SLICES * 16) {
        const int k0 = k_rest < LOAD_K * 4 ? k_rest : k_last + k_rest - LOAD_K * 4;
        __align__(16) __half a_frag[BM / 8][4];
        __align__(16) __half b_frag[TN][4];
        #pragma unroll
        for (int i = 0; i < BM / 8; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                a_frag[i][j] =
                    k0 + lane % 4 * 4 + j < k
                        ? a[min(row0 + lane / 4 + i * 8, m - 1) * lda + k0 + lane % 4 * 4 + j]
                        : __half();
            }
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                b_frag[j][i] =
                    k0 + lane % 4 * 4 + i < k
                        ? b[min(col + j * THREADS_N, n - 1) * ldb + k0 + lane % 4 * 4 + i]
                        : __half();
            }
        }

        // Operands are exchanged: columns of B are the instruction's rows.
        #pragma unroll
        for (int i = 0; i < TM / 2; ++i) {
            #pragma unroll
            for (int j = 0; j < TN / 2; ++j) {
                mma_m16n8k16(&acc[j * 2][i * 2], &acc[j * 2 + 1][i * 2], b_frag[j * 2],
                             b_frag[j * 2 + 1], a_frag[i]);
            }
        }
    }

    // Sliced-K: every slice writes its partial sums; then they are added up.
    __shared__ float partial[SLICES][BM][BN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int partial_row = local_row * 2 + i / 2 * THREADS_M * 2 + i % 2;
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            partial[slice][partial_row][local_col + j * THREADS_N] = alpha * acc[j][i];
        }
    }
    __syncthreads();

    const int sum_row = local_index / BN;
    const int sum_col = local_index % BN;
    const int first_col = col0 + sum_col;

    float total[BM / (SLICES * THREADS / BN)];
    #pragma unroll
    for (int i = 0; i < BM / (SLICES * THREADS / BN); ++i) {
        total[i] = partial[0][sum_row + i * (SLICES * THREADS / BN)][sum_col];
        #pragma unroll
        for (int s = 1; s < SLICES; ++s) {
            total[i] += partial[s][sum_row + i * (SLICES * THREADS / BN)][sum_col];
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < BM / (SLICES * THREADS / BN); ++i) {
        const int c_row = row0 + sum_row + i * (SLICES * THREADS / BN);
        if (c_row < m && first_col < n) {
            const float c_value =
                beta == 0.0f ? total[i] : fmaf(beta, float(c[c_row * ldc + first_col]), total[i]);
            c[c_row * ldc + first_col] = __half(c_value);
        }
    }
}

#ifndef __CUDACC_RTC__
namespace gemm_f16_mma_direct_32x32_sliced8_k256_detail {

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

} // namespace gemm_f16_mma_direct_32x32_sliced8_k256_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t gemm_f16_mma_direct_32x32_sliced8_k256_launch(int m, int n, int k,
                                                                     float alpha, const __half *a,
                                                                     int lda, const __half *b,
                                                                     int ldb, float beta, __half *c,
                                                                     int ldc, cudaStream_t stream)
{
    using namespace gemm_f16_mma_direct_32x32_sliced8_k256_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 2) || !is_aligned(b, 2) || !is_aligned(c, 2)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(n, k, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    const dim3 block(THREADS_N, SLICES * THREADS_M);
    gemm_f16_mma_direct_32x32_sliced8_k256<<<grid, block, 0, stream>>>(m, n, k, alpha, a, lda, b,
                                                                       ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
