// sg16_block_16x2: C = alpha * A * B + beta * C; float32
//
// Tile       16x32 of C per group, 16x2 per work-item, 16 along K per step
// Work-items 1x16 per group, sub-groups of 16
// A          buffer, block reads, passed around the sub-group by shuffles
// B          buffer, block reads of 2 segments
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {16, 1}, global size {(n + 31) / 32 * 16, (m + 15) / 16}
// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 16
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

// Helpers carry the kernel's name: several files fit into one program.
#define at sg16_block_16x2_at
#define block_read sg16_block_16x2_block_read
#define block_read2 sg16_block_16x2_block_read2

// Block tile: BM x BN of C, BK along K per step.
#define BM 16
#define BN 32
#define BK 16
// Work-items along N.
#define THREADS_N 16
// Tile of C of a work-item.
#define TM BM
#define TN (BN / THREADS_N)

#if BM != 16 || BN != 32
#error "BM and BN cannot change here: this schedule has no other tile"
#endif
#if BK != 16
#error "BK cannot change here: this schedule has no other block_k"
#endif
#if THREADS_N != 16
#error "THREADS_N cannot change here:"
#error "gemmgen emit --preset sg16_block_16x2 --set group=2x16"
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
sg16_block_16x2(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
                __global const float *restrict b, int ldb, float beta, __global float *restrict c,
                int ldc)
{
    const int lane = (int)get_sub_group_local_id();
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * BN;
    const int col = col0 + lane;
    const int k_main = k - k % BK;

    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    if (col0 + 32 <= n) {
        // Addresses of block reads in bytes, one (or half of one) a lane; the loop adds a step
        // first.
        int b_at = ((lane - BK) * ldb + col0) * 4;
        int a_at = (min(row0 + lane, m - 1) * lda - BK) * 4;
        for (int k0 = 0; k0 < k_main; k0 += BK) {
            b_at += ldb * BK * 4;
            a_at += BK * 4;
            float b_frag[BK][TN];
            #pragma unroll
            for (int i = 0; i < BK; ++i) {
                vstore2(block_read2(at(b, intel_sub_group_shuffle(b_at, i))), 0, b_frag[i]);
            }
            float a_frag[TM];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = block_read(at(a, intel_sub_group_shuffle(a_at, i)));
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int p = 0; p < BK; ++p) {
                    const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    } else {
        // Addresses of block reads along rows in bytes, one a lane; they stay as they are.
        int a_at = min(row0 + lane, m - 1) * lda * 4;

        // At the edge of the matrix each lane loads its own elements.
        for (int k0 = 0; k0 < k_main; k0 += BK) {
            float b_frag[BK][TN];
            #pragma unroll
            for (int i = 0; i < BK; ++i) {
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    b_frag[i][e] = b[(k0 + i) * ldb + min(col0 + e * 16 + lane, n - 1)];
                }
            }
            float a_frag[TM];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = block_read(at(a + k0, intel_sub_group_shuffle(a_at, i)));
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int p = 0; p < BK; ++p) {
                    const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        float b_frag[BK][TN];
        #pragma unroll
        for (int i = 0; i < BK; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[i][j] =
                    k_main + i < k ? b[(k_main + i) * ldb + min(col + j * THREADS_N, n - 1)] : 0.0f;
            }
        }
        float a_frag[TM];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            a_frag[i] = k_main + lane < k ? a[min(row0 + i, m - 1) * lda + k_main + lane] : 0.0f;
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < BK; ++p) {
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
        if (row0 + i < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    c[(row0 + i) * ldc + col + j * THREADS_N] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fma(beta, c[(row0 + i) * ldc + col + j * THREADS_N],
                                           alpha * acc[i][j]);
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

#undef at
#undef block_read
#undef block_read2
