// smem_8x8_double_packed: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per group, 8x8 per work-item, 8 along K per step
// Work-items 16x16 per group
// A          buffer, prepacked by a kernel before, loads of 4 elements, 2 stages in local memory,
//            rows padded by 4, registers double-buffered
// B          buffer, prepacked by a kernel before, loads of 4 elements, 2 stages in local memory,
//            registers double-buffered
// Pipeline   the next stage is loaded into registers before the arithmetic, and stored after it
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     smem_8x8_double_packed_pack: local size {32, 8}, global size {(((k + 7) / 8 * 8 + 31)
//                / 32 * ((m + 127) / 128 * 4) + ((k + 7) / 8 * 8 + 31) / 32 * ((n + 127) / 128 *
//                4)) * 32, 8}
//            smem_8x8_double_packed: local size {16, 16}, global size {(n + 127) / 128 * 16, (m +
//                127) / 128 * 16}
// Needs      16,640 bytes of local memory
//            a_packed of (k + 7) / 8 * 8 * ((m + 127) / 128 * 128) elements
//            b_packed of (k + 7) / 8 * 8 * ((n + 127) / 128 * 128) elements
//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Block tile: BM x BN of C, BK along K per step.
#define BM 128
#define BN 128
#define BK 8
// Stages of the pipeline.
#define STAGES 2
// Work-items along M and N.
#define THREADS_M 16
#define THREADS_N 16
// Tile of C of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)
// Work-items of a group.
#define THREADS (THREADS_M * THREADS_N)

#if STAGES != 2
#error "STAGES cannot change here:"
#error "gemmgen emit --preset smem_8x8_double_packed --set stages=4"
#endif
#if THREADS_M != 16 || THREADS_N != 16
#error "THREADS_M and THREADS_N cannot change here:"
#error "gemmgen emit --preset smem_8x8_double_packed --set group=8x16"
#endif
#if TM % 4 != 0 || TN % 4 != 0
#error "TM and TN must be multiples of 4"
#endif
#if BM * BK % (THREADS * 4) != 0 || BN * BK % (THREADS * 4) != 0
#error "BM * BK and BN * BK must be multiples of THREADS * 4"
#endif
#if THREADS * 4 % BM != 0
#error "THREADS * 4 must be a multiple of BM"
#endif
#if THREADS * 4 % BN != 0
#error "THREADS * 4 must be a multiple of BN"
#endif
#if BM % THREADS_M != 0
#error "BM must be a multiple of THREADS_M"
#endif
#if BN % THREADS_N != 0
#error "BN must be a multiple of THREADS_N"
#endif
#if TM <= 4 || TN <= 4
#error "TM and TN must exceed 4 here:"
#error "gemmgen emit --preset smem_8x8_double_packed --set tile=4x8"
#endif

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

// 4 neighbouring elements of local memory, from a multiple of 16 bytes.
#define COPY_LOCAL4(to, from) vstore4(*(const __local float4 *)(from), 0, to)

__attribute__((reqd_work_group_size(32, 8, 1))) __kernel void
smem_8x8_double_packed_pack(int m, int n, int k, __global const float *restrict a, int lda,
                            __global const float *restrict b, int ldb,
                            __global float *restrict a_packed, __global float *restrict b_packed)
{
    const int m_whole = (m + BM - 1) / BM * BM;
    const int n_whole = (n + BN - 1) / BN * BN;
    const int k_whole = (k + BK - 1) / BK * BK;
    const int a_blocks = (k_whole + 31) / 32 * ((m_whole + 31) / 32);
    const int block =
        (int)get_group_id(0) < a_blocks ? (int)get_group_id(0) : (int)get_group_id(0) - a_blocks;
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);

    __local float a_tile[32][33];
    if ((int)get_group_id(0) < a_blocks) {
        const int a_slow = block / ((m_whole + 31) / 32) * 32;
        const int a_fast = block % ((m_whole + 31) / 32) * 32;

        // Transposed through a tile, so that reads and writes are both contiguous.
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

__attribute__((reqd_work_group_size(16, 16, 1))) __kernel void
smem_8x8_double_packed(int m, int n, int k, float alpha, __global const float *restrict a_packed,
                       __global const float *restrict b_packed, float beta,
                       __global float *restrict c, int ldc)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int m_whole = (m + BM - 1) / BM * BM;
    const int n_whole = (n + BN - 1) / BN * BN;
    const int k_whole = (k + BK - 1) / BK * BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_packed_k = local_index / (BM / 4);
    const int a_packed_row = local_index % (BM / 4) * 4;
    const int b_packed_k = local_index / (BN / 4);
    const int b_packed_row = local_index % (BN / 4) * 4;

    __local float a_shared[STAGES][BK][BM + 4] __attribute__((aligned(16)));
    float a_next[BM * BK / (THREADS * 4)][4];
    __local float b_shared[STAGES][BK][BN] __attribute__((aligned(16)));
    float b_next[BN * BK / (THREADS * 4)][4];
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    if (k_whole >= BK) {
        #pragma unroll
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            COPY4(&a_shared[0][a_packed_k + i * (THREADS * 4 / BM)][a_packed_row],
                  &a_packed[(a_packed_k + i * (THREADS * 4 / BM)) * m_whole + row0 + a_packed_row]);
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            COPY4(&b_shared[0][b_packed_k + i * (THREADS * 4 / BN)][b_packed_row],
                  &b_packed[(b_packed_k + i * (THREADS * 4 / BN)) * n_whole + col0 + b_packed_row]);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k0 = 0; k0 < k_whole; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        if (k0 + STAGES * BK <= k_whole) {
            #pragma unroll
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                COPY4(a_next[i],
                      &a_packed[(k0 + a_packed_k + i * (THREADS * 4 / BM) + (STAGES - 1) * BK) *
                                    m_whole +
                                row0 + a_packed_row]);
            }
            #pragma unroll
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                COPY4(b_next[i],
                      &b_packed[(k0 + b_packed_k + i * (THREADS * 4 / BN) + (STAGES - 1) * BK) *
                                    n_whole +
                                col0 + b_packed_row]);
            }
        }
        float a_frag[2][TM];
        float b_frag[2][TN];
        #pragma unroll
        for (int i = 0; i < TM / 4; ++i) {
            COPY_LOCAL4(&a_frag[0][i * 4], &a_shared[stage][0][local_row * 4 + i * THREADS_M * 4]);
        }
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            COPY_LOCAL4(&b_frag[0][j * 4], &b_shared[stage][0][local_col * 4 + j * THREADS_N * 4]);
        }
        #pragma unroll 2
        for (int kk = 0; kk < BK; ++kk) {
            if (kk + 1 < BK) {
                #pragma unroll
                for (int i = 0; i < TM / 4; ++i) {
                    COPY_LOCAL4(&a_frag[(kk + 1) % 2][i * 4],
                                &a_shared[stage][kk + 1][local_row * 4 + i * THREADS_M * 4]);
                }
                #pragma unroll
                for (int j = 0; j < TN / 4; ++j) {
                    COPY_LOCAL4(&b_frag[(kk + 1) % 2][j * 4],
                                &b_shared[stage][kk + 1][local_col * 4 + j * THREADS_N * 4]);
                }
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);
                }
            }
        }
        if (k0 + STAGES * BK <= k_whole) {
            #pragma unroll
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                COPY4(&a_shared[load_stage][a_packed_k + i * (THREADS * 4 / BM)][a_packed_row],
                      a_next[i]);
            }
            #pragma unroll
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                COPY4(&b_shared[load_stage][b_packed_k + i * (THREADS * 4 / BN)][b_packed_row],
                      b_next[i]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                if (col + j * THREADS_N * 4 + 4 <= n) {
                    float c_values[4];
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        float c_old[4];
                        COPY4(c_old, &c[c_row * ldc + col + j * THREADS_N * 4]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    COPY4(&c[c_row * ldc + col + j * THREADS_N * 4], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * THREADS_N * 4 + e < n) {
                            c[c_row * ldc + col + j * THREADS_N * 4 + e] =
                                beta == 0.0f
                                    ? alpha * acc[i][j * 4 + e]
                                    : fma(beta, c[c_row * ldc + col + j * THREADS_N * 4 + e],
                                          alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

#undef BM
#undef BN
#undef BK
#undef STAGES
#undef THREADS_M
#undef THREADS_N
#undef TM
#undef TN
#undef THREADS

#undef COPY4
#undef COPY_LOCAL4
