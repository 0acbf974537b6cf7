// gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5: C = alpha * A * prologue(B) + beta * C; float16, B
// stored in int4, two elements a byte along K, ldb in bytes, sums in float32; B col-major
//
// Schedule   --method gemv --tile 2x4 --group 1x1 --set block_k=4096 --set a.width=8 --set
//            b.width=32 --set sliced_k=4
// Tile       2x4 of C per group, 2x4 per work-item, 4096 along K per step
// Work-items 128 per group, 4 slices of each step along K (sliced-K), each of 32 lanes, sub-groups
//            of 32
// A          buffer, loads of 8 elements
// B          buffer, loads of 32 elements
// Multiply   fused multiply-add
// C          slices added up in local memory, stores of single elements
// Sizes      any m, n, k; leading dimensions multiples of 16; every matrix spans less than 2^31
//            elements
// Prologue   B: b * b_scale_128
// Takes      b_scale_128: an element for each group of 128 rows, and each column, of B
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {32, 4}, global size {(n + 3) / 4 * 32, (m + 1) / 2 * 4}
// Needs      128 bytes of local memory
//            cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 32
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

// Helpers carry the kernel's name: several files fit into one program.
#define nibble gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_nibble
#define float_to_half gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_float_to_half
#define half_to_float gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_half_to_float
#define half_to_float8 gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5_half_to_float8

// Block tile of C.
#define BM 2
#define BN 4
// Parts of a block's K (sliced-K).
#define SLICES 4
// Lanes along K, and elements of a lane's load along K.
#define LANES_K 32
#define LOAD_K 32
// Tile of C of a work-item.
#define TM BM
#define TN BN

#if BM != 2 || BN != 4
#error "BM and BN cannot change here: emit it again with --set tile=4x4"
#endif
#if SLICES != 4
#error "SLICES cannot change here: emit it again with --set sliced_k=2"
#endif
#if LANES_K != 32
#error "LANES_K cannot change here: emit it again with --set lanes_along_k=16"
#endif
#if LOAD_K != 32
#error "LOAD_K cannot change here: emit it again with --set b.width=16"
#endif

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// One of the two int4 in a byte: 0 for its low half, 1 for the high one.
static inline float nibble(char pair, int place)
{
    return (float)(((pair >> 4 * place & 15) ^ 8) - 8);
}

// 8 neighbouring elements, at any alignment.
#define LOAD8(to, from) vstore8(half_to_float8(vload8(0, from)), 0, to)

// 16 neighbouring elements, at any alignment.
#define COPY16(to, from) vstore16(vload16(0, from), 0, to)

// A float as float16 lies in memory, rounded to nearest.
static inline ushort float_to_half(float value)
{
    ushort bits;
    vstore_half(value, 0, (half *)&bits);
    return bits;
}

// float16 as it lies in memory, as float.
static inline float half_to_float(ushort bits)
{
    return vload_half(0, (const half *)&bits);
}

// float16 as it lies in memory, as float.
static inline float8 half_to_float8(ushort8 bits)
{
    return vload_half8(0, (const half *)&bits);
}

__attribute__((reqd_work_group_size(32, 4, 1)))
__attribute__((intel_reqd_sub_group_size(32))) __kernel void
gemm_f16_s4_gemv_2x4_sliced4_k4096_3rp5(int m, int n, int k, float alpha,
                                        __global const ushort *restrict a, int lda,
                                        __global const char *restrict b, int ldb, float beta,
                                        __global ushort *restrict c, int ldc,
                                        __global const float *restrict b_scale_128)
{
    const int slice = (int)get_local_id(1);
    const int lane_k = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * BN;
    const int local_index = (int)get_local_id(1) * LANES_K + (int)get_local_id(0);

    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Each lane goes along K by LOAD_K elements at a time.
    for (int k0 = (slice * LANES_K + lane_k) * LOAD_K; k0 < k - (LOAD_K - 1);
         k0 += SLICES * LANES_K * LOAD_K) {
        float a_frag[TM][LOAD_K];
        float b_frag[TN][LOAD_K];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < LOAD_K / 8; ++j) {
                LOAD8(&a_frag[i][j * 8], &a[min(row0 + i, m - 1) * lda + k0 + j * 8]);
            }
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            char b_pairs[16];
            COPY16(b_pairs, &b[min(col0 + j, n - 1) * ldb + k0 / 2]);
            #pragma unroll
            for (int e = 0; e < 32; ++e) {
                b_frag[j][e] = nibble(b_pairs[e / 2], e % 2);
            }
        }
        float step_sums[TM][TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                step_sums[i][j] = 0.0f;
            }
        }
        #pragma unroll
        for (int p = 0; p < LOAD_K; ++p) {
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    step_sums[i][j] = fma(a_frag[i][p], b_frag[j][p], step_sums[i][j]);
                }
            }
        }

        // Elements of a load share their scale, which multiplies their sums.
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[i][j] = fma(step_sums[i][j], b_scale_128[k0 / 128 * n + min(col0 + j, n - 1)],
                                acc[i][j]);
            }
        }
    }

    // What is left of K: a lane has one element of it.
    const int k_left = k - k % LOAD_K + slice * LANES_K + lane_k;

    if (k_left < k) {
        float a_frag[TM];
        float b_frag[TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            a_frag[i] = half_to_float(a[min(row0 + i, m - 1) * lda + k_left]);
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            b_frag[j] = nibble(b[min(col0 + j, n - 1) * ldb + k_left / 2], k_left % 2);
        }
        float step_sums[TM][TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                step_sums[i][j] = 0.0f;
            }
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                step_sums[i][j] = fma(a_frag[i], b_frag[j], step_sums[i][j]);
            }
        }

        // Elements of a load share their scale, which multiplies their sums.
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[i][j] = fma(step_sums[i][j],
                                b_scale_128[k_left / 128 * n + min(col0 + j, n - 1)], acc[i][j]);
            }
        }
    }

    // Butterfly reduction: lanes exchange halves of their sums, and each ends with its own.
    const bool is_low_16 = lane_k / 16 % 2 == 0;

    #pragma unroll
    for (int j = 0; j < TN; ++j) {
        const float received =
            intel_sub_group_shuffle_xor(is_low_16 ? acc[TM / 2][j] : acc[0][j], 16);
        acc[0][j] = (is_low_16 ? acc[0][j] : acc[TM / 2][j]) + received;
    }

    const bool is_low_8 = lane_k / 8 % 2 == 0;

    #pragma unroll
    for (int j = 0; j < TN / 2; ++j) {
        const float received =
            intel_sub_group_shuffle_xor(is_low_8 ? acc[0][j + TN / 2] : acc[0][j], 8);
        acc[0][j] = (is_low_8 ? acc[0][j] : acc[0][j + TN / 2]) + received;
    }

    const bool is_low_4 = lane_k / 4 % 2 == 0;
    const float received = intel_sub_group_shuffle_xor(is_low_4 ? acc[0][TN / 4] : acc[0][0], 4);

    acc[0][0] = (is_low_4 ? acc[0][0] : acc[0][TN / 4]) + received;
    acc[0][0] += intel_sub_group_shuffle_xor(acc[0][0], 2);
    acc[0][0] += intel_sub_group_shuffle_xor(acc[0][0], 1);

    // Every slice writes its partial sums; then they are added up.
    __local float partial[SLICES][BM][BN];
    if (lane_k % 4 == 0) {
        partial[slice][lane_k / 16][lane_k / 4 % 4] = alpha * acc[0][0];
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    const int sum_row = local_index / BN;
    const int sum_col = local_index % BN;
    const int first_col = col0 + sum_col;

    if (local_index < BM * BN) {
        float total = partial[0][sum_row][sum_col];
        #pragma unroll
        for (int s = 1; s < SLICES; ++s) {
            total += partial[s][sum_row][sum_col];
        }

        // C = alpha * A * prologue(B) + beta * C; C is not read where beta is zero.
        const int c_row = row0 + sum_row;
        if (c_row < m && first_col < n) {
            const float c_value =
                beta == 0.0f ? total : fma(beta, half_to_float(c[c_row * ldc + first_col]), total);
            c[c_row * ldc + first_col] = float_to_half(c_value);
        }
    }
}

#undef BM
#undef BN
#undef SLICES
#undef LANES_K
#undef LOAD_K
#undef TM
#undef TN

#undef nibble
#undef float_to_half
#undef half_to_float
#undef half_to_float8
#undef LOAD8
#undef COPY16
