// L3_SIMD_8x4_8x8_barrier: C = alpha * A * B + beta * C; float32
//
// Schedule   8x4 of C per work-item, 8x8 work-items per group (64x32 of C), 8 along K per
//            iteration, a barrier after B's load to keep the group in step for the cache
// A          buffer, block reads, passed around the sub-group by shuffles
// B          buffer, block reads of 4 segments
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Launch     local size {8, 8}, global size {(n + 31) / 32 * 8, (m + 63) / 64 * 8}
// Needs      cl_intel_subgroups, sub-groups of 8
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// One element per lane.
static inline float block_read(const __global float *from)
{
    return as_float(intel_sub_group_block_read((const __global uint *)from));
}

// One element per lane of each of 4 neighbouring segments.
static inline float4 block_read4(const __global float *from)
{
    return as_float4(intel_sub_group_block_read4((const __global uint *)from));
}

__attribute__((reqd_work_group_size(8, 8, 1)))
__attribute__((intel_reqd_sub_group_size(8)))
__kernel void L3_SIMD_8x4_8x8_barrier(int m, int n, int k, float alpha,
                                      __global const float *restrict a, int lda,
                                      __global const float *restrict b, int ldb, float beta,
                                      __global float *restrict c, int ldc)
{
    const int lane = (int)get_sub_group_local_id();
    const int col0 = (int)get_group_id(0) * 32;
    const int row = (int)get_group_id(1) * 64 + (int)get_local_id(1) * 8;
    const int col = col0 + lane;
    const int k_main = k - k % 8;

    float acc[8][4];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 8 along K.
    for (int k0 = 0; k0 < k_main; k0 += 8) {
        float a_frag[8];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            a_frag[i] = block_read(&a[min(row + i, m - 1) * lda + k0]);
        }
        float b_frag[8][4];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (col0 + 32 <= n) {
                vstore4(block_read4(&b[(k0 + i) * ldb + col0]), 0, b_frag[i]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_frag[i][e] = b[(k0 + i) * ldb + min(col0 + e * 8 + lane, n - 1)];
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int p = 0; p < 8; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        float a_frag[8];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            a_frag[i] = k_main + lane < k ? a[min(row + i, m - 1) * lda + k_main + lane] : 0.0f;
        }
        float b_frag[8][4];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (k_main + i < k && col0 + 32 <= n) {
                vstore4(block_read4(&b[(k_main + i) * ldb + col0]), 0, b_frag[i]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_frag[i][e] =
                        k_main + i < k ? b[(k_main + i) * ldb + min(col0 + e * 8 + lane, n - 1)]
                                       : 0.0f;
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int p = 0; p < 8; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
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
