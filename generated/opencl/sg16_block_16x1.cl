// sg16_block_16x1: C = alpha * A * B + beta * C; float32
//
// Tile       16x16 of C per group, 16x1 per work-item, 32 along K per step
// Work-items 1x16 per group, sub-groups of 16
// A          buffer, block reads of 2 segments, passed around the sub-group by shuffles
// B          buffer, block reads
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {16, 1}, global size {(n + 15) / 16 * 16, (m + 15) / 16}
// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 16
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

// Helpers carry the kernel's name: several files fit into one program.
#define at sg16_block_16x1_at
#define block_read sg16_block_16x1_block_read
#define block_read2 sg16_block_16x1_block_read2

// Block tile of C.
#define BM 16
#define BN 16
// Rows of C of a work-item.
#define TM BM

#if BM != 16 || BN != 16
#error "BM and BN cannot change here:"
#error "gemmgen emit --preset sg16_block_16x1 --set tile=32x1"
#endif

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// The element that lies `bytes` bytes behind a matrix's first.
static inline const __global float *at(const __global float *matrix, int bytes)
{
    return (const __global float *)((const __global char *)matrix + bytes);
}

// One element per lane.
static inline float block_read(const __global float *from)
{
    return as_float(intel_sub_group_block_read((const __global uint *)from));
}

// One element per lane of each of 2 neighbouring segments.
static inline float2 block_read2(const __global float *from)
{
    return as_float2(intel_sub_group_block_read2((const __global uint *)from));
}

__attribute__((reqd_work_group_size(16, 1, 1)))
__attribute__((intel_reqd_sub_group_size(16))) __kernel void
sg16_block_16x1(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
                __global const float *restrict b, int ldb, float beta, __global float *restrict c,
                int ldc)
{
    const int lane = (int)get_sub_group_local_id();
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * BN;
    const int col = col0 + lane;
    const int k_main = col0 + BN <= n ? k - k % 32 : 0;

    float acc[TM];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        acc[i] = 0.0f;
    }

    // Addresses of block reads in bytes, one (or half of one) a lane; the loop adds a step first.
    int b_at[2];
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        b_at[i] = ((i * 16 + lane - 32) * ldb + col0) * 4;
    }
    int a_at = (min(row0 + lane, m - 1) * lda - 32) * 4;

    // Whole steps of 32 along K; at the edge of C there are none.
    for (int k0 = 0; k0 < k_main; k0 += 32) {
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            b_at[i] += ldb * 128;
        }
        a_at += 128;
        float b_frag[32];
        #pragma unroll
        for (int i = 0; i < 32; ++i) {
            b_frag[i] = block_read(at(b, intel_sub_group_shuffle(b_at[i / 16], i % 16)));
        }
        float a_frag[TM][2];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            vstore2(block_read2(at(a, intel_sub_group_shuffle(a_at, i))), 0, a_frag[i]);
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < 32; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[i][p / 16], p % 16);
                acc[i] = fma(a_value, b_frag[p], acc[i]);
            }
        }
    }

    // The rest of K, at the edge of C all of it; what lies past it counts as zero.
    for (int k0 = k_main; k0 < k; k0 += 16) {
        float b_frag[16];
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            b_frag[i] = k0 + i < k ? b[(k0 + i) * ldb + min(col, n - 1)] : 0.0f;
        }
        float a_frag[TM];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            a_frag[i] = k0 + lane < k ? a[min(row0 + i, m - 1) * lda + k0 + lane] : 0.0f;
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < 16; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                acc[i] = fma(a_value, b_frag[p], acc[i]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row0 + i < m && col < n) {
            c[(row0 + i) * ldc + col] = beta == 0.0f
                                            ? alpha * acc[i]
                                            : fma(beta, c[(row0 + i) * ldc + col], alpha * acc[i]);
        }
    }
}

#undef BM
#undef BN
#undef TM

#undef at
#undef block_read
#undef block_read2
