// smem_8x8_double_packed: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 8 along K per
//            iteration, 2 tiles in local memory at a time, the next tile loaded into registers
//            before the current one's arithmetic, operands read from local memory a step ahead,
//            stores of 4 elements
// A          packed into whole tiles by a kernel before; buffer, loads of 4 elements, through local
//            memory, transposed, rows padded by 4
// B          packed into whole tiles by a kernel before; buffer, loads of 4 elements, through local
//            memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     smem_8x8_double_packed_pack: local size {32, 8}, global size {(((k + 7) / 8 * 8 + 31)
//                / 32 * (((m + 127) / 128 * 128 + 31) / 32) + ((k + 7) / 8 * 8 + 31) / 32 * (((n +
//                127) / 128 * 128 + 31) / 32)) * 32, 8}
//            smem_8x8_double_packed: local size {16, 16}, global size {(n + 127) / 128 * 16, (m +
//                127) / 128 * 16}
// Needs      16,640 bytes of local memory
//            a_packed of (k + 7) / 8 * 8 * ((m + 127) / 128 * 128) elements
//            b_packed of (k + 7) / 8 * 8 * ((n + 127) / 128 * 128) elements
//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

// 4 neighbouring elements of local memory, from a multiple of 16 bytes.
#define COPY_LOCAL4(to, from) vstore4(*(const __local float4 *)(from), 0, to)

__attribute__((reqd_work_group_size(32, 8, 1)))
__kernel void smem_8x8_double_packed_pack(int m, int n, int k, __global const float *restrict a,
                                          int lda, __global const float *restrict b, int ldb,
                                          __global float *restrict a_packed,
                                          __global float *restrict b_packed)
{
    const int m_whole = (m + 127) / 128 * 128;
    const int n_whole = (n + 127) / 128 * 128;
    const int k_whole = (k + 7) / 8 * 8;
    const int a_blocks = (k_whole + 31) / 32 * ((m_whole + 31) / 32);
    const int block =
        (int)get_group_id(0) < a_blocks ? (int)get_group_id(0) : (int)get_group_id(0) - a_blocks;
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);

    __local float a_tile[32][33];
    if ((int)get_group_id(0) < a_blocks) {
        const int a_slow = block / ((m_whole + 31) / 32) * 32;
        const int a_fast = block % ((m_whole + 31) / 32) * 32;

        // Read by lines, written by lines: turned in between.
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            a_tile[i * 8 + local_row][local_col] =
                a_fast + i * 8 + local_row < m && a_slow + local_col < k
                    ? a[(a_fast + i * 8 + local_row) * lda + a_slow + local_col]
                    : 0.0f;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (a_slow + i * 8 + local_row < k_whole && a_fast + local_col < m_whole) {
                a_packed[(a_slow + i * 8 + local_row) * m_whole + a_fast + local_col] =
                    a_tile[local_col][i * 8 + local_row];
            }
        }
    } else {
        const int b_slow = block / ((n_whole + 31) / 32) * 32;
        const int b_fast = block % ((n_whole + 31) / 32) * 32;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (b_slow + i * 8 + local_row < k_whole && b_fast + local_col < n_whole) {
                b_packed[(b_slow + i * 8 + local_row) * n_whole + b_fast + local_col] =
                    b_slow + i * 8 + local_row < k && b_fast + local_col < n
                        ? b[(b_slow + i * 8 + local_row) * ldb + b_fast + local_col]
                        : 0.0f;
            }
        }
    }
}

__attribute__((reqd_work_group_size(16, 16, 1)))
__kernel void smem_8x8_double_packed(int m, int n, int k, float alpha,
                                     __global const float *restrict a_packed,
                                     __global const float *restrict b_packed, float beta,
                                     __global float *restrict c, int ldc)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * 128;
    const int col0 = (int)get_group_id(0) * 128;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int m_whole = (m + 127) / 128 * 128;
    const int n_whole = (n + 127) / 128 * 128;
    const int k_whole = (k + 7) / 8 * 8;
    const int local_index = local_row * 16 + local_col;
    const int a_packed_k = local_index / 32;
    const int a_packed_row = local_index % 32 * 4;
    const int b_packed_k = local_index / 32;
    const int b_packed_row = local_index % 32 * 4;

    __local float a_shared[2][8][132] __attribute__((aligned(16)));
    float a_next[4];
    __local float b_shared[2][8][128] __attribute__((aligned(16)));
    float b_next[4];
    float acc[8][8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    if (8 <= k_whole) {
        COPY4(&a_shared[0][a_packed_k][a_packed_row],
            &a_packed[a_packed_k * m_whole + row0 + a_packed_row]);
        COPY4(&b_shared[0][b_packed_k][b_packed_row],
            &b_packed[b_packed_k * n_whole + col0 + b_packed_row]);
    }
    for (int k0 = 0; k0 < k_whole; k0 += 8) {
        const int slot = k0 / 8 % 2;
        const int next_slot = (k0 / 8 + 1) % 2;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (k0 + 16 <= k_whole) {
            COPY4(a_next, &a_packed[(k0 + a_packed_k + 8) * m_whole + row0 + a_packed_row]);
            COPY4(b_next, &b_packed[(k0 + b_packed_k + 8) * n_whole + col0 + b_packed_row]);
        }
        float a_frag[2][8];
        float b_frag[2][8];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            COPY_LOCAL4(&a_frag[0][i * 4], &a_shared[slot][0][local_row * 4 + i * 64]);
        }
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            COPY_LOCAL4(&b_frag[0][j * 4], &b_shared[slot][0][local_col * 4 + j * 64]);
        }
        #pragma unroll 2
        for (int kk = 0; kk < 8; ++kk) {
            if (kk + 1 < 8) {
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    COPY_LOCAL4(&a_frag[(kk + 1) % 2][i * 4],
                        &a_shared[slot][kk + 1][local_row * 4 + i * 64]);
                }
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    COPY_LOCAL4(&b_frag[(kk + 1) % 2][j * 4],
                        &b_shared[slot][kk + 1][local_col * 4 + j * 64]);
                }
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 8; ++j) {
                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);
                }
            }
        }
        if (k0 + 16 <= k_whole) {
            COPY4(&a_shared[next_slot][a_packed_k][a_packed_row], a_next);
            COPY4(&b_shared[next_slot][b_packed_k][b_packed_row], b_next);
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int c_row = row + i / 4 * 64 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (col + j * 64 + 4 <= n) {
                    float c_values[4];
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        float c_old[4];
                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    COPY4(&c[c_row * ldc + col + j * 64], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 64 + e < n) {
                            c[c_row * ldc + col + j * 64 + e] =
                                beta == 0.0f ? alpha * acc[i][j * 4 + e]
                                             : fma(beta, c[c_row * ldc + col + j * 64 + e],
                                                 alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

#undef COPY4
#undef COPY_LOCAL4
