// smem_8x8_double_packed: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per block, 8x8 per thread, 8 along K per step
// Threads    16x16 per block
// A          global memory, prepacked by a kernel before, loads of 4 elements, 2 stages in shared
//            memory, rows padded by 4, registers double-buffered
// B          global memory, prepacked by a kernel before, loads of 4 elements, 2 stages in shared
//            memory, registers double-buffered
// Pipeline   the next stage is loaded into registers before the arithmetic, and stored after it
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     smem_8x8_double_packed_pack: block (32, 8), grid (((k + 7) / 8 * 8 + 31) / 32 * ((m +
//                127) / 128 * 4) + ((k + 7) / 8 * 8 + 31) / 32 * ((n + 127) / 128 * 4), 1)
//            smem_8x8_double_packed: block (16, 16), grid ((n + 127) / 128, (m + 127) / 128) of at
//                most 65,535 along y
// Needs      16,640 bytes of shared memory
//            a_packed of (k + 7) / 8 * 8 * ((m + 127) / 128 * 128) elements, aligned to 16 bytes
//            b_packed of (k + 7) / 8 * 8 * ((n + 127) / 128 * 128) elements, aligned to 16 bytes
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c smem_8x8_double_packed.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace smem_8x8_double_packed_detail {

constexpr int BM = 128, BN = 128, BK = 8; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 2; // stages of the pipeline
constexpr int THREADS_M = 16, THREADS_N = 16; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(STAGES == 2,
              "STAGES cannot change here: "
              "gemmgen emit --preset smem_8x8_double_packed --backend cuda --set stages=4");
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset smem_8x8_double_packed --backend cuda --set group=8x16");
static_assert(TM % 4 == 0 && TN % 4 == 0, "TM and TN must be multiples of 4");
static_assert(BM * BK % (THREADS * 4) == 0 && BN * BK % (THREADS * 4) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 4");
static_assert(THREADS * 4 % BM == 0, "THREADS * 4 must be a multiple of BM");
static_assert(THREADS * 4 % BN == 0, "THREADS * 4 must be a multiple of BN");
static_assert(BM % 32 == 0 && BN % 32 == 0, "BM and BN must be multiples of 32");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 4 && TN > 4,
              "TM and TN must exceed 4 here: "
              "gemmgen emit --preset smem_8x8_double_packed --backend cuda --set tile=4x8");

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

static_assert(sizeof(float[STAGES][BK][BM + 4]) + sizeof(float[STAGES][BK][BN]) <= 49152,
              "an array of a fixed size has no room for it: emit a kernel with these constants");

} // namespace smem_8x8_double_packed_detail

extern "C" __global__ void __launch_bounds__(256)
smem_8x8_double_packed_pack(int m, int n, int k, const float *__restrict__ a, int lda,
                            const float *__restrict__ b, int ldb, float *__restrict__ a_packed,
                            float *__restrict__ b_packed)
{
    using namespace smem_8x8_double_packed_detail;

    const int m_whole = (m + BM - 1) / BM * BM;
    const int n_whole = (n + BN - 1) / BN * BN;
    const int k_whole = (k + BK - 1) / BK * BK;
    const int a_blocks = (k_whole + 31) / 32 * ((m_whole + 31) / 32);
    const int block = int(blockIdx.x) < a_blocks ? int(blockIdx.x) : int(blockIdx.x) - a_blocks;
    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);

    // Padded: lines begin in different banks.
    __shared__ float a_tile[32][33];
    if (int(blockIdx.x) < a_blocks) {
        const int a_slow = block / ((m_whole + 31) / 32) * 32;
        const int a_fast = block % ((m_whole + 31) / 32) * 32;

        // Transposed through a tile, so that reads and writes are both contiguous.
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            a_tile[i * 8 + local_row][local_col] =
                a_fast + i * 8 + local_row < m && a_slow + local_col < k
                    ? a[(a_fast + i * 8 + local_row) * lda + a_slow + local_col]
                    : 0.0f;
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
        const int b_slow = block / ((n_whole + 31) / 32) * 32;
        const int b_fast = block % ((n_whole + 31) / 32) * 32;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (b_slow + i * 8 + local_row < k_whole && b_fast + local_col < n_whole) {
                b_packed[(b_slow + i * 8 + local_row) * n_whole + b_fast + local_col] =
                    b_slow + i * 8 + local_row < k && b_fast + local_col < n
                        ? b[(b_slow + i * 8 + local_row) * ldb + b_fast + local_col]
                        : 0.0f;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(smem_8x8_double_packed_detail::THREADS)
smem_8x8_double_packed(int m, int n, int k, float alpha, const float *__restrict__ a_packed,
                       const float *__restrict__ b_packed, float beta, float *__restrict__ c,
                       int ldc)
{
    using namespace smem_8x8_double_packed_detail;

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

    // Padded: lines begin in different banks.
    __shared__ __align__(16) float a_shared[STAGES][BK][BM + 4];
    __align__(16) float a_next[BM * BK / (THREADS * 4)][4];
    __shared__ __align__(16) float b_shared[STAGES][BK][BN];
    __align__(16) float b_next[BN * BK / (THREADS * 4)][4];
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    if (k_whole >= BK) {
        #pragma unroll
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            copy4(&a_shared[0][a_packed_k + i * (THREADS * 4 / BM)][a_packed_row],
                  &a_packed[(a_packed_k + i * (THREADS * 4 / BM)) * m_whole + row0 + a_packed_row]);
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            copy4(&b_shared[0][b_packed_k + i * (THREADS * 4 / BN)][b_packed_row],
                  &b_packed[(b_packed_k + i * (THREADS * 4 / BN)) * n_whole + col0 + b_packed_row]);
        }
    }
    for (int k0 = 0; k0 < k_whole; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        __syncthreads();
        if (k0 + STAGES * BK <= k_whole) {
            #pragma unroll
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                copy4(a_next[i],
                      &a_packed[(k0 + a_packed_k + i * (THREADS * 4 / BM) + (STAGES - 1) * BK) *
                                    m_whole +
                                row0 + a_packed_row]);
            }
            #pragma unroll
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                copy4(b_next[i],
                      &b_packed[(k0 + b_packed_k + i * (THREADS * 4 / BN) + (STAGES - 1) * BK) *
                                    n_whole +
                                col0 + b_packed_row]);
            }
        }
        __align__(16) float a_frag[2][TM];
        __align__(16) float b_frag[2][TN];
        #pragma unroll
        for (int i = 0; i < TM / 4; ++i) {
            copy4(&a_frag[0][i * 4], &a_shared[stage][0][local_row * 4 + i * THREADS_M * 4]);
        }
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            copy4(&b_frag[0][j * 4], &b_shared[stage][0][local_col * 4 + j * THREADS_N * 4]);
        }
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            if (kk + 1 < BK) {
                #pragma unroll
                for (int i = 0; i < TM / 4; ++i) {
                    copy4(&a_frag[(kk + 1) % 2][i * 4],
                          &a_shared[stage][kk + 1][local_row * 4 + i * THREADS_M * 4]);
                }
                #pragma unroll
                for (int j = 0; j < TN / 4; ++j) {
                    copy4(&b_frag[(kk + 1) % 2][j * 4],
                          &b_shared[stage][kk + 1][local_col * 4 + j * THREADS_N * 4]);
                }
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fmaf(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);
                }
            }
        }
        if (k0 + STAGES * BK <= k_whole) {
            #pragma unroll
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                copy4(&a_shared[load_stage][a_packed_k + i * (THREADS * 4 / BM)][a_packed_row],
                      a_next[i]);
            }
            #pragma unroll
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                copy4(&b_shared[load_stage][b_packed_k + i * (THREADS * 4 / BN)][b_packed_row],
                      b_next[i]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                if (col + j * THREADS_N * 4 + 4 <= n && ldc % 4 == 0) {
                    __align__(16) float c_values[4];
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        __align__(16) float c_old[4];
                        copy4(c_old, &c[c_row * ldc + col + j * THREADS_N * 4]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = fmaf(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy4(&c[c_row * ldc + col + j * THREADS_N * 4], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * THREADS_N * 4 + e < n) {
                            c[c_row * ldc + col + j * THREADS_N * 4 + e] =
                                beta == 0.0f
                                    ? alpha * acc[i][j * 4 + e]
                                    : fmaf(beta, c[c_row * ldc + col + j * THREADS_N * 4 + e],
                                           alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace smem_8x8_double_packed_detail {

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

} // namespace smem_8x8_double_packed_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t smem_8x8_double_packed_launch(int m, int n, int k, float alpha,
                                                     const float *a, int lda, const float *b,
                                                     int ldb, float *a_packed, float *b_packed,
                                                     float beta, float *c, int ldc,
                                                     cudaStream_t stream)
{
    using namespace smem_8x8_double_packed_detail;

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
        1LL * (k + BK - 1) / BK * BK * ((m + BM - 1) / BM * BM) >= 1LL << 31 ||
        1LL * (k + BK - 1) / BK * BK * ((n + BN - 1) / BN * BN) >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    if (k > 0) {
        const dim3 grid(((k + BK - 1) / BK * BK + 31) / 32 * ((m + BM - 1) / BM * (BM / 32)) +
                            ((k + BK - 1) / BK * BK + 31) / 32 * ((n + BN - 1) / BN * (BN / 32)),
                        1);
        const dim3 block(32, 8);
        smem_8x8_double_packed_pack<<<grid, block, 0, stream>>>(m, n, k, a, lda, b, ldb, a_packed,
                                                                b_packed);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
        const dim3 block(THREADS_N, THREADS_M);
        smem_8x8_double_packed<<<grid, block, 0, stream>>>(m, n, k, alpha, a_packed, b_packed, beta,
                                                           c, ldc);
        return cudaGetLastError();
    }
}
#endif
