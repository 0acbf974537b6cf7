// gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5: C = alpha * A * prologue(B) + beta * C; float16, B
// stored in int4, two elements a byte along K, ldb in bytes, sums in float32; B col-major
//
// Schedule   --method gemv --tile 2x4 --group 1x1 --set block_k=4096 --set a.width=8 --set
//            b.width=32 --set sliced_k=4
// Tile       2x4 of C per block, 2x4 per thread, 4096 along K per step
// Threads    128 per block, 4 slices of each step along K (sliced-K), each of 32 lanes
// A          global memory, loads of 8 elements
// B          global memory, loads of 32 elements
// Multiply   fused multiply-add
// C          slices added up in shared memory, stores of single elements
// Sizes      any m, n, k; leading dimensions multiples of 16; every matrix spans less than 2^31
//            elements
// Prologue   B: b * b_scale_128
// Takes      b_scale_128: an element for each group of 128 rows, and each column, of B
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (32, 4), grid ((n + 3) / 4, (m + 1) / 2) of at most 65,535 along y
// Needs      128 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c
//                gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_fp16.h>

namespace gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail {

constexpr int BM = 2, BN = 4; // block tile of C
constexpr int SLICES = 4; // parts of a block's K (sliced-K)
constexpr int LANES_K = 32, LOAD_K = 32; // lanes along K, and elements of a lane's load along K
constexpr int TM = BM, TN = BN; // tile of C of a thread
static_assert(BM == 2 && BN == 4,
              "BM and BN cannot change here: emit it again with --set tile=4x4");
static_assert(SLICES == 4, "SLICES cannot change here: emit it again with --set sliced_k=2");
static_assert(LANES_K == 32,
              "LANES_K cannot change here: emit it again with --set lanes_along_k=16");
static_assert(LOAD_K == 32, "LOAD_K cannot change here: emit it again with --set b.width=16");

constexpr int BLOCK_THREADS = SLICES * LANES_K;

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
__device__ __forceinline__ void copy8(__half *to, const __half *from)
{
    *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
}

// 16 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy16(signed char *to, const signed char *from)
{
    *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
}

// 8 neighbouring elements to registers, converted to their type; `from` is a multiple of 16 bytes.
__device__ __forceinline__ void copy8(float *to, const __half *from)
{
    __align__(16) __half elements[8];
    copy8(elements, from);
    #pragma unroll
    for (int e = 0; e < 8; ++e) {
        to[e] = float(elements[e]);
    }
}

} // namespace gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail

extern "C" __global__ void
    __launch_bounds__(gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail::BLOCK_THREADS)
    gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5(int m, int n, int k, float alpha,
                                            const __half *__restrict__ a, int lda,
                                            const signed char *__restrict__ b, int ldb, float beta,
                                            __half *__restrict__ c, int ldc,
                                            const float *__restrict__ b_scale_128)
{
    using namespace gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail;

    const int slice = int(threadIdx.y);
    const int lane_k = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * BM;
    const int col0 = int(blockIdx.x) * BN;
    const int local_index = int(threadIdx.y) * LANES_K + int(threadIdx.x);

    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Each lane goes along K by LOAD_K elements at a time.
    for (int k0 = (slice * LANES_K + lane_k) * LOAD_K; k0 < k - (LOAD_K - 1);
         k0 += SLICES * LANES_K * LOAD_K) {
        __align__(16) float a_frag[TM][LOAD_K];
        float b_frag[TN][LOAD_K];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < LOAD_K / 8; ++j) {
                copy8(&a_frag[i][j * 8], &a[min(row0 + i, m - 1) * lda + k0 + j * 8]);
            }
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            __align__(16) signed char b_pairs[16];
            copy16(b_pairs, &b[min(col0 + j, n - 1) * ldb + k0 / 2]);
            #pragma unroll
            for (int e = 0; e < 32; ++e) {
                b_frag[j][e] = nibble(b_pairs[e / 2], e % 2);
            }
        }
        float step_sums[TM][TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                step_sums[i][j] = 0.0f;
            }
        }
        #pragma unroll
        for (int p = 0; p < LOAD_K; ++p) {
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    step_sums[i][j] = fmaf(a_frag[i][p], b_frag[j][p], step_sums[i][j]);
                }
            }
        }

        // Elements of a load share their scale, which multiplies their sums.
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[i][j] = fmaf(step_sums[i][j], b_scale_128[k0 / 128 * n + min(col0 + j, n - 1)],
                                 acc[i][j]);
            }
        }
    }

    // What is left of K: a lane has one element of it.
    const int k_left = k - k % LOAD_K + slice * LANES_K + lane_k;

    if (k_left < k) {
        float a_frag[TM];
        float b_frag[TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            a_frag[i] = float(a[min(row0 + i, m - 1) * lda + k_left]);
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            b_frag[j] = nibble(b[min(col0 + j, n - 1) * ldb + k_left / 2], k_left % 2);
        }
        float step_sums[TM][TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                step_sums[i][j] = 0.0f;
            }
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                step_sums[i][j] = fmaf(a_frag[i], b_frag[j], step_sums[i][j]);
            }
        }

        // Elements of a load share their scale, which multiplies their sums.
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[i][j] = fmaf(step_sums[i][j],
                                 b_scale_128[k_left / 128 * n + min(col0 + j, n - 1)], acc[i][j]);
            }
        }
    }

    // Butterfly reduction: lanes exchange halves of their sums, and each ends with its own.
    const bool is_low_16 = lane_k / 16 % 2 == 0;

    #pragma unroll
    for (int j = 0; j < TN; ++j) {
        const float received =
            __shfl_xor_sync(0xffffffffu, is_low_16 ? acc[TM / 2][j] : acc[0][j], 16, 32);
        acc[0][j] = (is_low_16 ? acc[0][j] : acc[TM / 2][j]) + received;
    }

    const bool is_low_8 = lane_k / 8 % 2 == 0;

    #pragma unroll
    for (int j = 0; j < TN / 2; ++j) {
        const float received =
            __shfl_xor_sync(0xffffffffu, is_low_8 ? acc[0][j + TN / 2] : acc[0][j], 8, 32);
        acc[0][j] = (is_low_8 ? acc[0][j] : acc[0][j + TN / 2]) + received;
    }

    const bool is_low_4 = lane_k / 4 % 2 == 0;
    const float received =
        __shfl_xor_sync(0xffffffffu, is_low_4 ? acc[0][TN / 4] : acc[0][0], 4, 32);

    acc[0][0] = (is_low_4 ? acc[0][0] : acc[0][TN / 4]) + received;
    acc[0][0] += __shfl_xor_sync(0xffffffffu, acc[0][0], 2, 32);
    acc[0][0] += __shfl_xor_sync(0xffffffffu, acc[0][0], 1, 32);

    // Every slice writes its partial sums; then they are added up.
    __shared__ float partial[SLICES][BM][BN];
    if (lane_k % 4 == 0) {
        partial[slice][lane_k / 16][lane_k / 4 % 4] = alpha * acc[0][0];
    }
    __syncthreads();

    const int sum_row = local_index / BN;
    const int sum_col = local_index % BN;
    const int first_col = col0 + sum_col;

    if (local_index < BM * BN) {
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
}

#ifndef __CUDACC_RTC__
namespace gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail {

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

} // namespace gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_launch(
    int m, int n, int k, float alpha, const __half *a, int lda, const signed char *b, int ldb,
    float beta, __half *c, int ldc, const float *b_scale_128, cudaStream_t stream)
{
    using namespace gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_detail;

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
    const dim3 block(LANES_K, SLICES);
    gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5<<<grid, block, 0, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, b_scale_128);
    return cudaGetLastError();
}
#endif
