// sg16_block_16x2_split4: C = alpha * A * B + beta * C; float32
//
// Schedule   16x2 of C per work-item, 1x16 work-items per group (16x32 of C), 16 along K per
//            iteration, K in 4 parts that a second kernel adds up
// A          buffer, block reads, passed around the sub-group by shuffles
// B          buffer, block reads of 2 segments
// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31
// Launch     sg16_block_16x2_split4: local size {16, 1}, global size {(m + 15) / 16 * ((n + 31) /
//                32) * 64, 1}
//            sg16_block_16x2_split4_total: local size {256, 1}, global size {m * ((n + 255) / 256)
//                * 256, 1}
// Needs      a workspace of m * n * 4 elements
//            cl_intel_subgroups, sub-groups of 16
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

__attribute__((reqd_work_group_size(16, 1, 1)))
__attribute__((intel_reqd_sub_group_size(16)))
__kernel void sg16_block_16x2_split4(int m, int n, int k, float alpha,
                                     __global const float *restrict a, int lda,
                                     __global const float *restrict b, int ldb,
                                     __global float *restrict workspace)
{
    const int lane = (int)get_sub_group_local_id();
    const int blocks_down = (m + 15) / 16;
    const int blocks_across = (n + 31) / 32;
    const int part = (int)get_group_id(0) / (blocks_down * blocks_across);
    const int block = (int)get_group_id(0) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * 16;
    const int col0 = block_col * 32;
    const int col = col0 + lane;
    const int k_part = (k + 63) / 64 * 16;
    const int k_begin = part * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int k_main = min(k - k % 16, k_end);

    float acc[16][2];
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 16 along K.
    if (col0 + 32 <= n) {
        for (int k0 = k_begin; k0 < k_main; k0 += 16) {
            float b_frag[16][2];
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                vstore2(block_read2(&b[(k0 + i) * ldb + col0]), 0, b_frag[i]);
            }
            float a_frag[16];
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                a_frag[i] = block_read(&a[min(row0 + i, m - 1) * lda + k0]);
            }
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                #pragma unroll
                for (int p = 0; p < 16; ++p) {
                    const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                    #pragma unroll
                    for (int j = 0; j < 2; ++j) {
                        acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    } else {
        // At the edge of the matrix, each lane loads for itself.
        for (int k0 = k_begin; k0 < k_main; k0 += 16) {
            float b_frag[16][2];
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    b_frag[i][e] = b[(k0 + i) * ldb + min(col0 + e * 16 + lane, n - 1)];
                }
            }
            float a_frag[16];
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                a_frag[i] = block_read(&a[min(row0 + i, m - 1) * lda + k0]);
            }
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                #pragma unroll
                for (int p = 0; p < 16; ++p) {
                    const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                    #pragma unroll
                    for (int j = 0; j < 2; ++j) {
                        acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    }
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K; what lies past it counts as zero.
        float b_frag[16][2];
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                b_frag[i][j] =
                    k_main + i < k ? b[(k_main + i) * ldb + min(col + j * 16, n - 1)] : 0.0f;
            }
        }
        float a_frag[16];
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            a_frag[i] = k_main + lane < k ? a[min(row0 + i, m - 1) * lda + k_main + lane] : 0.0f;
        }
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            #pragma unroll
            for (int p = 0; p < 16; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // This part's share of C.
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (row0 + i < m) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (col + j * 16 < n) {
                    workspace[part * (m * n) + (row0 + i) * n + col + j * 16] = alpha * acc[i][j];
                }
            }
        }
    }
}

__attribute__((reqd_work_group_size(256, 1, 1)))
__kernel void sg16_block_16x2_split4_total(int m, int n, __global const float *restrict workspace,
                                           float beta, __global float *restrict c, int ldc)
{
    const int blocks_across = (n + 255) / 256;
    const int row = (int)get_group_id(0) / blocks_across;
    const int col = (int)get_group_id(0) % blocks_across * 256 + (int)get_local_id(0);

    if (col < n) {
        // The parts of K, one after the other.
        float total = workspace[row * n + col];
        #pragma unroll
        for (int s = 1; s < 4; ++s) {
            const float term = workspace[s * (m * n) + row * n + col];
            total = total + term;
        }
        c[row * ldc + col] = beta == 0.0f ? total : fma(beta, c[row * ldc + col], total);
    }
}
