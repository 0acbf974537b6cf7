// gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd: C = alpha * A * prologue(B) + beta * C; float16, B
// stored in int8, sums in float32; B col-major
//
// Schedule   --method mma_direct --tile 2x2 --group 4x8 --set block_k=256 --set b.width=16 --set
//            sliced_k=4
// Tile       8x16 of C per block, 2x2 per thread, 256 along K per step
// Threads    128 per block, 4 slices of each step along K (sliced-K)
//            lanes of a warp as mma.sync has its accumulators
// A          global memory, loads of 8 elements
// B          global memory, loads of 16 elements
// Multiply   mma.sync m16n8k16, sums in float32
// C          slices added up in shared memory, stores of single elements
// Sizes      any m, n, k; leading dimensions multiples of 16; every matrix spans less than 2^31
//            elements
// Prologue   B: (b - b_zero) * b_scale
// Takes      b_scale: an element for each column of B
//            b_zero: an element for each column of B
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (8, 16), grid ((n + 15) / 16, (m + 7) / 8) of at most 65,535 along y, registers
//            for 3 blocks per multiprocessor
// Needs      2,048 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c
//                gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_fp16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// It has mma.sync.
#error "gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd needs sm_80 or later"
#endif

namespace gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd_detail {

constexpr int BM = 8, BN = 16; // block tile of C
constexpr int SLICES = 4; // parts of a block's K (sliced-K)
constexpr int LOAD_K = 16; // elements of a lane's load along K
constexpr int THREADS_M = 4, THREADS_N = 8; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a slice
static_assert(BM == 8 && BN == 16,
              "BM and BN cannot change here: emit it again with --set tile=4x2");
static_assert(SLICES == 4, "SLICES cannot change here: emit it again with --set sliced_k=2");
static_assert(LOAD_K == 16, "LOAD_K cannot change here: emit it again with --set b.width=8");
static_assert(THREADS_M == 4 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: this schedule has no other group");

constexpr int BLOCK_THREADS = SLICES * THREADS;

// An int8: the bits of 2^23 + 128 + v are 0x4b000080 + v, which needs no conversion: one of those
// takes four times as long.
__device__ __forceinline__ float from_int8(signed char v)
{
    return __int_as_float((v & 255) ^ 0x4b000080) - 8388736.0f;
}

// 8 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy8(__half *to, const __half *from)
{
    *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
}

// 16 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy16(signed char *to, const signed char *from)
{
    *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
}

// 16 neighbouring elements to registers, converted to their type, less `zero_point`; `from` is a
// multiple of 16 bytes.
__device__ __forceinline__ void copy16(__half *to, const signed char *from, int zero_point)
{
    __align__(16) signed char elements[16];
    copy16(elements, from);
    #pragma unroll
    for (int e = 0; e < 16; e += 2) {
        // Bytes that are 16 bits apart are added to 1024 by their bits, and that is subtracted.
        const unsigned apart = __byte_perm(reinterpret_cast<const unsigned *>(elements)[e / 4], 0,
                                           e % 4 ? 0x4342 : 0x4140);
        const unsigned zeros = 0x64806480u;
        const unsigned bits = apart ^ zeros;
        *reinterpret_cast<__half2 *>(to + e) =
            __hsub2(__hsub2(reinterpret_cast<const __half2 &>(bits),
                            reinterpret_cast<const __half2 &>(zeros)),
                    __float2half2_rn(float(zero_point)));
    }
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

} // namespace gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd_detail

extern "C" __global__ void
    __launch_bounds__(gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd_detail::BLOCK_THREADS, 3)
    gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd(int m, int n, int k, float alpha,
                                                  const __half *__restrict__ a, int lda,
                                                  const signed char *__restrict__ b, int ldb,
                                                  float beta, __half *__restrict__ c, int ldc,
                                                  const float *__restrict__ b_scale,
                                                  const signed char *__restrict__ b_zero)
{
    using namespace gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd_detail;

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
    float own_b_scale[TN];
    #pragma unroll
    for (int j = 0; j < TN; ++j) {
        own_b_scale[j] = b_scale[min(col + j * THREADS_N, n - 1)];
    }

    // Each warp goes along K by LOAD_K * 4 elements at a time.
    for (int k0 = slice * LOAD_K * 4; k0 < k - (LOAD_K * 4 - 1); k0 += SLICES * LOAD_K * 4) {
        __align__(16) __half a_frag[LOAD_K];
        __align__(16) __half b_frag[TN][LOAD_K];
        #pragma unroll
        for (int j = 0; j < LOAD_K / 8; ++j) {
            copy8(&a_frag[j * 8],
                  &a[min(row0 + lane / 4, m - 1) * lda + k0 + lane % 4 * LOAD_K + j * 8]);
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            copy16(b_frag[j], &b[min(col + j * THREADS_N, n - 1) * ldb + k0 + lane % 4 * LOAD_K],
                   b_zero[min(col + j * THREADS_N, n - 1)]);
        }

        // Operands are exchanged: columns of B are the instruction's rows.
        #pragma unroll
        for (int p = 0; p < LOAD_K / 4; ++p) {
            mma_m16n8k16(acc[0], acc[1], &b_frag[0][p * 4], &b_frag[1][p * 4], &a_frag[p * 4]);
        }
    }

    // What is left of K; what lies past it counts as zero.
    for (int k0 = k - k % (LOAD_K * 4) + slice * 16; k0 < k; k0 += SLICES * 16) {
        __align__(16) __half a_frag[4];
        __align__(16) __half b_frag[TN][4];
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            a_frag[j] = k0 + lane % 4 * 4 + j < k
                            ? a[min(row0 + lane / 4, m - 1) * lda + k0 + lane % 4 * 4 + j]
                            : __half();
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int b_element_col = min(col + j * THREADS_N, n - 1);
                b_frag[j][i] =
                    k0 + lane % 4 * 4 + i < k
                        ? __half(from_int8(b[b_element_col * ldb + k0 + lane % 4 * 4 + i]) -
                                 from_int8(b_zero[b_element_col]))
                        : __half();
            }
        }

        // Operands are exchanged: columns of B are the instruction's rows.
        mma_m16n8k16(acc[0], acc[1], b_frag[0], b_frag[1], a_frag);
    }

    // Scales that hold for all of K multiply the sums, not each element.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[j][i] = acc[j][i] * own_b_scale[j];
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
        c[c_row * ldc + first_col] = __half(c_value);
    }
}

#ifndef __CUDACC_RTC__
namespace gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd_detail {

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

} // namespace gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd_launch(
    int m, int n, int k, float alpha, const __half *a, int lda, const signed char *b, int ldb,
    float beta, __half *c, int ldc, const float *b_scale, const signed char *b_zero,
    cudaStream_t stream)
{
    using namespace gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16) || !is_aligned(b_scale, 4)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || lda % 16 != 0 || ldb % 16 != 0 || ldc % 16 != 0 || !is_in_reach(m, k, lda) ||
        !is_in_reach(n, k, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    const dim3 block(THREADS_N, SLICES * THREADS_M);
    gemm_f16_s8_mma_direct_8x16_sliced4_k256_4ukd<<<grid, block, 0, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, b_scale, b_zero);
    return cudaGetLastError();
}
#endif
