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
        to[e] = TO(elements[e]);
    }
}

//: store
// WIDTH neighbouring elements from registers, in the type of memory.
inline void copyWIDTH(TO *to, const SOURCE *from)
{
    TO elements[WIDTH];
    for (int e = 0; e < WIDTH; ++e) {
        elements[e] = TO(from[e]);
    }
    copyWIDTH(to, elements);
}

//: at
// So many bytes into a matrix.
inline const float *at(const float *matrix, int bytes)
{
    return reinterpret_cast<const float *>(reinterpret_cast<const char *>(matrix) + bytes);
}
