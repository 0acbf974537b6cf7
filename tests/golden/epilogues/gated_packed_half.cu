// gated_packed_half: C = alpha * prologue(A) * prologue(B) + beta * C; float16, sums in float32
//
// Tile       32x32 of C per block, 4x4 per thread, 8 along K per step
// Threads    8x8 per block
// A          global memory, prepacked by a kernel before, loads of 4 elements, to shared memory
// B          global memory, prepacked by a kernel before, loads of 4 elements, to shared memory
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Prologue   A: a / (1 + exp(-a))
//            B: b * b_factor
// Takes      b_factor: an element for all of B
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     gated_packed_half_pack: block (32, 8), grid (((k + 7) / 8 * 8 + 31) / 32 * ((m + 31) /
//                32) + ((k + 7) / 8 * 8 + 31) / 32 * (((n + 31) / 32 * 32 + 63) / 64), 1)
//            gated_packed_half: block (8, 8), grid ((n + 31) / 32, (m + 31) / 32) of at most 65,535
//                along y
// Needs      2,112 bytes of shared memory
//            a_packed of (k + 7) / 8 * 8 * ((m + 31) / 32 * 32) elements, aligned to 8 bytes
//            b_packed of (k + 7) / 8 * 8 * ((n + 31) / 32 * 32) elements, aligned to 8 bytes
//            matrices that begin on multiples of 8 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c gated_packed_half.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_fp16.h>

namespace gated_packed_half_detail {

constexpr int BM = 32, BN = 32, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int THREADS_M = 8, THREADS_N = 8; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(THREADS_M == 8 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=4x8");
static_assert(TM % 4 == 0 && TN % 4 == 0, "TM and TN must be multiples of 4");
static_assert(BM * BK % (THREADS * 4) == 0 && BN * BK % (THREADS * 4) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 4");
static_assert(THREADS * 4 % BM == 0, "THREADS * 4 must be a multiple of BM");
static_assert(THREADS * 4 % BN == 0, "THREADS * 4 must be a multiple of BN");
static_assert(BM % 32 == 0, "BM must be a multiple of 32");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM == 4 && TN == 4, "TM and TN must be 4 here: emit it again with --set tile=8x4");

// 2 neighbouring elements; both addresses are multiples of 4 bytes.
__device__ __forceinline__ void copy2(__half *to, const __half *from)
{
    *reinterpret_cast<unsigned *>(to) = *reinterpret_cast<const unsigned *>(from);
}

// 4 neighbouring elements; both addresses are multiples of 8 bytes.
__device__ __forceinline__ void copy4(__half *to, const __half *from)
{
    *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(from);
}

// 4 neighbouring elements to registers, converted to their type; `from` is a multiple of 8 bytes.
__device__ __forceinline__ void copy4(float *to, const __half *from)
{
    __align__(8) __half elements[4];
    copy4(elements, from);
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
        to[e] = float(elements[e]);
    }
}

static_assert(sizeof(__half[BK][BM]) + sizeof(__half[BK][BN]) <= 49152,
              "an array of a fixed size has no room for it: emit a kernel with these constants");

} // namespace gated_packed_half_detail

extern "C" __global__ void __launch_bounds__(256)
gated_packed_half_pack(int m, int n, int k, const __half *__restrict__ a, int lda,
                       const __half *__restrict__ b, int ldb, __half *__restrict__ a_packed,
                       __half *__restrict__ b_packed, const float *__restrict__ b_factor)
{
    using namespace gated_packed_half_detail;

    const int m_whole = (m + BM - 1) / BM * BM;
    const int n_whole = (n + BN - 1) / BN * BN;
    const int k_whole = (k + BK - 1) / BK * BK;
    const int a_blocks = (k_whole + 31) / 32 * ((m_whole + 31) / 32);
    const int block = int(blockIdx.x) < a_blocks ? int(blockIdx.x) : int(blockIdx.x) - a_blocks;
    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);

    // Padded: lines begin in different banks.
    __shared__ __half a_tile[32][33];
    if (int(blockIdx.x) < a_blocks) {
        const int a_slow = block / ((m_whole + 31) / 32) * 32;
        const int a_fast = block % ((m_whole + 31) / 32) * 32;

        // Transposed through a tile, so that reads and writes are both contiguous.
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float a_element =
                float(a_fast + i * 8 + local_row < m && a_slow + local_col < k
                          ? a[(a_fast + i * 8 + local_row) * lda + a_slow + local_col]
                          : __half());
            a_tile[i * 8 + local_row][local_col] =
                a_fast + i * 8 + local_row < m && a_slow + local_col < k
                    ? __half(a_element / (1.0f + expf(-a_element)))
                    : __half();
        }
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (a_slow + i * 8 + local_row < k_whole && a_fast + local_col < m_whole) {
                a_packed[(a_slow + i * 8 + local_row) * m_whole + a_fast + local_col] =
                    a_tile[local_col][i * 8 + local_row];
            }
        }
    } else {
        const int b_slow = block / ((n_whole + 63) / 64) * 32;
        const int b_fast = block % ((n_whole + 63) / 64) * 64;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (b_slow + i * 8 + local_row < k_whole && b_fast + local_col * 2 + 2 <= n_whole) {
                __align__(16) __half word[2];
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    word[j] = b_slow + i * 8 + local_row < k && b_fast + local_col * 2 + j < n
                                  ? __half(float(b[(b_slow + i * 8 + local_row) * ldb + b_fast +
                                                   local_col * 2 + j]) *
                                           b_factor[0])
                                  : __half();
                }
                copy2(&b_packed[(b_slow + i * 8 + local_row) * n_whole + b_fast + local_col * 2],
                      word);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(gated_packed_half_detail::THREADS)
gated_packed_half(int m, int n, int k, float alpha, const __half *__restrict__ a_packed,
                  const __half *__restrict__ b_packed, float beta, __half *__restrict__ c, int ldc)
{
    using namespace gated_packed_half_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * BM;
    const int col0 = int(blockIdx.x) * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int m_whole = (m + BM - 1) / BM * BM;
    const int n_whole = (n + BN - 1) / BN * BN;
    const int k_whole = (k + BK - 1) / BK * BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_packed_k = local_index / (BM / 4);
    const int a_packed_row = local_index % (BM / 4) * 4;
    const int b_packed_k = local_index / (BN / 4);
    const int b_packed_row = local_index % (BN / 4) * 4;

    __shared__ __align__(16) __half a_shared[BK][BM];
    __shared__ __align__(16) __half b_shared[BK][BN];
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    for (int k0 = 0; k0 < k_whole; k0 += BK) {
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            copy4(&a_shared[a_packed_k + i * (THREADS * 4 / BM)][a_packed_row],
                  &a_packed[(k0 + a_packed_k + i * (THREADS * 4 / BM)) * m_whole + row0 +
                            a_packed_row]);
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            copy4(&b_shared[b_packed_k + i * (THREADS * 4 / BN)][b_packed_row],
                  &b_packed[(k0 + b_packed_k + i * (THREADS * 4 / BN)) * n_whole + col0 +
                            b_packed_row]);
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            __align__(16) float a_frag[TM];
            __align__(16) float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM / 4; ++i) {
                copy4(&a_frag[i * 4], &a_shared[kk][local_row * 4 + i * 4]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                copy4(&b_frag[j * 4], &b_shared[kk][local_col * 4 + j * 4]);
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * prologue(A) * prologue(B) + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j < n) {
                    const float c_value =
                        beta == 0.0f
                            ? alpha * acc[i][j]
                            : fmaf(beta, float(c[(row + i) * ldc + col + j]), alpha * acc[i][j]);
                    c[(row + i) * ldc + col + j] = __half(c_value);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace gated_packed_half_detail {

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

} // namespace gated_packed_half_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t gated_packed_half_launch(int m, int n, int k, float alpha, const __half *a,
                                                int lda, const __half *b, int ldb, __half *a_packed,
                                                __half *b_packed, float beta, __half *c, int ldc,
                                                const float *b_factor, cudaStream_t stream)
{
    using namespace gated_packed_half_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 8) || !is_aligned(b, 8) || !is_aligned(a_packed, 8) ||
        !is_aligned(b_packed, 8) || !is_aligned(c, 8) || !is_aligned(b_factor, 4)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        1LL * (k + BK - 1) / BK * BK * ((m + BM - 1) / BM * BM) >= 1LL << 31 ||
        1LL * (k + BK - 1) / BK * BK * ((n + BN - 1) / BN * BN) >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    if (k > 0) {
        const dim3 grid(((k + BK - 1) / BK * BK + 31) / 32 * ((m + BM - 1) / BM * (BM / 32)) +
                            ((k + BK - 1) / BK * BK + 31) / 32 *
                                (((n + BN - 1) / BN * BN + 63) / 64),
                        1);
        const dim3 block(32, 8);
        gated_packed_half_pack<<<grid, block, 0, stream>>>(m, n, k, a, lda, b, ldb, a_packed,
                                                           b_packed, b_factor);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
        const dim3 block(THREADS_N, THREADS_M);
        gated_packed_half<<<grid, block, 0, stream>>>(m, n, k, alpha, a_packed, b_packed, beta, c,
                                                      ldc);
        return cudaGetLastError();
    }
}
#endif
