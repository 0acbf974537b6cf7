// dpas_32x2_1x16: C = alpha * A * B + beta * C; float16, sums and C in float32
//
// Tile       32x32 of C per group, 32x2 per work-item, 16 along K per step
// Work-items 1x16 per group, sub-groups of 16
// A          buffer, prepacked by a kernel before, block reads of 8 words
// B          buffer, prepacked by a kernel before, block reads of 8 words
// Multiply   matrix instructions of the sub-group (dpas), sums in float32
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     dpas_32x2_1x16_pack: local size {16, 8}, global size {(k + 15) / 16 * 16, ((m + 31) /
//                32 + (n + 31) / 32) * 8}
//            dpas_32x2_1x16: local size {16, 1}, global size {(n + 31) / 32 * 16, (m + 31) / 32}
// Needs      a_packed of (m + 31) / 32 * ((k + 15) / 16) * 512 elements
//            b_packed of (n + 31) / 32 * ((k + 15) / 16) * 512 elements
//            cl_intel_subgroups, cl_intel_subgroups_short, cl_intel_required_subgroup_size,
//                sub-groups of 16
//            cl_intel_subgroup_matrix_multiply_accumulate; or, without it, -DGEMMGEN_DPAS_SOFTWARE
//                in its place: the same in software
// Build      clBuildProgram(..., "-cl-std=CL2.0 -Dcl_intel_subgroup_matrix_multiply_accumulate=1",
//                ...)

// Helpers carry the kernel's name: several files fit into one program.
#define packed_vectors dpas_32x2_1x16_packed_vectors
#define packed_block dpas_32x2_1x16_packed_block
#define half_to_float dpas_32x2_1x16_half_to_float
#define multiply dpas_32x2_1x16_multiply

// Block tile: BM x BN of C, BK along K per step.
#define BM 32
#define BN 32
#define BK 16
// Work-items along N.
#define THREADS_N 16
// Tile of C of a work-item.
#define TM BM
#define TN (BN / THREADS_N)

#if BM != 32 || BN != 32
#error "BM and BN cannot change here:"
#error "gemmgen emit --preset dpas_32x2_1x16 --set tile=16x2"
#endif
#if BK != 16
#error "BK cannot change here: gemmgen emit --preset dpas_32x2_1x16 --set block_k=32"
#endif
#if THREADS_N != 16
#error "THREADS_N cannot change here:"
#error "gemmgen emit --preset dpas_32x2_1x16 --set group=1x8"
#endif

#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#pragma OPENCL EXTENSION cl_intel_subgroups_short : enable

// A prepacked operand: eight words a lane, lane after lane.
static inline int8 packed_vectors(const __global int *from)
{
    return vload8(get_sub_group_local_id(), from);
}

// A prepacked operand: eight times a half word of each lane.
static inline short8 packed_block(const __global short *from)
{
    return as_short8(intel_sub_group_block_read_us8((const __global ushort *)from));
}

// acc [8][16] += a [8][16] * b [16][16], by the sub-group as one. Of each row of A a lane holds
// an element; of B it holds a column, 2 elements in a word.
#if defined(GEMMGEN_DPAS_SOFTWARE)
// float16 as it lies in memory, as float.
static inline float half_to_float(ushort bits)
{
    return vload_half(0, (const half *)&bits);
}

// Inlined, it would take compilers minutes.
__attribute__((noinline)) static void multiply(float *acc, const short *a, const int *b)
{
    for (int i = 0; i < 8; ++i) {
        for (int k = 0; k < 16; ++k) {
            const int row = intel_sub_group_shuffle((int)a[i], k);
            const int column = b[k / 2] >> k % 2 * 16;
            acc[i] += half_to_float((ushort)row) * half_to_float((ushort)column);
        }
    }
}
#elif defined(cl_intel_subgroup_matrix_multiply_accumulate)
__attribute__((overloadable)) float8 intel_sub_group_f16_f16_matrix_mad_k16(short8 a, int8 b,
                                                                            float8 acc);

static inline void multiply(float *acc, const short *a, const int *b)
{
    vstore8(intel_sub_group_f16_f16_matrix_mad_k16(vload8(0, a), vload8(0, b), vload8(0, acc)), 0,
            acc);
}
#else
// The first is for devices that have the instruction, the second for any other.
#error "define cl_intel_subgroup_matrix_multiply_accumulate as 1, or GEMMGEN_DPAS_SOFTWARE"
#endif

__attribute__((reqd_work_group_size(16, 8, 1))) __kernel void
dpas_32x2_1x16_pack(int m, int n, int k, __global const ushort *restrict a, int lda,
                    __global const ushort *restrict b, int ldb, __global ushort *restrict a_packed,
                    __global ushort *restrict b_packed)
{
    const int a_blocks = (m + TM - 1) / TM;
    const int a_block = (int)get_group_id(1);
    const int b_block = a_block - a_blocks;
    const int chunk = (int)get_group_id(0);
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);

    if (a_block < a_blocks) {
        const int begin = (a_block * ((k + BK - 1) / BK) + chunk) * BK * TM;
        #pragma unroll
        for (int i = 0; i < TM / 8; ++i) {
            const int row = (a_block * (TM / 8) + i) * 8 + local_row;
            const int col = chunk * BK + local_col;
            const ushort value = col < k ? a[min(row, m - 1) * lda + col] : 0;
            a_packed[begin + i * 128 + local_row * 16 + local_col] = value;
        }
    } else {
        const int begin = (b_block * ((k + BK - 1) / BK) + chunk) * BK * TN * 16;
        #pragma unroll
        for (int i = 0; i < TN; ++i) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int row = chunk * BK + local_row * 2 + j;
                const int col = (b_block * TN + i) * 16 + local_col;
                const ushort value = row < k ? b[row * ldb + min(col, n - 1)] : 0;
                b_packed[begin + i * 256 + (local_col * 8 + local_row) * 2 + j] = value;
            }
        }
    }
}

__attribute__((reqd_work_group_size(16, 1, 1)))
__attribute__((intel_reqd_sub_group_size(16))) __kernel void
dpas_32x2_1x16(int m, int n, int k, float alpha, __global const short *restrict a_packed,
               __global const int *restrict b_packed, float beta, __global float *restrict c,
               int ldc)
{
    const int row0 = (int)get_group_id(1) * BM;
    const int col = (int)get_group_id(0) * BN + (int)get_sub_group_local_id();
    const int chunks = (k + BK - 1) / BK;

    float acc[TN][TM];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[j][i] = 0.0f;
        }
    }

    // Steps of BK along K; both operands are packed in that order, with zeros past K.
    int b_at = (int)get_group_id(0) * chunks * BK * TN * 8;
    int a_at = (int)get_group_id(1) * chunks * BK * TM;
    for (int k0 = 0; k0 < k; k0 += BK) {
        short a_frag[TM / 8][8];
        #pragma unroll
        for (int i = 0; i < TM / 8; ++i) {
            vstore8(packed_block(a_packed + a_at + i * 128), 0, a_frag[i]);
        }
        int b_frag[TN][8];
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            vstore8(packed_vectors(b_packed + b_at + j * 128), 0, b_frag[j]);
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            #pragma unroll
            for (int i = 0; i < TM / 8; ++i) {
                multiply(&acc[j][i * 8], a_frag[i], b_frag[j]);
            }
        }
        b_at += BK * TN * 8;
        a_at += BK * TM;
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row0 + i < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    c[(row0 + i) * ldc + col + j * THREADS_N] =
                        beta == 0.0f ? alpha * acc[j][i]
                                     : fma(beta, c[(row0 + i) * ldc + col + j * THREADS_N],
                                           alpha * acc[j][i]);
                }
            }
        }
    }
}

#undef BM
#undef BN
#undef BK
#undef THREADS_N
#undef TM
#undef TN

#undef packed_vectors
#undef packed_block
#undef half_to_float
#undef multiply
