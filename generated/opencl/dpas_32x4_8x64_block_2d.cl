// dpas_32x4_8x64_block_2d: C = alpha * A * B + beta * C; float16, sums and C in float32
//
// Tile       256x256 of C per group, 32x4 per work-item, 128 along K per step
// Work-items 8x64 per group, sub-groups of 16
// A          buffer, 2D block reads of 32x32
// B          buffer, 2D block reads of 32x32
// Pipeline   a split barrier: arrive before the arithmetic of each step, wait after it
// Multiply   matrix instructions of the sub-group (dpas), sums in float32
// C          2D block writes where beta is 0, stores of single elements
// Prefetch   A, B
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {64, 8}, global size {(n + 255) / 256 * 64, (m + 255) / 256 * 8}
// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 16
//            cl_intel_subgroup_matrix_multiply_accumulate and cl_intel_subgroup_2d_block_io; or,
//                without them, -DGEMMGEN_DPAS_SOFTWARE in their place: the same in software
//            A, B and C that begin on multiples of 64 bytes
//            the functions of Intel's compiler for address payloads; or, without them,
//                -DGEMMGEN_NO_ADDRESS_PAYLOADS
//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread
// Build      clBuildProgram(..., "-cl-std=CL2.0 -Dcl_intel_subgroup_matrix_multiply_accumulate=1",
//                ...)

// Helpers carry the kernel's name: several files fit into one program.
#define block_place dpas_32x4_8x64_block_2d_block_place
#define half_to_float dpas_32x4_8x64_block_2d_half_to_float
#define multiply dpas_32x4_8x64_block_2d_multiply
#define move_cols dpas_32x4_8x64_block_2d_move_cols
#define move_rows dpas_32x4_8x64_block_2d_move_rows
#define load_32x32 dpas_32x4_8x64_block_2d_load_32x32
#define read_32x32 dpas_32x4_8x64_block_2d_read_32x32
#define place_32x32 dpas_32x4_8x64_block_2d_place_32x32
#define prefetch_32x32_at dpas_32x4_8x64_block_2d_prefetch_32x32_at
#define load_vnni_32x32 dpas_32x4_8x64_block_2d_load_vnni_32x32
#define read_vnni_32x32 dpas_32x4_8x64_block_2d_read_vnni_32x32
#define write_8x16 dpas_32x4_8x64_block_2d_write_8x16
#define barrier_arrive dpas_32x4_8x64_block_2d_barrier_arrive
#define barrier_wait dpas_32x4_8x64_block_2d_barrier_wait

// Block tile: BM x BN of C, BK along K per step.
#define BM 256
#define BN 256
#define BK 128
// Work-items along M and N.
#define THREADS_M 8
#define THREADS_N 64
// Tile of C of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)

#if BM != 256 || BN != 256
#error "BM and BN cannot change here:"
#error "gemmgen emit --preset dpas_32x4_8x64_block_2d --set tile=16x4"
#endif
#if BK != 128
#error "BK cannot change here:"
#error "gemmgen emit --preset dpas_32x4_8x64_block_2d --set block_k=256"
#endif
#if THREADS_M != 8 || THREADS_N != 64
#error "THREADS_M and THREADS_N cannot change here:"
#error "gemmgen emit --preset dpas_32x4_8x64_block_2d --set group=4x64"
#endif

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// acc [8][16] += a [8][16] * b [16][16], by the sub-group as one. Of each row of A a lane holds
// an element; of B it holds a column.
#if defined(GEMMGEN_DPAS_SOFTWARE)
// float16 as it lies in memory, as float.
static inline float half_to_float(ushort bits)
{
    return vload_half(0, (const half *)&bits);
}

// Inlined, it would take compilers minutes.
__attribute__((noinline)) static void multiply(float *acc, const ushort *a, const ushort *b)
{
    for (int i = 0; i < 8; ++i) {
        for (int k = 0; k < 16; ++k) {
            const int row = intel_sub_group_shuffle((int)a[i], k);
            acc[i] += half_to_float((ushort)row) * half_to_float(b[k]);
        }
    }
}
#elif defined(cl_intel_subgroup_matrix_multiply_accumulate)
__attribute__((overloadable)) float8 intel_sub_group_f16_f16_matrix_mad_k16(short8 a, int8 b,
                                                                            float8 acc);

static inline void multiply(float *acc, const ushort *a, const ushort *b)
{
    const short8 row = vload8(0, (const short *)a);
    vstore8(intel_sub_group_f16_f16_matrix_mad_k16(row, vload8(0, (const int *)b), vload8(0, acc)),
            0, acc);
}
#else
// The first is for devices that have the instruction, the second for any other.
#error "define cl_intel_subgroup_matrix_multiply_accumulate as 1, or GEMMGEN_DPAS_SOFTWARE"
#endif

#ifndef GEMMGEN_DPAS_SOFTWARE
// Functions of Intel's compiler for 2D blocks: width and pitch are in bytes.
__attribute__((overloadable)) void intel_sub_group_2d_block_read_16b_32r16x2c(__global void *base,
                                                                              int width, int height,
                                                                              int pitch, int2 at,
                                                                              __private ushort *to);
__attribute__((overloadable)) void
intel_sub_group_2d_block_prefetch_16b_32r16x2c(__global void *base, int width, int height,
                                               int pitch, int2 at);
__attribute__((overloadable)) void
intel_sub_group_2d_block_read_transform_16b_32r16x2c(__global void *base, int width, int height,
                                                     int pitch, int2 at, __private uint *to);
__attribute__((overloadable)) void intel_sub_group_2d_block_write_32b_8r16x1c(__global void *base,
                                                                              int width, int height,
                                                                              int pitch, int2 at,
                                                                              __private uint *from);
#ifndef GEMMGEN_NO_ADDRESS_PAYLOADS
// An address payload: a matrix, its size, and where a block of it begins, in a register as a
// message takes it. It is created from the base, width in bytes less 1, height less 1, pitch in
// bytes less 1, x, y, the block's width and height, and the number of blocks.
__private int *__builtin_IB_subgroup_createBlock2DAddressPayload(long, int, int, int, int, int, int,
                                                                 int, int);
void __builtin_IB_subgroup_addBlock2DAddressPayloadBlockX(__private int *payload, int by);
void __builtin_IB_subgroup_addBlock2DAddressPayloadBlockY(__private int *payload, int by);
void __builtin_IB_subgroup_block_read_ap_prefetch_u16_m32k16v2(__private int *payload, int x, int y,
                                                               int cached);
#endif
#endif

#ifdef GEMMGEN_DPAS_SOFTWARE
// Inlined, these would take compilers minutes.
#define OF_EACH_LANE __attribute__((noinline))
#else
#define OF_EACH_LANE
#endif

#if defined(GEMMGEN_DPAS_SOFTWARE) || defined(GEMMGEN_NO_ADDRESS_PAYLOADS)
// A matrix, its size, and where a block of it begins.
typedef struct {
    const __global void *from;
    int rows, cols, pitch;
    int2 at;
} block_place;
#else
// The same in a register: an address payload.
typedef __private int *block_place;
#endif

static inline void move_cols(__private block_place *place, int by)
{
#if defined(GEMMGEN_DPAS_SOFTWARE) || defined(GEMMGEN_NO_ADDRESS_PAYLOADS)
    place->at.x += by;
#else
    __builtin_IB_subgroup_addBlock2DAddressPayloadBlockX(*place, by);
#endif
}

static inline void move_rows(__private block_place *place, int by)
{
#if defined(GEMMGEN_DPAS_SOFTWARE) || defined(GEMMGEN_NO_ADDRESS_PAYLOADS)
    place->at.y += by;
#else
    __builtin_IB_subgroup_addBlock2DAddressPayloadBlockY(*place, by);
#endif
}

// 32 rows of 32 columns: each lane loads its own elements. Those past the matrix are zero.
static inline OF_EACH_LANE void load_32x32(__private ushort *to, const __global ushort *from,
                                           int rows, int cols, int pitch, int2 at)
{
    const int lane = (int)get_sub_group_local_id();
    #pragma unroll
    for (int e = 0; e < 64; ++e) {
        const int row = at.y + e % 32;
        const int col = at.x + lane + e / 32 * 16;
        to[e] = row < rows && col < cols ? from[row * pitch + col] : 0;
    }
}

// The same by one message of the sub-group, whose width is in whole words.
static inline void read_32x32(__private ushort *to, const __global ushort *from, int rows, int cols,
                              int pitch, int2 at)
{
#ifdef GEMMGEN_DPAS_SOFTWARE
    load_32x32(to, from, rows, cols, pitch, at);
#else
    intel_sub_group_2d_block_read_16b_32r16x2c((__global void *)from, (cols + cols % 2) * 2, rows,
                                               pitch * 2, at, (__private ushort *)to);
#endif
}

// Where a block of 32 rows of 32 columns begins.
static inline block_place place_32x32(const __global ushort *from, int rows, int cols, int pitch,
                                      int2 at)
{
#if defined(GEMMGEN_DPAS_SOFTWARE) || defined(GEMMGEN_NO_ADDRESS_PAYLOADS)
    const block_place place = {from, rows, cols, pitch, at};
    return place;
#else
    return __builtin_IB_subgroup_createBlock2DAddressPayload(
        (long)from, (cols + cols % 2) * 2 - 1, rows - 1, pitch * 2 - 1, at.x, at.y, 16, 32, 2);
#endif
}

// Prefetches such a block into the caches.
static inline void prefetch_32x32_at(const __private block_place *place)
{
#if defined(GEMMGEN_DPAS_SOFTWARE)
    (void)place;
#elif defined(GEMMGEN_NO_ADDRESS_PAYLOADS)
    intel_sub_group_2d_block_prefetch_16b_32r16x2c((__global void *)place->from,
                                                   (place->cols + place->cols % 2) * 2, place->rows,
                                                   place->pitch * 2, place->at);
#else
    __builtin_IB_subgroup_block_read_ap_prefetch_u16_m32k16v2(*place, 0, 0, 0);
#endif
}

// 32 rows of 32 columns, neighbours of a column in a word: each lane loads its own elements. Those
// past the matrix are zero.
static inline OF_EACH_LANE void load_vnni_32x32(__private ushort *to, const __global ushort *from,
                                                int rows, int cols, int pitch, int2 at)
{
    const int lane = (int)get_sub_group_local_id();
    #pragma unroll
    for (int w = 0; w < 32; ++w) {
        uint word = 0;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int e = w * 2 + i;
            const int row = at.y + e % 32;
            const int col = at.x + lane + e / 32 * 16;
            if (row < rows && col < cols) {
                word |= (uint)from[row * pitch + col] << i * 16;
            }
        }
        ((__private uint *)to)[w] = word;
    }
}

// The same by one message of the sub-group, whose width is in whole words.
static inline void read_vnni_32x32(__private ushort *to, const __global ushort *from, int rows,
                                   int cols, int pitch, int2 at)
{
#ifdef GEMMGEN_DPAS_SOFTWARE
    load_vnni_32x32(to, from, rows, cols, pitch, at);
#else
    intel_sub_group_2d_block_read_transform_16b_32r16x2c(
        (__global void *)from, (cols + cols % 2) * 2, rows, pitch * 2, at, (__private uint *)to);
#endif
}

// Stores 8 rows of 16 columns by one message of the sub-group: what is inside of the matrix.
static inline void write_8x16(__global float *to, int rows, int cols, int pitch, int2 at,
                              __private float *from)
{
#ifdef GEMMGEN_DPAS_SOFTWARE
    const int col = at.x + (int)get_sub_group_local_id();
    for (int e = 0; e < 8; ++e) {
        if (at.y + e < rows && col < cols) {
            to[(at.y + e) * pitch + col] = from[e];
        }
    }
#else
    intel_sub_group_2d_block_write_32b_8r16x1c((__global void *)to, cols * 4, rows, pitch * 4, at,
                                               (__private uint *)from);
#endif
}

// A barrier in two parts that orders no memory. In software, or without the extension, the second
// is all of it.
static inline void barrier_arrive(void)
{
#if defined(cl_intel_split_work_group_barrier) && !defined(GEMMGEN_DPAS_SOFTWARE)
    intel_work_group_barrier_arrive(0);
#endif
}

static inline void barrier_wait(void)
{
#if defined(cl_intel_split_work_group_barrier) && !defined(GEMMGEN_DPAS_SOFTWARE)
    intel_work_group_barrier_wait(0);
#else
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}

__attribute__((reqd_work_group_size(64, 8, 1)))
__attribute__((intel_reqd_sub_group_size(16))) __kernel void
dpas_32x4_8x64_block_2d(int m, int n, int k, float alpha, __global const ushort *restrict a,
                        int lda, __global const ushort *restrict b, int ldb, float beta,
                        __global float *restrict c, int ldc)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int col0 = (int)get_group_id(0) * BN;
    const int row = (int)get_group_id(1) * BM + local_row * TM;
    const int col = col0 + local_col / 16 * TN * 16 + local_col % 16;
    const int sub_group_col = intel_sub_group_shuffle(local_col / 16, 0);
    const int tile_col = col0 + sub_group_col * TN * 16;
    const int sub_group_row = intel_sub_group_shuffle(local_row, 0);
    const int k_words = k - k % 2;

    // 2D block messages take a pitch that is a multiple of 16 bytes and at most 2^24 bytes, lines
    // of at least 64 bytes, and at most 2^24 rows.
    const int k_main = lda % 8 == 0 && lda <= 8388608 && k >= 32 && m <= 16777216 && ldb % 8 == 0 &&
                               ldb <= 8388608 && n >= 32 && k <= 16777216
                           ? k_words
                           : 0;

    float acc[TN][TM];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[j][i] = 0.0f;
        }
    }

    // Address payloads: each is filled once and advanced along K.
    block_place a_ahead;
    a_ahead = place_32x32(a, m, k_words, lda, (int2)(sub_group_col * 32 - BK, row));
    block_place b_ahead;
    b_ahead = place_32x32(
        b, k_words, n, ldb,
        (int2)(tile_col + sub_group_row % (TN / 2) * 32, sub_group_row / (TN / 2) * 32 - BK));
    if (k_main > 0) {
        move_cols(&a_ahead, BK);
        move_rows(&b_ahead, BK);
        prefetch_32x32_at(&a_ahead);
        prefetch_32x32_at(&b_ahead);
    }

    // Steps of BK along K by 2D block reads, with zeros past the matrices' ends.
    for (int k0 = 0; k0 < k_main; k0 += BK) {
        move_cols(&a_ahead, BK);
        move_rows(&b_ahead, BK);
        barrier_arrive();
        #pragma unroll
        for (int p = 0; p < BK / 32; ++p) {
            if (p % 4 == 0) {
                prefetch_32x32_at(&a_ahead);
            }
            ushort a_frag[2][TM] __attribute__((aligned(4)));
            read_32x32(a_frag[0], a, m, k_words, lda, (int2)(k0 + p * 32, row));
            ushort b_frag[TN][32] __attribute__((aligned(4)));
            #pragma unroll
            for (int j = 0; j < TN / 2; ++j) {
                read_vnni_32x32(b_frag[j * 2], b, k_words, n, ldb,
                                (int2)(tile_col + j * 32, k0 + p * 32));
            }
            #pragma unroll
            for (int q = 0; q < 2; ++q) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    #pragma unroll
                    for (int i = 0; i < TM / 8; ++i) {
                        multiply(&acc[j][i * 8], &a_frag[q][i * 8], &b_frag[j][q * 16]);
                    }
                }
            }
            sub_group_barrier(0);
            if (p % 4 == 1) {
                prefetch_32x32_at(&b_ahead);
            }
        }
        barrier_wait();
    }

    // The rest of K; all of K where 2D block messages cannot address A or B.
    for (int k0 = k_main; k0 < k; k0 += 32) {
        ushort a_frag[2][TM] __attribute__((aligned(4)));
        load_32x32(a_frag[0], a, m, k, lda, (int2)(k0, row));
        ushort b_frag[TN][32] __attribute__((aligned(4)));
        #pragma unroll
        for (int j = 0; j < TN / 2; ++j) {
            load_vnni_32x32(b_frag[j * 2], b, k, n, ldb, (int2)(tile_col + j * 32, k0));
        }
        #pragma unroll
        for (int q = 0; q < 2; ++q) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                #pragma unroll
                for (int i = 0; i < TM / 8; ++i) {
                    multiply(&acc[j][i * 8], &a_frag[q][i * 8], &b_frag[j][q * 16]);
                }
            }
        }
    }
    if (beta == 0.0f && ldc % 4 == 0 && ldc <= 4194304 && n >= 16 && m <= 16777216) {
        // C = alpha * A * B by 2D block writes, which leave out what is past the matrix.
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            #pragma unroll
            for (int i = 0; i < TM / 8; ++i) {
                #pragma unroll
                for (int r = 0; r < 8; ++r) {
                    acc[j][i * 8 + r] = alpha * acc[j][i * 8 + r];
                }
                write_8x16(c, m, n, ldc, (int2)(tile_col + j * 16, row + i * 8), &acc[j][i * 8]);
            }
        }
    } else {
        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            if (row + i < m) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    if (col + j * 16 < n) {
                        c[(row + i) * ldc + col + j * 16] =
                            beta == 0.0f
                                ? alpha * acc[j][i]
                                : fma(beta, c[(row + i) * ldc + col + j * 16], alpha * acc[j][i]);
                    }
                }
            }
        }
    }
}

#undef BM
#undef BN
#undef BK
#undef THREADS_M
#undef THREADS_N
#undef TM
#undef TN

#undef block_place
#undef half_to_float
#undef multiply
#undef move_cols
#undef move_rows
#undef load_32x32
#undef read_32x32
#undef place_32x32
#undef prefetch_32x32_at
#undef load_vnni_32x32
#undef read_vnni_32x32
#undef write_8x16
#undef barrier_arrive
#undef barrier_wait
#undef OF_EACH_LANE
