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
