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
