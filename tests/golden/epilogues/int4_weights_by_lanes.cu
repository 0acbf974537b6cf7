// gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl: C = alpha * A * prologue(B) + beta * C; bfloat16,
// B stored in int4, two elements a byte along K, ldb in bytes, sums in float32; B col-major
//
// Schedule   --method mma_direct --tile 2x2 --group 4x8 --set block_k=512 --set b.width=32 --set
//            sliced_k=4
// Tile       8x16 of C per block, 2x2 per thread, 512 along K per step
// Threads    128 per block, 4 slices of each step along K (sliced-K)
//            lanes of a warp as mma.sync has its accumulators
// A          global memory, loads of 8 elements
// B          global memory, loads of 32 elements
// Multiply   mma.sync m16n8k16, sums in float32
// C          slices added up in shared memory, stores of single elements
// Sizes      any m, n, k; leading dimensions multiples of 16; every matrix spans less than 2^31
//            elements
// Prologue   B: b * b_scale_128
// Takes      b_scale_128: an element for each group of 128 rows, and each column, of B
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (8, 16), grid ((n + 15) / 16, (m + 7) / 8) of at most 65,535 along y, registers
//            for 3 blocks per multiprocessor
// Needs      2,048 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c
//                gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_bf16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// It has mma.sync.
#error "gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl needs sm_80 or later"
#endif

namespace gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl_detail {

constexpr int BM = 8, BN = 16; // block tile of C
constexpr int SLICES = 4; // parts of a block's K (sliced-K)
constexpr int LOAD_K = 32; // elements of a lane's load along K
constexpr int THREADS_M = 4, THREADS_N = 8; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a slice
static_assert(BM == 8 && BN == 16,
              "BM and BN cannot change here: emit it again with --set tile=4x2");
static_assert(SLICES == 4, "SLICES cannot change here: emit it again with --set sliced_k=2");
static_assert(LOAD_K == 32, "LOAD_K cannot change here: emit it again with --set b.width=16");
static_assert(THREADS_M == 4 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: this schedule has no other group");

constexpr int BLOCK_THREADS = SLICES * THREADS;

// (word & mask) ^ bits by one instruction, where a compiler may take two.
__device__ __forceinline__ unsigned and_xor(unsigned word, unsigned mask, unsigned bits)
{
    unsigned result;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
    return result;
}

// One of the two int4 in a byte: 0 for its low half, 1 for the high one.
// The bits of 2^23 + 8 + v are 0x4b000008 + v, and those of 2^19 + 8 + v are 0x49000080 + 16 * v,
// which needs no shift, and no conversion: one of those takes four times as long.
__device__ __forceinline__ float nibble(signed char pair, int place)
{
    return place == 0 ? __int_as_float(int(and_xor(pair, 15, 0x4b000008))) - 8388616.0f
                      : __int_as_float(int(and_xor(pair, 240, 0x49000080))) - 524296.0f;
}

// 8 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy8(__nv_bfloat16 *to, const __nv_bfloat16 *from)
{
    *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
}

// 16 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy16(signed char *to, const signed char *from)
{
    *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
}

// The 32 int4 of 16 bytes in registers, converted to their type, the low half of a byte first.
__device__ __forceinline__ void copy_pairs32(__nv_bfloat16 *to, const signed char *from)
{
    // The bits of 128 + 8 + v are those of 128 + 8, in either half of a word, but for the lowest
    // four.
    const unsigned zeros = 0x43084308u;
    #pragma unroll
    for (int e = 0; e < 32; e += 2) {
        const unsigned word = reinterpret_cast<const unsigned *>(from)[e / 8];
        // A byte's low half in the lower half of a word, its high half in the upper one.
        const unsigned apart = __byte_perm(word, word >> 4, 0x0400 + e % 8 / 2 * 0x0101);
        const unsigned bits = and_xor(apart, 0x000f000fu, zeros);
        *reinterpret_cast<__nv_bfloat162 *>(to + e) =
            __hsub2(reinterpret_cast<const __nv_bfloat162 &>(bits),
                    reinterpret_cast<const __nv_bfloat162 &>(zeros));
    }
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

} // namespace gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl_detail

extern "C" __global__ void
    __launch_bounds__(gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl_detail::BLOCK_THREADS, 3)
    gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl(int m, int n, int k, float alpha,
                                                   const __nv_bfloat16 *__restrict__ a, int lda,
                                                   const signed char *__restrict__ b, int ldb,
                                                   float beta, __nv_bfloat16 *__restrict__ c,
                                                   int ldc, const float *__restrict__ b_scale_128)
{
    using namespace gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl_detail;

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

    // Each warp goes along K by LOAD_K * 4 elements at a time.
    for (int k0 = slice * LOAD_K * 4; k0 < k - (LOAD_K * 4 - 1); k0 += SLICES * LOAD_K * 4) {
        __align__(16) __nv_bfloat16 a_frag[LOAD_K];
        __align__(16) __nv_bfloat16 b_frag[TN][LOAD_K];
        #pragma unroll
        for (int j = 0; j < LOAD_K / 8; ++j) {
            copy8(&a_frag[j * 8],
                  &a[min(row0 + lane / 4, m - 1) * lda + k0 + lane % 4 * LOAD_K + j * 8]);
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            __align__(16) signed char b_pairs[16];
            copy16(b_pairs,
                   &b[min(col + j * THREADS_N, n - 1) * ldb + (k0 + lane % 4 * LOAD_K) / 2]);
            copy_pairs32(b_frag[j], b_pairs);
        }
        float step_sums[TN][TM];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                step_sums[j][i] = 0.0f;
            }
        }

        // Operands are exchanged: columns of B are the instruction's rows.
        #pragma unroll
        for (int p = 0; p < LOAD_K / 4; ++p) {
            mma_m16n8k16(step_sums[0], step_sums[1], &b_frag[0][p * 4], &b_frag[1][p * 4],
                         &a_frag[p * 4]);
        }

        // Elements of a load share their scale, which multiplies their sums.
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[j][i] =
                    fmaf(step_sums[j][i],
                         b_scale_128[k0 / 128 * n + min(col + j * THREADS_N, n - 1)], acc[j][i]);
            }
        }
    }

    // What is left of K; what lies past it counts as zero.
    for (int k0 = k - k % (LOAD_K * 4) + slice * 16; k0 < k; k0 += SLICES * 16) {
        __align__(16) __nv_bfloat16 a_frag[4];
        __align__(16) __nv_bfloat16 b_frag[TN][4];
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            a_frag[j] = k0 + lane % 4 * 4 + j < k
                            ? a[min(row0 + lane / 4, m - 1) * lda + k0 + lane % 4 * 4 + j]
                            : __nv_bfloat16();
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                b_frag[j][i] = k0 + lane % 4 * 4 + i < k
                                   ? __nv_bfloat16(nibble(b[min(col + j * THREADS_N, n - 1) * ldb +
                                                            (k0 + lane % 4 * 4 + i) / 2],
                                                          (k0 + lane % 4 * 4 + i) % 2))
                                   : __nv_bfloat16();
            }
        }
        float step_sums[TN][TM];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                step_sums[j][i] = 0.0f;
            }
        }

        // Operands are exchanged: columns of B are the instruction's rows.
        mma_m16n8k16(step_sums[0], step_sums[1], b_frag[0], b_frag[1], a_frag);

        // Elements of a load share their scale, which multiplies their sums.
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[j][i] =
                    fmaf(step_sums[j][i],
                         b_scale_128[k0 / 128 * n + min(col + j * THREADS_N, n - 1)], acc[j][i]);
            }
        }
    }

    // Sliced-K: every slice writes its partial sums; then they are added up.
    __shared__ float partial[SLICES][BM][BN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            partial[slice][local_row * 2 + i][local_col + j * THREADS_N] = alpha * acc[j][i];
        }
    }
    __syncthreads();

    const int sum_row = local_index / BN;
    const int sum_col = local_index % BN;
    const int first_col = col0 + sum_col;

    float total = partial[0][sum_row][sum_col];
    #pragma unroll
    for (int s = 1; s < SLICES; ++s) {
        total += partial[s][sum_row][sum_col];
    }

    // C = alpha * A * prologue(B) + beta * C; C is not read where beta is zero.
    const int c_row = row0 + sum_row;

    if (c_row < m && first_col < n) {
        const float c_value =
            beta == 0.0f ? total : fmaf(beta, float(c[c_row * ldc + first_col]), total);
        c[c_row * ldc + first_col] = __nv_bfloat16(c_value);
    }
}

#ifndef __CUDACC_RTC__
namespace gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl_detail {

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

} // namespace gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl_launch(
    int m, int n, int k, float alpha, const __nv_bfloat16 *a, int lda, const signed char *b,
    int ldb, float beta, __nv_bfloat16 *c, int ldc, const float *b_scale_128, cudaStream_t stream)
{
    using namespace gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16) ||
        !is_aligned(b_scale_128, 4)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || lda % 16 != 0 || ldb % 16 != 0 || ldc % 16 != 0 || !is_in_reach(m, k, lda) ||
        !is_in_reach(n, (k + 1) / 2, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    const dim3 block(THREADS_N, SLICES * THREADS_M);
    gemm_bf16_s4_mma_direct_8x16_sliced4_k512_ysbl<<<grid, block, 0, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, b_scale_128);
    return cudaGetLastError();
}
#endif
