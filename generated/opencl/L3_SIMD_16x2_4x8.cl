// L3_SIMD_16x2_4x8: C = alpha * A * B + beta * C; float32
//
// Tile       64x16 of C per group, 16x2 per work-item, 32 along K per step
// Work-items 4x8 per group, sub-groups of 8
// A          buffer, block reads of 4 segments, passed around the sub-group by shuffles
// B          buffer, block reads of 2 segments
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {8, 4}, global size {(n + 15) / 16 * 8, (m + 63) / 64 * 4}
// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 8, which Xe-HPC and
//                Xe2 don't have (--target xe_hpc)
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

// Helpers carry the kernel's name: several files fit into one program.
#define at L3_SIMD_16x2_4x8_at
#define block_read2 L3_SIMD_16x2_4x8_block_read2
#define block_read4 L3_SIMD_16x2_4x8_block_read4

// Block tile of C.
#define BM 64
#define BN 16
// Work-items along M and N.
#define THREADS_M 4
#define THREADS_N 8
// Tile of C of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)

#if BM != 64 || BN != 16
#error "BM and BN cannot change here: this schedule has no other tile"
#endif
#if THREADS_M != 4 || THREADS_N != 8
#error "THREADS_M and THREADS_N cannot change here:"
#error "gemmgen emit --preset L3_SIMD_16x2_4x8 --set group=2x8"
#endif

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// The element that lies `bytes` bytes behind a matrix's first.
static inline const __global float *at(const __global float *matrix, int bytes)
{
    return (const __global float *)((const __global char *)matrix + bytes);
}

// One element per lane of each of 2 neighbouring segments.
static inline float2 block_read2(const __global float *from)
{
    return as_float2(intel_sub_group_block_read2((const __global uint *)from));
}

// One element per lane of each of 4 neighbouring segments.
static inline float4 block_read4(const __global float *from)
{
    return as_float4(intel_sub_group_block_read4((const __global uint *)from));
}

__attribute__((reqd_work_group_size(8, 4, 1)))
__attribute__((intel_reqd_sub_group_size(8))) __kernel void
L3_SIMD_16x2_4x8(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
                 __global const float *restrict b, int ldb, float beta, __global float *restrict c,
                 int ldc)
{
    const int lane = (int)get_sub_group_local_id();
    const int col0 = (int)get_group_id(0) * BN;
    const int row = (int)get_group_id(1) * BM + (int)get_local_id(1) * 16;
    const int col = col0 + lane;
    const int k_main = col0 + BN <= n ? k - k % 32 : 0;

    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Addresses of block reads in bytes, one (or half of one) a lane; the loop adds a step first.
    int b_at[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        b_at[i] = ((i * 8 + lane - 32) * ldb + col0) * 4;
    }
    int a_at[TM / 8];
    #pragma unroll
    for (int i = 0; i < TM / 8; ++i) {
        a_at[i] = (min(row + i * 8 + lane, m - 1) * lda - 32) * 4;
    }

    // Whole steps of 32 along K; at the edge of C there are none.
    for (int k0 = 0; k0 < k_main; k0 += 32) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            b_at[i] += ldb * 128;
        }
        #pragma unroll
        for (int i = 0; i < TM / 8; ++i) {
            a_at[i] += 128;
        }
        float b_frag[32][TN];
        #pragma unroll
        for (int i = 0; i < 32; ++i) {
            vstore2(block_read2(at(b, intel_sub_group_shuffle(b_at[i / 8], i % 8))), 0, b_frag[i]);
        }
        float a_frag[TM][4];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            vstore4(block_read4(at(a, intel_sub_group_shuffle(a_at[i / 8], i % 8))), 0, a_frag[i]);
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < 32; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[i][p / 8], p % 8);
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // The rest of K, at the edge of C all of it; what lies past it counts as zero.
    for (int k0 = k_main; k0 < k; k0 += 8) {
        float b_frag[8][TN];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[i][j] =
                    k0 + i < k ? b[(k0 + i) * ldb + min(col + j * THREADS_N, n - 1)] : 0.0f;
            }
        }
        float a_frag[TM];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            a_frag[i] = k0 + lane < k ? a[min(row + i, m - 1) * lda + k0 + lane] : 0.0f;
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < 8; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    c[(row + i) * ldc + col + j * THREADS_N] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fma(beta, c[(row + i) * ldc + col + j * THREADS_N],
                                           alpha * acc[i][j]);
                }
            }
        }
    }
}

#undef BM
#undef BN
#undef THREADS_M
#undef THREADS_N
#undef TM
#undef TN

#undef at
#undef block_read2
#undef block_read4
