//: conjugate
// The complex conjugate: the imaginary part with its sign changed.
inline TYPE conjugate(TYPE value)
{
    return TYPE(value[0], -value[1]);
}

//: cmul
// a * b, of complex numbers.
inline TYPE cmul(TYPE a, TYPE b)
{
    return TYPE(MULTIPLY_ADD(a[0], b[0], -a[1] * b[1]), MULTIPLY_ADD(a[0], b[1], a[1] * b[0]));
}

//: cfma
// a * b + c, of complex numbers: two multiply-adds for each part.
inline TYPE cfma(TYPE a, TYPE b, TYPE c)
{
    const REAL re = MULTIPLY_ADD(a[0], b[0], MULTIPLY_ADD(-a[1], b[1], c[0]));
    const REAL im = MULTIPLY_ADD(a[0], b[1], MULTIPLY_ADD(a[1], b[0], c[1]));
    return TYPE(re, im);
}

//: bfloat16_to_float
// By its bits: the conversion of its class calls a library, which run-time compilation does not link.
inline float bfloat16_to_float(sycl::ext::oneapi::bfloat16 value)
{
    return sycl::bit_cast<float>(unsigned(sycl::bit_cast<unsigned short>(value)) << 16);
}

//: float_to_bfloat16
// By its bits, for the same reason: rounded to nearest; NaN stays NaN.
inline sycl::ext::oneapi::bfloat16 float_to_bfloat16(float value)
{
    const unsigned bits = sycl::bit_cast<unsigned>(value);
    const unsigned rounded = bits + 0x7fff + (bits >> 16 & 1);
    const unsigned kept = value == value ? rounded : bits | 0x400000;
    return sycl::bit_cast<sycl::ext::oneapi::bfloat16>(static_cast<unsigned short>(kept >> 16));
}

//: half_bits_to_float
// float16 by its bits: sign, five bits of exponent, ten of fraction.
inline float half_bits_to_float(std::uint16_t bits)
{
    const unsigned sign = (bits & 0x8000u) << 16;
    const unsigned magnitude = bits & 0x7fffu;
    if (magnitude < 0x400u) { // in steps of 2^-24, too small for an exponent of its own
        const float small = float(magnitude) * 5.9604644775390625e-8f;
        return sign ? -small : small;
    }
    // Infinities and NaN have the largest exponent here and there.
    const unsigned exponent = magnitude < 0x7c00u ? 0x38000000u : 0x70000000u;
    return sycl::bit_cast<float>(sign | ((magnitude << 13) + exponent));
}

//: float_to_half_bits
// A float as the bits of float16, rounded to nearest, ties to even; NaN stays NaN.
inline std::uint16_t float_to_half_bits(float value)
{
    const unsigned bits = sycl::bit_cast<unsigned>(value);
    const unsigned sign = bits >> 16 & 0x8000u;
    const unsigned magnitude = bits & 0x7fffffffu;
    unsigned kept = 0x7e00u;
    if (magnitude < 0x38800000u) { // below 2^-14: a sum with 0.5 is rounded to steps of 2^-24
        kept = sycl::bit_cast<unsigned>(sycl::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    } else if (magnitude < 0x477ff000u) {
        kept = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    } else if (magnitude <= 0x7f800000u) { // from 65520 on
        kept = 0x7c00u;
    }
    return static_cast<std::uint16_t>(sign | kept);
}

//: bfloat16_bits_to_float
// bfloat16 by its bits, the upper half of a float's.
inline float bfloat16_bits_to_float(std::uint16_t bits)
{
    return sycl::bit_cast<float>(unsigned(bits) << 16);
}

//: float_to_bfloat16_bits
// A float as the bits of bfloat16, rounded to nearest, ties to even; NaN stays NaN.
inline std::uint16_t float_to_bfloat16_bits(float value)
{
    const unsigned bits = sycl::bit_cast<unsigned>(value);
    const unsigned rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    const unsigned kept = value == value ? rounded : bits | 0x400000u;
    return static_cast<std::uint16_t>(kept >> 16);
}

//: copy
// WIDTH neighbouring elements, at any alignment; sycl::vec::load would take one after the other.
typedef WORD VECTOR __attribute__((vector_size(BYTES), aligned(SIZE), may_alias));
inline void copyWIDTH(TO *to, const SOURCE *from)
{
    *reinterpret_cast<VECTOR *>(to) = *reinterpret_cast<const VECTOR *>(from);
}

//: load
// WIDTH neighbouring elements to registers, in their type.
inline void copyWIDTH(TO *to, const SOURCE *from)
{
    SOURCE elements[WIDTH];
    copyWIDTH(elements, from);
    for (int e = 0; e < WIDTH; ++e) {
        to[e] = CONVERT(elements[e]);
    }
}

//: store
// WIDTH neighbouring elements from registers, in the type of memory.
inline void copyWIDTH(TO *to, const SOURCE *from)
{
    TO elements[WIDTH];
    for (int e = 0; e < WIDTH; ++e) {
        elements[e] = CONVERT(from[e]);
    }
    copyWIDTH(to, elements);
}

//: load_vector
// A vector from memory, at any alignment.
inline VECTOR loadWIDTH(const ELEMENT *from)
{
    VECTOR vector;
    __builtin_memcpy(static_cast<void *>(&vector), from, sizeof(vector));
    return vector;
}

//: store_vector
// A vector to memory, at any alignment.
inline void store(const VECTOR &vector, ELEMENT *to)
{
    __builtin_memcpy(to, &vector, sizeof(vector));
}

//: at
// So many bytes into a matrix.
inline const float *at(const float *matrix, int bytes)
{
    return reinterpret_cast<const float *>(reinterpret_cast<const char *>(matrix) + bytes);
}

//: load_element
// An element of a matrix. Its place is unsigned, since compilers make the loop counters in a signed
// one 64 bits wide, and that takes registers.
inline float load(const float *matrix, unsigned place)
{
    return matrix[place];
}

//: atomic_add
// Adds an element to global memory, in one step.
inline void atomic_add(float *to, float value)
{
    sycl::atomic_ref<float, sycl::memory_order::relaxed, sycl::memory_scope::device,
                     sycl::access::address_space::global_space>(*to) += value;
}
