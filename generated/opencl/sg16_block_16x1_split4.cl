// sg16_block_16x1_split4: C = alpha * A * B + beta * C; float32
//
// Tile       16x16 of C per group, 16x1 per work-item, 32 along K per step
// Work-items 1x16 per group, sub-groups of 16
// A          buffer, block reads of 2 segments, passed around the sub-group by shuffles
// B          buffer, block reads
// Multiply   fused multiply-add
// C          stores of single elements, to the workspace
// Grid       split-K: 4 parts, added up by a second kernel
// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31; the workspace less than
//            2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     sg16_block_16x1_split4: local size {16, 1}, global size {(m + 15) / 16 * ((n + 15) /
//                16) * 64, 1}
//            sg16_block_16x1_split4_total: local size {256, 1}, global size {m * ((n + 255) / 256)
//                * 256, 1}
// Needs      a workspace of m * n * 4 elements
//            cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 16
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

// Helpers carry the kernel's name: several files fit into one program.
#define at sg16_block_16x1_split4_at
#define block_read sg16_block_16x1_split4_block_read
#define block_read2 sg16_block_16x1_split4_block_read2

// Block tile of C.
#define BM 16
#define BN 16
// Parts of K (split-K).
#define SPLIT_K 4
// Rows of C of a work-item.
#define TM BM

#if BM != 16 || BN != 16
#error "BM and BN cannot change here:"
#error "gemmgen emit --preset sg16_block_16x1_split4 --set tile=32x1"
#endif
#if SPLIT_K != 4
#error "SPLIT_K cannot change here:"
#error "gemmgen emit --preset sg16_block_16x1_split4 --set split_k=8"
#endif

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// The element that lies `bytes` bytes behind a matrix's first.
static inline const __global float *at(const __global float *matrix, int bytes)
{
    return (const __global float *)((const __global char *)matrix + bytes);
}

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
__attribute__((intel_reqd_sub_group_size(16))) __kernel void
sg16_block_16x1_split4(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
                       __global const float *restrict b, int ldb,
                       __global float *restrict workspace)
{
    const int lane = (int)get_sub_group_local_id();
    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int part = (int)get_group_id(0) / (blocks_down * blocks_across);
    const int block = (int)get_group_id(0) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int col = col0 + lane;
    const int k_part = (k + 127) / 128 * 32;
    const int k_begin = part * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int k_main = col0 + BN <= n ? min(k - k % 32, k_end) : k_begin;

    float acc[TM];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        acc[i] = 0.0f;
    }

    // Addresses of block reads in bytes, one (or half of one) a lane; the loop adds a step first.
    int b_at[2];
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        b_at[i] = ((k_begin - 32 + i * 16 + lane) * ldb + col0) * 4;
    }
    int a_at = (min(row0 + lane, m - 1) * lda + k_begin - 32) * 4;

    // Whole steps of 32 along K; at the edge of C there are none.
    for (int k0 = k_begin; k0 < k_main; k0 += 32) {
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            b_at[i] += ldb * 128;
        }
        a_at += 128;
        float b_frag[32];
        #pragma unroll
        for (int i = 0; i < 32; ++i) {
            b_frag[i] = block_read(at(b, intel_sub_group_shuffle(b_at[i / 16], i % 16)));
        }
        float a_frag[TM][2];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            vstore2(block_read2(at(a, intel_sub_group_shuffle(a_at, i))), 0, a_frag[i]);
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < 32; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[i][p / 16], p % 16);
                acc[i] = fma(a_value, b_frag[p], acc[i]);
            }
        }
    }
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K, at the edge of C all of it; what lies past it counts as zero.
        for (int k0 = k_main; k0 < k_end; k0 += 16) {
            float b_frag[16];
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                b_frag[i] = k0 + i < k ? b[(k0 + i) * ldb + min(col, n - 1)] : 0.0f;
            }
            float a_frag[TM];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = k0 + lane < k ? a[min(row0 + i, m - 1) * lda + k0 + lane] : 0.0f;
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int p = 0; p < 16; ++p) {
                    const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                    acc[i] = fma(a_value, b_frag[p], acc[i]);
                }
            }
        }
    }

    // Split-K: this part's partial sums.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row0 + i < m && col < n) {
            workspace[part * (m * n) + (row0 + i) * n + col] = alpha * acc[i];
        }
    }
}

__attribute__((reqd_work_group_size(256, 1, 1))) __kernel void
sg16_block_16x1_split4_total(int m, int n, __global const float *restrict workspace, float beta,
                             __global float *restrict c, int ldc)
{
    const int blocks_across = (n + 255) / 256;
    const int row = (int)get_group_id(0) / blocks_across;
    const int col = (int)get_group_id(0) % blocks_across * 256 + (int)get_local_id(0);

    if (col < n) {
        // Reduction of split-K: the partial sums in order.
        float total = workspace[row * n + col];
        #pragma unroll
        for (int s = 1; s < SPLIT_K; ++s) {
            total += workspace[s * (m * n) + row * n + col];
        }
        c[row * ldc + col] = beta == 0.0f ? total : fma(beta, c[row * ldc + col], total);
    }
}

#undef BM
#undef BN
#undef SPLIT_K
#undef TM

#undef at
#undef block_read
#undef block_read2
