// dequantised_weights: C = alpha * prologue(A) * prologue(B); float32, B stored in int8
//
// Schedule   4x4 of C per work-item, 8x8 work-items per group (32x32 of C), 8 along K per iteration
// A          buffer, loads of 4 elements, through local memory, transposed
// B          buffer, loads of 4 elements, through local memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Prologue   A: (a - a_shift) * a_scale * a_scale_k
//            B: (b - b_shift) * b_scale
// Takes      a_scale: an element for each row of A
//            a_shift: an element for each row of A
//            a_scale_k: an element for each column of A
//            b_scale: an element for each column of B
//            b_shift: an element for each column of B
// Unread     A and B where k is 0, which serves for alpha = 0 as well
// Launch     local size {8, 8}, global size {(n + 31) / 32 * 8, (m + 31) / 32 * 8}
// Needs      2,048 bytes of local memory
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

// 4 neighbouring elements of local memory, from a multiple of 16 bytes.
#define COPY_LOCAL4(to, from) vstore4(*(const __local float4 *)(from), 0, to)

__attribute__((reqd_work_group_size(8, 8, 1)))
__kernel void dequantised_weights(int m, int n, int k, float alpha,
                                  __global const float *restrict a, int lda,
                                  __global const char *restrict b, int ldb,
                                  __global float *restrict c, int ldc,
                                  __global const float *restrict a_scale,
                                  __global const float *restrict a_shift,
                                  __global const float *restrict a_scale_k,
                                  __global const float *restrict b_scale,
                                  __global const float *restrict b_shift)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * 32;
    const int col0 = (int)get_group_id(0) * 32;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % 8;
    const int local_index = local_row * 8 + local_col;
    const int a_row = local_index / 2;
    const int a_k = local_index % 2 * 4;
    const int b_k = local_index / 8;
    const int b_col = local_index % 8 * 4;

    __local float a_shared[8][32] __attribute__((aligned(16)));
    __local float b_shared[8][32] __attribute__((aligned(16)));
    float acc[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 8 along K.
    for (int k0 = 0; k0 < k_main; k0 += 8) {
        barrier(CLK_LOCAL_MEM_FENCE);
        float a_vector[4];
        COPY4(a_vector, &a[min(row0 + a_row, m - 1) * lda + k0 + a_k]);
        const int a_element_row = min(row0 + a_row, m - 1);
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            a_shared[a_k + e][a_row] =
                (a_vector[e] - a_shift[a_element_row]) * a_scale[a_element_row] * a_scale_k[k0 + a_k
                    + e];
        }
        char b_vector[4];
        if (col0 + b_col + 4 <= n) {
            COPY4(b_vector, &b[(k0 + b_k) * ldb + col0 + b_col]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                b_vector[e] = b[(k0 + b_k) * ldb + min(col0 + b_col + e, n - 1)];
            }
        }
        float b_made[4];
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int b_element_col = min(col0 + b_col + e, n - 1);
            b_made[e] =
                (convert_float(b_vector[e]) - b_shift[b_element_col]) * b_scale[b_element_col];
        }
        COPY4(&b_shared[b_k][b_col], b_made);
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 4
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[4];
            float b_frag[4];
            COPY_LOCAL4(a_frag, &a_shared[kk][local_row * 4]);
            COPY_LOCAL4(b_frag, &b_shared[kk][local_col * 4]);
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        barrier(CLK_LOCAL_MEM_FENCE);
        float a_vector[4];
        if (k_main + a_k + 4 <= k) {
            COPY4(a_vector, &a[min(row0 + a_row, m - 1) * lda + k_main + a_k]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_vector[e] =
                    k_main + a_k + e < k ? a[min(row0 + a_row, m - 1) * lda + k_main + a_k + e]
                                         : 0.0f;
            }
        }
        const int a_element_row = min(row0 + a_row, m - 1);
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            a_shared[a_k + e][a_row] =
                k_main + a_k + e < k
                    ? (a_vector[e] - a_shift[a_element_row]) * a_scale[a_element_row] * a_scale_k[k_main
                        + a_k + e]
                    : 0.0f;
        }
        char b_vector[4];
        if (k_main + b_k < k && col0 + b_col + 4 <= n) {
            COPY4(b_vector, &b[(k_main + b_k) * ldb + col0 + b_col]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                b_vector[e] =
                    k_main + b_k < k ? b[(k_main + b_k) * ldb + min(col0 + b_col + e, n - 1)] : 0;
            }
        }
        float b_made[4];
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int b_element_col = min(col0 + b_col + e, n - 1);
            b_made[e] =
                k_main + b_k < k
                    ? (convert_float(b_vector[e]) - b_shift[b_element_col]) * b_scale[b_element_col]
                    : 0.0f;
        }
        COPY4(&b_shared[b_k][b_col], b_made);
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 4
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[4];
            float b_frag[4];
            COPY_LOCAL4(a_frag, &a_shared[kk][local_row * 4]);
            COPY_LOCAL4(b_frag, &b_shared[kk][local_col * 4]);
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * prologue(A) * prologue(B).
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (col + j < n) {
                    c[(row + i) * ldc + col + j] = alpha * acc[i][j];
                }
            }
        }
    }
}

#undef COPY4
#undef COPY_LOCAL4
