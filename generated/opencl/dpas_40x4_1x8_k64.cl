// dpas_40x4_1x8_k64: C = alpha * A * B + beta * C; float16, sums and C in float32
//
// Schedule   40x4 of C per work-item, 1x8 work-items per group (40x32 of C), 64 along K per
//            iteration, by matrix instructions of the sub-group
// A          buffer, packed by a kernel of its own as the instructions want it, then reads of 8
//            words a lane
// B          buffer, packed by a kernel of its own as the instructions want it, then reads of 8
//            words a lane
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     dpas_40x4_1x8_k64_pack_a: local size {256, 1}, global size {((m + 39) / 40 * ((k + 63)
//                / 64) * 2560 + 255) / 256 * 256, 1}
//            dpas_40x4_1x8_k64_pack_b: local size {256, 1}, global size {((n + 31) / 32 * ((k + 63)
//                / 64) * 2048 + 255) / 256 * 256, 1}
//            dpas_40x4_1x8_k64: local size {8, 1}, global size {(n + 31) / 32 * 8, (m + 39) / 40}
// Needs      a_packed of (m + 39) / 40 * ((k + 63) / 64) * 2560 elements
//            b_packed of (n + 31) / 32 * ((k + 63) / 64) * 2048 elements
//            cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 8, which Xe-HPC and
//                Xe2 don't have (--target xe_hpc)
//            cl_intel_subgroup_matrix_multiply_accumulate; or, without it, -DGEMMGEN_DPAS_SOFTWARE
//                in its place: the same in software
//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread
// Build      clBuildProgram(..., "-cl-std=CL2.0 -Dcl_intel_subgroup_matrix_multiply_accumulate=1", ...)

// Names of this file alone, so that a program can hold others, too.
#define packed_vectors dpas_40x4_1x8_k64_packed_vectors
#define half_to_float dpas_40x4_1x8_k64_half_to_float
#define multiply dpas_40x4_1x8_k64_multiply

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// An operand that was packed to be read so: eight words a lane, lane after lane.
static inline int8 packed_vectors(const __global int *from)
{
    return vload8(get_sub_group_local_id(), from);
}

// acc [8][8] += a [8][16] * b [16][8], by the sub-group as one. Of each row of A a lane holds
// 2 neighbours; of B it holds a column, 2 elements in a word.
#if defined(GEMMGEN_DPAS_SOFTWARE)
// float16 as it lies in memory, as float.
static inline float half_to_float(ushort bits)
{
    return vload_half(0, (const half *)&bits);
}

// Inlined, it would take compilers minutes.
__attribute__((noinline)) static void multiply(float *acc, const int *a, const int *b)
{
    for (int i = 0; i < 8; ++i) {
        for (int k = 0; k < 16; ++k) {
            const int row = intel_sub_group_shuffle((int)a[i], k / 2) >> k % 2 * 16;
            const int column = b[k / 2] >> k % 2 * 16;
            acc[i] += half_to_float((ushort)row) * half_to_float((ushort)column);
        }
    }
}
#elif defined(cl_intel_subgroup_matrix_multiply_accumulate)
__attribute__((overloadable))
float8 intel_sub_group_f16_f16_matrix_mad_k16(int8 a, int8 b, float8 acc);

static inline void multiply(float *acc, const int *a, const int *b)
{
    vstore8(intel_sub_group_f16_f16_matrix_mad_k16(vload8(0, a), vload8(0, b), vload8(0, acc)), 0, acc);
}
#else
#error "dpas: build with -Dcl_intel_subgroup_matrix_multiply_accumulate=1 for a device that has it, " \
    "with -DGEMMGEN_DPAS_SOFTWARE for any other"
#endif

__attribute__((reqd_work_group_size(256, 1, 1)))
__kernel void dpas_40x4_1x8_k64_pack_a(int m, int k, __global const ushort *restrict a, int lda,
                                       __global ushort *restrict a_packed)
{
    const int chunks = (k + 63) / 64;
    const int element = (int)get_group_id(0) * 256 + (int)get_local_id(0);

    if (element < (m + 39) / 40 * ((k + 63) / 64) * 2560) {
        const int tile = element / 2560;
        const int inside = element % 2560;
        const int row = (tile / chunks * 5 + inside / 128 % 5) * 8 + inside / 2 % 8;
        const int col = tile % chunks * 64 + inside / 640 * 16 + inside / 16 % 8 * 2 + inside % 2;
        const ushort value = col < k ? a[min(row, m - 1) * lda + col] : 0;
        a_packed[element] = value;
    }
}

__attribute__((reqd_work_group_size(256, 1, 1)))
__kernel void dpas_40x4_1x8_k64_pack_b(int n, int k, __global const ushort *restrict b, int ldb,
                                       __global ushort *restrict b_packed)
{
    const int chunks = (k + 63) / 64;
    const int element = (int)get_group_id(0) * 256 + (int)get_local_id(0);

    if (element < (n + 31) / 32 * ((k + 63) / 64) * 2048) {
        const int tile = element / 2048;
        const int inside = element % 2048;
        const int row = tile % chunks * 64 + inside / 512 * 16 + inside / 2 % 8 * 2 + inside % 2;
        const int col = (tile / chunks * 4 + inside / 128 % 4) * 8 + inside / 16 % 8;
        const ushort value = row < k ? b[row * ldb + min(col, n - 1)] : 0;
        b_packed[element] = value;
    }
}

__attribute__((reqd_work_group_size(8, 1, 1)))
__attribute__((intel_reqd_sub_group_size(8)))
__kernel void dpas_40x4_1x8_k64(int m, int n, int k, float alpha,
                                __global const int *restrict a_packed,
                                __global const int *restrict b_packed, float beta,
                                __global float *restrict c, int ldc)
{
    const int row0 = (int)get_group_id(1) * 40;
    const int col = (int)get_group_id(0) * 32 + (int)get_sub_group_local_id();
    const int chunks = (k + 63) / 64;

    float acc[4][40];
    #pragma unroll
    for (int i = 0; i < 40; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            acc[j][i] = 0.0f;
        }
    }

    // Steps of 64 along K; both operands are packed in that order, with zeros past K.
    int b_at = (int)get_group_id(0) * chunks * 1024;
    int a_at = (int)get_group_id(1) * chunks * 1280;
    for (int k0 = 0; k0 < k; k0 += 64) {
        #pragma unroll
        for (int p = 0; p < 4; ++p) {
            int a_frag[5][8];
            #pragma unroll
            for (int i = 0; i < 5; ++i) {
                vstore8(packed_vectors(a_packed + a_at + (p * 5 + i) * 64), 0, a_frag[i]);
            }
            int b_frag[4][8];
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                vstore8(packed_vectors(b_packed + b_at + (p * 4 + j) * 64), 0, b_frag[j]);
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                #pragma unroll
                for (int i = 0; i < 5; ++i) {
                    multiply(&acc[j][i * 8], a_frag[i], b_frag[j]);
                }
            }
        }
        b_at += 1024;
        a_at += 1280;
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 40; ++i) {
        if (row0 + i < m) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (col + j * 8 < n) {
                    c[(row0 + i) * ldc + col + j * 8] =
                        beta == 0.0f ? alpha * acc[j][i]
                                     : fma(beta, c[(row0 + i) * ldc + col + j * 8],
                                         alpha * acc[j][i]);
                }
            }
        }
    }
}

#undef packed_vectors
#undef half_to_float
#undef multiply
