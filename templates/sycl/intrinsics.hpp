//: at
// So many bytes into a matrix.
inline const float *at(const float *matrix, int bytes)
{
    return reinterpret_cast<const float *>(reinterpret_cast<const char *>(matrix) + bytes);
}

//: load
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
