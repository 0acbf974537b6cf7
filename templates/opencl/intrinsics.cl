//: conjugate
// The complex conjugate: the imaginary part with its sign changed.
static inline TYPE conjugate(TYPE value)
{
    return (TYPE)(value.x, -value.y);
}

//: cmul
// a * b, of complex numbers.
static inline TYPE cmul(TYPE a, TYPE b)
{
    return (TYPE)(MULTIPLY_ADD(a.x, b.x, -a.y * b.y), MULTIPLY_ADD(a.x, b.y, a.y * b.x));
}

//: cfma
// a * b + c, of complex numbers: two multiply-adds for each part.
static inline TYPE cfma(TYPE a, TYPE b, TYPE c)
{
    const REAL re = MULTIPLY_ADD(a.x, b.x, MULTIPLY_ADD(-a.y, b.y, c.x));
    const REAL im = MULTIPLY_ADD(a.x, b.y, MULTIPLY_ADD(a.y, b.x, c.y));
    return (TYPE)(re, im);
}

//: half_to_float
// float16 as it lies in memory, as float.
static inline floatWIDTH half_to_floatWIDTH(ushortWIDTH bits)
{
    return vload_halfWIDTH(0, (const half *)&bits);
}

//: float_to_half
// A float as float16 lies in memory, rounded to nearest.
static inline ushortWIDTH float_to_halfWIDTH(floatWIDTH value)
{
    ushortWIDTH bits;
    vstore_halfWIDTH(value, 0, (half *)&bits);
    return bits;
}

//: bfloat16_to_float
// bfloat16, the upper half of a float, as float.
static inline floatWIDTH bfloat16_to_floatWIDTH(ushortWIDTH bits)
{
    return as_floatWIDTH(convert_uintWIDTH(bits) << 16);
}

//: float_to_bfloat16
// A float as bfloat16, its upper half, rounded to nearest; NaN stays NaN.
static inline ushortWIDTH float_to_bfloat16WIDTH(floatWIDTH value)
{
    const uintWIDTH bits = as_uintWIDTH(value);
    const uintWIDTH rounded = bits + 0x7fff + (bits >> 16 & 1);
    return convert_ushortWIDTH(select(rounded, bits | 0x400000, isnan(value)) >> 16);
}

//: packed_vectors
// An operand that was packed to be read so: eight words a lane, lane after lane.
static inline int8 packed_vectors(const __global int *from)
{
    return vload8(get_sub_group_local_id(), from);
}

//: packed_block
// An operand that was packed to be read so: eight times a half word of each lane.
static inline short8 packed_block(const __global short *from)
{
    return as_short8(intel_sub_group_block_read_us8((const __global ushort *)from));
}

//: multiply
// acc [8][LANES] += a [8][DEPTH] * b [DEPTH][LANES], by the sub-group as one. Of each row of A a lane holds
// OWN; of B it holds a column, PACKED elements in a word.
#if defined(GEMMGEN_DPAS_SOFTWARE)
// Inlined, it would take compilers minutes.
__attribute__((noinline)) static void multiply(SUMS *acc, const WORD *a, const int *b)
{
    for (int i = 0; i < 8; ++i) {
        for (int k = 0; k < DEPTH; ++k) {
            const int row = intel_sub_group_shuffle((int)a[i], HOLDER)PART;
            const int column = b[k / PACKED] >> k % PACKED * BITS;
            acc[i] += ELEMENTrow) * ELEMENTcolumn);
        }
    }
}
#elif defined(cl_intel_subgroup_matrix_multiply_accumulate)
__attribute__((overloadable))
SUMS8 FUNCTION(WORD8 a, int8 b, SUMS8 acc);

static inline void multiply(SUMS *acc, const WORD *a, const int *b)
{
    vstore8(FUNCTION(vload8(0, a), vload8(0, b), vload8(0, acc)), 0, acc);
}
#else
#error "dpas: build with -Dcl_intel_subgroup_matrix_multiply_accumulate=1 for a device that has it, " \
    "with -DGEMMGEN_DPAS_SOFTWARE for any other"
#endif
