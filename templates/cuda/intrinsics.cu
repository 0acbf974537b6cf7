//: copy2
// 2 neighbouring elements; both addresses are multiples of 8 bytes.
__device__ __forceinline__ void copy2(float *to, const float *from)
{
    *reinterpret_cast<float2 *>(to) = *reinterpret_cast<const float2 *>(from);
}

//: copy4
// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

//: async_copy
// Begins a copy of 4 bytes to shared memory.
__device__ __forceinline__ void async_copy(float *to, const float *from)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 ::"r"(address), "l"(from) : "memory");
}

//: async_copy2
// Begins a copy of 8 bytes to shared memory.
__device__ __forceinline__ void async_copy2(float *to, const float *from)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;"
                 ::"r"(address), "l"(from) : "memory");
}

//: async_copy4
// Begins a copy of 16 bytes to shared memory.
__device__ __forceinline__ void async_copy4(float *to, const float *from)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 ::"r"(address), "l"(from) : "memory");
}

//: async_copy_inside
// Begins a copy of 4 bytes to shared memory; past `inside` elements it writes zeros.
__device__ __forceinline__ void async_copy_inside(float *to, const float *from, int inside)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 ::"r"(address), "l"(from), "r"(inside * 4) : "memory");
}

//: async_copy2_inside
// Begins a copy of 8 bytes to shared memory; past `inside` elements it writes zeros.
__device__ __forceinline__ void async_copy2_inside(float *to, const float *from, int inside)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 ::"r"(address), "l"(from), "r"(inside * 4) : "memory");
}

//: async_copy4_inside
// Begins a copy of 16 bytes to shared memory; past `inside` elements it writes zeros.
__device__ __forceinline__ void async_copy4_inside(float *to, const float *from, int inside)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(address), "l"(from), "r"(inside * 4) : "memory");
}

//: async_commit
// Makes a group of the copies begun since the last.
__device__ __forceinline__ void async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

//: async_wait
// Waits until at most `pending` groups, the newest, are under way.
template <int pending>
__device__ __forceinline__ void async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

//: mbarrier_init
// Makes a barrier in shared memory ready, whose phases are over when `arrivals` threads have come.
__device__ __forceinline__ void mbarrier_init(unsigned long long *barrier, int arrivals)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
}

//: mbarrier_arrive
// This thread has come.
__device__ __forceinline__ void mbarrier_arrive(unsigned long long *barrier)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
}

//: mbarrier_arrive_copies
// This thread comes when all copies that it has begun are there.
__device__ __forceinline__ void mbarrier_arrive_copies(unsigned long long *barrier)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address) : "memory");
}

//: mbarrier_wait
// Waits until the phase of this parity is over.
__device__ __forceinline__ void mbarrier_wait(unsigned long long *barrier, int parity)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    unsigned over;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(over) : "r"(address), "r"(parity) : "memory");
    } while (!over);
}
