// L3_SIMD_16x2_4x8: C = alpha * A * B + beta * C; float32
//
// Schedule   16x2 of C per work-item, 4x8 work-items per group (64x16 of C), 8 along K per
//            iteration
// A          buffer, block reads, passed around the sub-group by shuffles
// B          buffer, block reads of 2 segments
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Launch     local size {8, 4}, global size {(n + 15) / 16 * 8, (m + 63) / 64 * 4}
// Needs      cl_intel_subgroups, sub-groups of 8
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

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

__attribute__((reqd_work_group_size(8, 4, 1)))
__attribute__((intel_reqd_sub_group_size(8)))
__kernel void L3_SIMD_16x2_4x8(int m, int n, int k, float alpha, __global const float *restrict a,
                               int lda, __global const float *restrict b, int ldb, float beta,
                               __global float *restrict c, int ldc)
{
    const int lane = (int)get_sub_group_local_id();
    const int col0 = (int)get_group_id(0) * 16;
    const int row = (int)get_group_id(1) * 64 + (int)get_local_id(1) * 16;
    const int col = col0 + lane;
    const int k_main = k - k % 8;

    float acc[16][2];
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 8 along K.
    for (int k0 = 0; k0 < k_main; k0 += 8) {
        float a_frag[16];
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            a_frag[i] = block_read(&a[min(row + i, m - 1) * lda + k0]);
        }
        #pragma unroll
        for (int kk = 0; kk < 8; ++kk) {
            float b_frag[2];
            if (col0 + 16 <= n) {
                vstore2(block_read2(&b[(k0 + kk) * ldb + col0]), 0, b_frag);
            } else {
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    b_frag[e] = b[(k0 + kk) * ldb + min(col0 + e * 8 + lane, n - 1)];
                }
            }
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], kk);
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    acc[i][j] = fma(a_value, b_frag[j], acc[i][j]);
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        float a_frag[16];
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            a_frag[i] = k_main + lane < k ? a[min(row + i, m - 1) * lda + k_main + lane] : 0.0f;
        }
        #pragma unroll
        for (int kk = 0; kk < 8; ++kk) {
            float b_frag[2];
            if (k_main + kk < k && col0 + 16 <= n) {
                vstore2(block_read2(&b[(k_main + kk) * ldb + col0]), 0, b_frag);
            } else {
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    b_frag[e] =
                        k_main + kk < k ? b[(k_main + kk) * ldb + min(col0 + e * 8 + lane, n - 1)]
                                        : 0.0f;
                }
            }
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], kk);
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    acc[i][j] = fma(a_value, b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (col + j * 8 < n) {
                    c[(row + i) * ldc + col + j * 8] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fma(beta, c[(row + i) * ldc + col + j * 8],
                                         alpha * acc[i][j]);
                }
            }
        }
    }
}
