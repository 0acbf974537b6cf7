// sg16_block_16x1: C = alpha * A * B + beta * C; float32
//
// Schedule   16x1 of C per work-item, 1x16 work-items per group (16x16 of C), 16 along K per
//            iteration
// A          buffer, block reads, passed around the sub-group by shuffles
// B          buffer, block reads
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Launch     local size {16, 1}, global size {(n + 15) / 16 * 16, (m + 15) / 16}
// Needs      cl_intel_subgroups, sub-groups of 16
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// One element per lane.
static inline float block_read(const __global float *from)
{
    return as_float(intel_sub_group_block_read((const __global uint *)from));
}

__attribute__((reqd_work_group_size(16, 1, 1)))
__attribute__((intel_reqd_sub_group_size(16)))
__kernel void sg16_block_16x1(int m, int n, int k, float alpha, __global const float *restrict a,
                              int lda, __global const float *restrict b, int ldb, float beta,
                              __global float *restrict c, int ldc)
{
    const int lane = (int)get_sub_group_local_id();
    const int row0 = (int)get_group_id(1) * 16;
    const int col0 = (int)get_group_id(0) * 16;
    const int col = col0 + lane;
    const int k_main = k - k % 16;

    float acc[16];
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        acc[i] = 0.0f;
    }

    // Whole steps of 16 along K.
    for (int k0 = 0; k0 < k_main; k0 += 16) {
        float a_frag[16];
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            a_frag[i] = block_read(&a[min(row0 + i, m - 1) * lda + k0]);
        }
        #pragma unroll
        for (int kk = 0; kk < 16; ++kk) {
            float b_frag;
            if (col0 + 16 <= n) {
                b_frag = block_read(&b[(k0 + kk) * ldb + col0]);
            } else {
                b_frag = b[(k0 + kk) * ldb + min(col0 + lane, n - 1)];
            }
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], kk);
                acc[i] = fma(a_value, b_frag, acc[i]);
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        float a_frag[16];
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            a_frag[i] = k_main + lane < k ? a[min(row0 + i, m - 1) * lda + k_main + lane] : 0.0f;
        }
        #pragma unroll
        for (int kk = 0; kk < 16; ++kk) {
            float b_frag;
            if (k_main + kk < k && col0 + 16 <= n) {
                b_frag = block_read(&b[(k_main + kk) * ldb + col0]);
            } else {
                b_frag = k_main + kk < k ? b[(k_main + kk) * ldb + min(col0 + lane, n - 1)] : 0.0f;
            }
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], kk);
                acc[i] = fma(a_value, b_frag, acc[i]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (row0 + i < m && col < n) {
            c[(row0 + i) * ldc + col] =
                beta == 0.0f ? alpha * acc[i]
                             : fma(beta, c[(row0 + i) * ldc + col], alpha * acc[i]);
        }
    }
}
