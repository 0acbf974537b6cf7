// gated_packed_half: C = alpha * prologue(A) * prologue(B) + beta * C; float16, sums in float32
//
// Tile       32x32 of C per group, 4x4 per work-item, 8 along K per step
// Work-items 8x8 per group
// A          buffer, prepacked by a kernel before, loads of 4 elements, to local memory
// B          buffer, prepacked by a kernel before, loads of 4 elements, to local memory
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Prologue   A: a / (1 + exp(-a))
//            B: b * b_factor
// Takes      b_factor: an element for all of B
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     gated_packed_half_pack: local size {32, 8}, global size {(((k + 7) / 8 * 8 + 31) / 32
//                * ((m + 31) / 32) + ((k + 7) / 8 * 8 + 31) / 32 * ((n + 31) / 32)) * 32, 8}
//            gated_packed_half: local size {8, 8}, global size {(n + 31) / 32 * 8, (m + 31) / 32 *
//                8}
// Needs      2,112 bytes of local memory
//            a_packed of (k + 7) / 8 * 8 * ((m + 31) / 32 * 32) elements
//            b_packed of (k + 7) / 8 * 8 * ((n + 31) / 32 * 32) elements
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Helpers carry the kernel's name: several files fit into one program.
#define float_to_half gated_packed_half_float_to_half
#define half_to_float gated_packed_half_half_to_float
#define half_to_float4 gated_packed_half_half_to_float4

// Block tile: BM x BN of C, BK along K per step.
#define BM 32
#define BN 32
#define BK 8
// Work-items along M and N.
#define THREADS_M 8
#define THREADS_N 8
// Tile of C of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)
// Work-items of a group.
#define THREADS (THREADS_M * THREADS_N)

#if THREADS_M != 8 || THREADS_N != 8
#error "THREADS_M and THREADS_N cannot change here:"
#error "emit it again with --set group=4x8"
#endif
#if TM % 4 != 0 || TN % 4 != 0
#error "TM and TN must be multiples of 4"
#endif
#if BM * BK % (THREADS * 4) != 0 || BN * BK % (THREADS * 4) != 0
#error "BM * BK and BN * BK must be multiples of THREADS * 4"
#endif
#if THREADS * 4 % BM != 0
#error "THREADS * 4 must be a multiple of BM"
#endif
#if THREADS * 4 % BN != 0
#error "THREADS * 4 must be a multiple of BN"
#endif
#if BM % THREADS_M != 0
#error "BM must be a multiple of THREADS_M"
#endif
#if BN % THREADS_N != 0
#error "BN must be a multiple of THREADS_N"
#endif
#if TM != 4 || TN != 4
#error "TM and TN must be 4 here: emit it again with --set tile=8x4"
#endif

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

// 4 neighbouring elements of local memory, from a multiple of 8 bytes.
#define LOAD_LOCAL4(to, from) vstore4(half_to_float4(*(const __local ushort4 *)(from)), 0, to)

// A float as float16 lies in memory, rounded to nearest.
static inline ushort float_to_half(float value)
{
    ushort bits;
    vstore_half(value, 0, (half *)&bits);
    return bits;
}

// float16 as it lies in memory, as float.
static inline float half_to_float(ushort bits)
{
    return vload_half(0, (const half *)&bits);
}

// float16 as it lies in memory, as float.
static inline float4 half_to_float4(ushort4 bits)
{
    return vload_half4(0, (const half *)&bits);
}

__attribute__((reqd_work_group_size(32, 8, 1))) __kernel void
gated_packed_half_pack(int m, int n, int k, __global const ushort *restrict a, int lda,
                       __global const ushort *restrict b, int ldb,
                       __global ushort *restrict a_packed, __global ushort *restrict b_packed,
                       __global const float *restrict b_factor)
{
    const int m_whole = (m + BM - 1) / BM * BM;
    const int n_whole = (n + BN - 1) / BN * BN;
    const int k_whole = (k + BK - 1) / BK * BK;
    const int a_blocks = (k_whole + 31) / 32 * ((m_whole + 31) / 32);
    const int block =
        (int)get_group_id(0) < a_blocks ? (int)get_group_id(0) : (int)get_group_id(0) - a_blocks;
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);

    __local ushort a_tile[32][33];
    if ((int)get_group_id(0) < a_blocks) {
        const int a_slow = block / ((m_whole + 31) / 32) * 32;
        const int a_fast = block % ((m_whole + 31) / 32) * 32;

        // Transposed through a tile, so that reads and writes are both contiguous.
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float a_element =
                half_to_float(a_fast + i * 8 + local_row < m && a_slow + local_col < k
                                  ? a[(a_fast + i * 8 + local_row) * lda + a_slow + local_col]
                                  : 0);
            a_tile[i * 8 + local_row][local_col] =
                a_fast + i * 8 + local_row < m && a_slow + local_col < k
                    ? float_to_half(a_element / (1.0f + exp(-a_element)))
                    : 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
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
                        ? float_to_half(
                              half_to_float(
                                  b[(b_slow + i * 8 + local_row) * ldb + b_fast + local_col]) *
                              b_factor[0])
                        : 0;
            }
        }
    }
}

__attribute__((reqd_work_group_size(8, 8, 1))) __kernel void
gated_packed_half(int m, int n, int k, float alpha, __global const ushort *restrict a_packed,
                  __global const ushort *restrict b_packed, float beta, __global ushort *restrict c,
                  int ldc)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * BN;
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

    __local ushort a_shared[BK][BM] __attribute__((aligned(16)));
    __local ushort b_shared[BK][BN] __attribute__((aligned(16)));
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    for (int k0 = 0; k0 < k_whole; k0 += BK) {
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            COPY4(&a_shared[a_packed_k + i * (THREADS * 4 / BM)][a_packed_row],
                  &a_packed[(k0 + a_packed_k + i * (THREADS * 4 / BM)) * m_whole + row0 +
                            a_packed_row]);
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            COPY4(&b_shared[b_packed_k + i * (THREADS * 4 / BN)][b_packed_row],
                  &b_packed[(k0 + b_packed_k + i * (THREADS * 4 / BN)) * n_whole + col0 +
                            b_packed_row]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 4
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM / 4; ++i) {
                LOAD_LOCAL4(&a_frag[i * 4], &a_shared[kk][local_row * 4 + i * 4]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                LOAD_LOCAL4(&b_frag[j * 4], &b_shared[kk][local_col * 4 + j * 4]);
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
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
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fma(beta, half_to_float(c[(row + i) * ldc + col + j]),
                                           alpha * acc[i][j]);
                    c[(row + i) * ldc + col + j] = float_to_half(c_value);
                }
            }
        }
    }
}

#undef BM
#undef BN
#undef BK
#undef THREADS_M
#undef THREADS_N
#undef TM
#undef TN
#undef THREADS

#undef float_to_half
#undef half_to_float
#undef half_to_float4
#undef COPY4
#undef LOAD_LOCAL4
