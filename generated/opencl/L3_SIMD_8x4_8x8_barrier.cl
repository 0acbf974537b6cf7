// L3_SIMD_8x4_8x8_barrier: C = alpha * A * B + beta * C; float32
//
// Schedule   8x4 of C per work-item, 8x8 work-items per group (64x32 of C), 32 along K per
//            iteration, 8 of B at a time, a barrier before each step's arithmetic to keep the group
//            in step for the cache
// A          buffer, block reads of 4 segments, passed around the sub-group by shuffles
// B          buffer, block reads of 4 segments
// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     local size {8, 8}, global size {(n + 31) / 32 * 8, (m + 63) / 64 * 8}
// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 8, which Xe-HPC and
//                Xe2 don't have (--target xe_hpc)
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

// Names of this file alone, so that a program can hold others, too.
#define at L3_SIMD_8x4_8x8_barrier_at
#define block_read4 L3_SIMD_8x4_8x8_barrier_block_read4

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// So many bytes into a matrix.
static inline const __global float *at(const __global float *matrix, int bytes)
{
    return (const __global float *)((const __global char *)matrix + bytes);
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
    const int k_main = col0 + 32 <= n ? k - k % 32 : 0;

    float acc[8][4];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 32 along K; at the edge of C there are none.
    // Where block reads begin, in bytes, a read or half a read a lane; a step before the first.
    int b_at[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        b_at[i] = ((i * 8 + lane - 32) * ldb + col0) * 4;
    }

    // Where those along rows begin in the first step, in bytes, a read a lane.
    int a_at = min(row + lane, m - 1) * lda * 4;
    for (int k0 = 0; k0 < k_main; k0 += 32) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            b_at[i] += ldb * 128;
        }
        float a_frag[8][4];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            vstore4(block_read4(at(a + k0, intel_sub_group_shuffle(a_at, i))), 0, a_frag[i]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int kk = 0; kk < 32; kk += 8) {
            float b_frag[8][4];
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                vstore4(
                    block_read4(at(b, intel_sub_group_shuffle(b_at[(kk + i) / 8], (kk + i) % 8))),
                    0, b_frag[i]);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int p = 0; p < 8; ++p) {
                    const float a_value =
                        intel_sub_group_shuffle(a_frag[i][(kk + p) / 8], (kk + p) % 8);
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    }

    // The rest of K, at the edge of C all of it; what lies past it counts as zero.
    for (int k0 = k_main; k0 < k; k0 += 8) {
        float b_frag[8][4];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                b_frag[i][j] = k0 + i < k ? b[(k0 + i) * ldb + min(col + j * 8, n - 1)] : 0.0f;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        float a_frag[8];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            a_frag[i] = k0 + lane < k ? a[min(row + i, m - 1) * lda + k0 + lane] : 0.0f;
        }
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

#undef at
#undef block_read4
