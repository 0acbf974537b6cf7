// int8_weights: C = alpha * A * B, then scale, bias, silu; float32, B stored in int8
//
// Schedule   4x4 of C per work-item, 8x8 work-items per group (32x32 of C), 8 along K per iteration
// A          buffer, loads of 4 elements, through local memory, transposed
// B          buffer, loads of 4 elements, through local memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Epilogue   scale: acc * scale
//            bias: acc + bias
//            silu: acc / (1 + exp(-acc))
// Takes      bias: an element for each column of C
//            scale: an element for each column of C
// Unread     A and B where k is 0, which serves for alpha = 0 as well
// Launch     local size {8, 8}, global size {(n + 31) / 32 * 8, (m + 31) / 32 * 8}
// Needs      1,280 bytes of local memory
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

// 4 neighbouring elements of local memory, from a multiple of 16 bytes.
#define COPY_LOCAL4(to, from) vstore4(*(const __local float4 *)(from), 0, to)

// 4 neighbouring elements of local memory, from a multiple of 4 bytes.
#define LOAD_LOCAL4(to, from) vstore4(convert_float4(*(const __local char4 *)(from)), 0, to)

__attribute__((reqd_work_group_size(8, 8, 1)))
__kernel void int8_weights(int m, int n, int k, float alpha, __global const float *restrict a,
                           int lda, __global const char *restrict b, int ldb,
                           __global float *restrict c, int ldc, __global const float *restrict bias,
                           __global const float *restrict scale)
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
    __local char b_shared[8][32] __attribute__((aligned(16)));
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
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            a_shared[a_k + e][a_row] = a_vector[e];
        }
        if (col0 + b_col + 4 <= n) {
            COPY4(&b_shared[b_k][b_col], &b[(k0 + b_k) * ldb + col0 + b_col]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                b_shared[b_k][b_col + e] = b[(k0 + b_k) * ldb + min(col0 + b_col + e, n - 1)];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 4
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[4];
            float b_frag[4];
            COPY_LOCAL4(a_frag, &a_shared[kk][local_row * 4]);
            LOAD_LOCAL4(b_frag, &b_shared[kk][local_col * 4]);
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
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            a_shared[a_k + e][a_row] = a_vector[e];
        }
        if (k_main + b_k < k && col0 + b_col + 4 <= n) {
            COPY4(&b_shared[b_k][b_col], &b[(k_main + b_k) * ldb + col0 + b_col]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                b_shared[b_k][b_col + e] =
                    k_main + b_k < k ? b[(k_main + b_k) * ldb + min(col0 + b_col + e, n - 1)] : 0;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 4
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[4];
            float b_frag[4];
            COPY_LOCAL4(a_frag, &a_shared[kk][local_row * 4]);
            LOAD_LOCAL4(b_frag, &b_shared[kk][local_col * 4]);
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B, then scale, bias, silu.
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (col + j < n) {
                    const int c_col = col + j;
                    const float after_bias = alpha * acc[i][j] * scale[c_col] + bias[c_col];
                    c[(row + i) * ldc + c_col] = after_bias / (1.0f + exp(-after_bias));
                }
            }
        }
    }
}

#undef COPY4
#undef COPY_LOCAL4
#undef LOAD_LOCAL4
