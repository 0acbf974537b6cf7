//: includes_with_maps
#ifndef __CUDACC_RTC__
#include <cuda.h>
#include <cuda_runtime.h>
#elif !defined(GEMMGEN_TENSOR_MAP)
#define GEMMGEN_TENSOR_MAP
struct alignas(64) CUtensorMap
{
    unsigned long long words[16];
};
#endif

//: conjugate
// The complex conjugate: the imaginary part with its sign changed.
__device__ __forceinline__ TYPE conjugate(TYPE value)
{
    return make_TYPE(value.x, -value.y);
}

//: cadd
// a + b, of complex numbers.
__device__ __forceinline__ TYPE cadd(TYPE a, TYPE b)
{
    return make_TYPE(a.x + b.x, a.y + b.y);
}

//: cmul
// a * b, of complex numbers.
__device__ __forceinline__ TYPE cmul(TYPE a, TYPE b)
{
    return make_TYPE(MULTIPLY_ADD(a.x, b.x, -a.y * b.y), MULTIPLY_ADD(a.x, b.y, a.y * b.x));
}

//: cfma
// a * b + c, of complex numbers: two multiply-adds for each part.
__device__ __forceinline__ TYPE cfma(TYPE a, TYPE b, TYPE c)
{
    const REAL re = MULTIPLY_ADD(a.x, b.x, MULTIPLY_ADD(-a.y, b.y, c.x));
    const REAL im = MULTIPLY_ADD(a.x, b.y, MULTIPLY_ADD(a.y, b.x, c.y));
    return make_TYPE(re, im);
}

//: copy
// ELEMENTS; both addresses are multiples of BYTES bytes.
__device__ __forceinline__ void copyWIDTH(TO *to, const SOURCE *from)
{
    *reinterpret_cast<VECTOR *>(to) = *reinterpret_cast<const VECTOR *>(from);
}

//: copy_from_anywhere
// ELEMENTS that begin anywhere; `to` is a multiple of BYTES bytes. They are cut out of
// the two vectors that do begin on such multiples and have a part of them. Those must be there as a
// whole, and nobody may write to them meanwhile.
__device__ __forceinline__ void copyWIDTH_from_anywhere(TO *to, const SOURCE *from)
{
    const unsigned past = unsigned(reinterpret_cast<unsigned long long>(from) % BYTES);
    const VECTOR *around = reinterpret_cast<const VECTOR *>(from - past / sizeof(SOURCE));
    const VECTOR low = __ldg(around);
    const VECTOR high = __ldg(around + 1);
    unsigned words[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    #pragma unroll
    for (int i = 0; i < 6; ++i) {
        words[i] = past & 8 ? words[i + 2] : words[i];
    }
    #pragma unroll
    for (int i = 0; i < 5; ++i) {
        words[i] = past & 4 ? words[i + 1] : words[i];
    }
    const unsigned bits = past % 4 * 8;
    *reinterpret_cast<VECTOR *>(to) = VECTOR{
        __funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
        __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits)};
}

//: load
// ELEMENTS to registers, in their type; `from` is a multiple of BYTES bytes.
__device__ __forceinline__ void copyWIDTH(TO *to, const SOURCE *from)
{
    __align__(BYTES) SOURCE elements[WIDTH];
    copyWIDTH(elements, from);
    #pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
        to[e] = TO(elements[e]);
    }
}

//: store
// ELEMENTS from registers, in the type of memory; `to` is a multiple of BYTES bytes.
__device__ __forceinline__ void copyWIDTH(TO *to, const SOURCE *from)
{
    __align__(BYTES) TO elements[WIDTH];
    #pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
        elements[e] = TO(from[e]);
    }
    copyWIDTH(to, elements);
}

//: async_copy
// Begins a copy of BYTES bytes to shared memory.
__device__ __forceinline__ void async_copyWIDTH(TO *to, const SOURCE *from)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.CACHE.shared.global [%0], [%1], BYTES;"
                 ::"r"(address), "l"(from) : "memory");
}

//: async_copy_inside
// Begins a copy of BYTES bytes to shared memory; past `inside` elements it writes zeros.
__device__ __forceinline__ void async_copyWIDTH_inside(TO *to, const SOURCE *from, int inside)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.CACHE.shared.global [%0], [%1], BYTES, %2;"
                 ::"r"(address), "l"(from), "r"(inside * SIZE) : "memory");
}

//: atomic_add
// Adds an element to global memory, in one step.
__device__ __forceinline__ void atomic_add(float *to, const float *from)
{
    atomicAdd(to, *from);
}

//: atomic_add2
// Adds 2 neighbouring elements to global memory, each in one step; `to` is a multiple of 8 bytes.
__device__ __forceinline__ void atomic_add2(float *to, const float *from)
{
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};"
                 ::"l"(to), "f"(from[0]), "f"(from[1]) : "memory");
}

//: atomic_add4
// Adds 4 neighbouring elements to global memory, each in one step; `to` is a multiple of 16 bytes.
__device__ __forceinline__ void atomic_add4(float *to, const float *from)
{
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 ::"l"(to), "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]) : "memory");
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
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 ::"r"(address), "r"(arrivals) : "memory");
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

//: kernels_release
// Lets the next kernel's blocks begin, once every block of this one has come here.
__device__ __forceinline__ void kernels_release()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

//: kernels_await
// Waits until the kernel before is over; what it has written is there.
__device__ __forceinline__ void kernels_await()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

//: load_a4
// Of A, eight rows and eight others, both 32 bytes deep in K, as four matrices: lane 8 q + i
// says where line i of matrix q begins. Each lane gets PART of each,
// first those of the eight, then those of the others.
__device__ __forceinline__ void FUNCTION(ELEMENT *to, const ELEMENT *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    const unsigned address = unsigned(__cvta_generic_to_shared(line));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4TRANS.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[2]), "=r"(words[1]), "=r"(words[3])
                 : "r"(address) : "memory");
}

//: load_b2
// Of B, eight columns, 32 bytes deep in K, as two matrices: lane 8 q + i says where line i of
// matrix q begins. Each lane gets PART of each.
__device__ __forceinline__ void FUNCTION(ELEMENT *to, const ELEMENT *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    const unsigned address = unsigned(__cvta_generic_to_shared(line));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2TRANS.shared.b16 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1]) : "r"(address) : "memory");
}

//: load_b4
// Of B, eight columns and eight others, both 32 bytes deep in K, as four matrices: lane 8 q + i
// says where line i of matrix q begins. Each lane gets PART of each.
__device__ __forceinline__ void FUNCTION(ELEMENT *to, const ELEMENT *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    const unsigned address = unsigned(__cvta_generic_to_shared(line));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4TRANS.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address) : "memory");
}

//: load_bytes4
// Four matrices of eight lines of 16 bytes: lane 8 q + i says where line i of matrix q begins. Each
// lane gets two neighbours of each of two lines of every matrix: it turns pairs of bytes.
__device__ __forceinline__ void FUNCTION(ELEMENT *to, const ELEMENT *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    const unsigned address = unsigned(__cvta_generic_to_shared(line));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4TRANS.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address) : "memory");
}

//: to_tf32
// A number with 10 bits after the point, the nearest one; of two as near, the larger.
__device__ __forceinline__ float to_tf32(float value)
{
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return __uint_as_float(bits);
}

//: head_in_tf32
// A number with 10 bits after the point; the others are cut off.
__device__ __forceinline__ float head_in_tf32(float value)
{
    return __uint_as_float(__float_as_uint(value) & 0xffffe000u);
}

//: finite_rest_in_tf32
// What a number has more than the 10 bits after the point that TF32 has, and 2^-23 of it besides: of
// the number's sign, zero for zero alone. NaN of what is not finite.
__device__ __forceinline__ float finite_rest_in_tf32(float value)
{
    const float head = __uint_as_float(__float_as_uint(value) & 0xffffe000u);
    return fmaf(value, 0x1.000002p0f, -head);
}

//: rest_in_tf32
// What a number has more than its head, and 2^-23 of it besides: of the number's sign, zero for zero
// alone, so that infinite numbers make no NaN with it. What is not finite is its own rest: of Inf - Inf
// and of what is as large as its number or smaller, bits as integers, the number is the least.
__device__ __forceinline__ float rest_in_tf32(float value, float head)
{
    const int rest = __float_as_int(fmaf(value, 0x1.000002p0f, -head));
    return __int_as_float(min(rest, __float_as_int(value)));
}

//: mma
// sums += a * b by a warp, 16 x DEPTH times DEPTH x 8. Of sums and a, a lane has two rows, `top`
// and `bottom`, eight apart; of b it has a column.
__device__ __forceinline__ void FUNCTION(TOTAL *top, TOTAL *bottom, const ELEMENT *a_top,
                                     const ELEMENT *a_bottom, const ELEMENT *b)
{
    const unsigned *a0 = reinterpret_cast<const unsigned *>(a_top);
    const unsigned *a1 = reinterpret_cast<const unsigned *>(a_bottom);
    const unsigned *b0 = reinterpret_cast<const unsigned *>(b);
    asm("mma.sync.aligned.m16n8kDEPTH.row.col.KIND.SHORT.SHORT.KIND {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+HOLD"(top[0]), "+HOLD"(top[1]), "+HOLD"(bottom[0]), "+HOLD"(bottom[1])
        : "r"(a0[0]), "r"(a1[0]), "r"(a0[1]), "r"(a1[1]), "r"(b0[0]), "r"(b0[1]));
}

//: mma_f64
// sums += a * b by a warp, 16 x 8 times 8 x 8. Of sums and a, a lane has two rows, `top` and
// `bottom`, eight apart; of b it has a column.
__device__ __forceinline__ void FUNCTION(double *top, double *bottom, const double *a_top,
                                     const double *a_bottom, const double *b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(top[0]), "+d"(top[1]), "+d"(bottom[0]), "+d"(bottom[1])
        : "d"(a_top[0]), "d"(a_bottom[0]), "d"(a_top[1]), "d"(a_bottom[1]), "d"(b[0]), "d"(b[1]));
}

//: mma_f64_by_eight
// sums += a * b by a warp, 8 x 4 times 4 x 8.
__device__ __forceinline__ void mma_m8n8k4(double *sums, double a, double b)
{
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(sums[0]), "+d"(sums[1]) : "d"(a), "d"(b));
}

// sums += a * b by a warp, 16 x 8 times 8 x 8. Of sums and a, a lane has two rows, `top` and
// `bottom`, eight apart; of b it has a column.
__device__ __forceinline__ void FUNCTION(double *top, double *bottom, const double *a_top,
                                     const double *a_bottom, const double *b)
{
    mma_m8n8k4(top, a_top[0], b[0]);
    mma_m8n8k4(bottom, a_bottom[0], b[0]);
    mma_m8n8k4(top, a_top[1], b[1]);
    mma_m8n8k4(bottom, a_bottom[1], b[1]);
}

//: mbarrier_expect
// This thread has come, and so many bytes are to come by copies of boxes.
__device__ __forceinline__ void mbarrier_expect(unsigned long long *barrier, int bytes)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(address), "r"(bytes) : "memory");
}

//: mbarriers_ready
// Lets copies see the barriers that this thread has made ready.
__device__ __forceinline__ void mbarriers_ready()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

//: fetch_map
// Lets a map be on its way to where copies look for it.
__device__ __forceinline__ void fetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

//: copy_box
// Begins a copy of a box of a matrix to shared memory; outside of the matrix it brings zeros. The
// barrier counts its bytes.
__device__ __forceinline__ void copy_box(void *to, const CUtensorMap *matrix, int along, int line,
                                         WHICHunsigned long long *barrier)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    const unsigned counter = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("cp.async.bulk.tensor.RANKd.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3FIFTH}], [%4];"
                 ::"r"(address), "l"(matrix), "r"(along), "r"(line), "r"(counter)GIVEN : "memory");
}

//: copy_box_once
// Begins a copy of a box of a matrix to shared memory, zeros for what lies outside, and tells caches
// that nobody reads it again: they let go of it first. The barrier counts its bytes.
__device__ __forceinline__ void copy_box_once(void *to, const CUtensorMap *matrix, int along,
                                              int line, WHICHunsigned long long *barrier)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    const unsigned counter = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("{\n"
                 ".reg .b64 once;\n"
                 "createpolicy.fractional.L2::evict_first.b64 once, 1.0;\n"
                 "cp.async.bulk.tensor.RANKd.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3FIFTH}], [%4], once;\n"
                 "}"
                 ::"r"(address), "l"(matrix), "r"(along), "r"(line), "r"(counter)GIVEN : "memory");
}

//: store_box
// Begins the store of a box to a matrix; what lies outside of the matrix is left out.
__device__ __forceinline__ void store_box(const CUtensorMap *matrix, int along, int line,
                                          WHICHconst void *from)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(from));
    asm volatile("cp.async.bulk.tensor.RANKd.global.shared::cta.bulk_group [%0, {%1, %2FOURTH}], [%3];"
                 ::"l"(matrix), "r"(along), "r"(line), "r"(address)GIVEN : "memory");
}

//: stores_fence
// Lets stores of boxes see what this thread has written to shared memory.
__device__ __forceinline__ void stores_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

//: stores_commit
// Makes a group of the stores of boxes that this thread has begun since the last.
__device__ __forceinline__ void stores_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

//: stores_wait
// Waits until at most `pending` groups of this thread's stores, the newest, still read shared memory.
template <int pending>
__device__ __forceinline__ void stores_wait()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

//: swizzled
// Where a place in lines of LINE bytes that swizzle lies in shared memory: the number of its line, of
// eight, says which parts of 16 bytes change places.
__device__ __forceinline__ unsigned swizzled(const void *place)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(place));
    return address ^ (address >> 3 & MASK);
}

//: put_matrices
// A warp's sums to lines that swizzle, as ELEMENT: each thread's of two rows, eight apart, two
// neighbours and two more eight columns on. It names a line of one of four matrices, LINES.
__device__ __forceinline__ void FUNCTION(ELEMENT *line, const SUM *upper,
                                BELOW const SUM *lower)
{
    const PAIR pairs[4] = {
        MAKE(upper[0], upper[1]), MAKE(lower[0], lower[1]),
        MAKE(upper[2], upper[3]), MAKE(lower[2], lower[3])};
    const unsigned *words = reinterpret_cast<const unsigned *>(pairs);
    asm volatile("stmatrix.sync.aligned.m8n8.x4TRANS.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(swizzled(line)), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}

//: put2
// Two neighbours to a line that swizzles.
__device__ __forceinline__ void put2(ELEMENT *place, const ELEMENT *from)
{
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};"
                 ::"r"(swizzled(place)), "HOLD"(from[0]), "HOLD"(from[1]) : "memory");
}

//: put2_turned
// Two neighbours to lines that swizzle, one below the other.
__device__ __forceinline__ void put2_turned(ELEMENT *place, const ELEMENT *from)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(swizzled(place)), "HOLD"(from[0]) : "memory");
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(swizzled(place + LENGTH)), "HOLD"(from[1]) : "memory");
}

//: registers_more
// Takes registers that others give up, until this thread has so many.
template <int registers>
__device__ __forceinline__ void registers_more()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

//: registers_fewer
// Gives up all registers but so many.
template <int registers>
__device__ __forceinline__ void registers_fewer()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

//: copy_box_to_all
// Begins the copy of a box of a matrix to the same place in both blocks of a cluster, line by line,
// zeros for what lies outside. The barrier at the same place in each counts the bytes that come.
__device__ __forceinline__ void copy_box_to_all(void *to, const CUtensorMap *matrix, int along, int line,
                                                WHICHunsigned long long *barrier)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    const unsigned counter = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("cp.async.bulk.tensor.RANKd.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3SIXTH}], [%4], %5;"
                 ::"r"(address), "l"(matrix), "r"(along), "r"(line), "r"(counter),
                   "h"((unsigned short)(3))GIVEN : "memory");
}

//: cluster_barrier
// All threads of the cluster's blocks meet. It orders no memory, but mbarriers were fenced.
__device__ __forceinline__ void cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
    asm volatile("barrier.cluster.wait;" ::: "memory");
}

//: cluster_arrive
// Says to the cluster's other blocks that this thread has come so far.
__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

//: cluster_wait
// Waits until all threads of the cluster's blocks have said so.
__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait;" ::: "memory");
}

//: cluster_sync
// Threads of the cluster's blocks meet, all but those that are through with everything; what each has
// written before the others see after.
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

//: in_block
// The array in shared memory that another block of the cluster has where this one has its own.
template <typename Array>
__device__ __forceinline__ Array &in_block(Array &own, int rank)
{
    Array *there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(&own), "r"(rank));
    return *there;
}

//: mbarrier_arrive_at
// This thread has come, to a block of the cluster that has this barrier at the same place. It says
// nothing of other memory, which would cost a wait for all of it.
__device__ __forceinline__ void mbarrier_arrive_at(unsigned long long *barrier, int rank)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" ::"r"(address), "r"(rank) : "memory");
}

//: role_barrier
// These threads meet, and not the others of the block; barrier 0 is that of all.
template <int threads>
__device__ __forceinline__ void role_barrier()
{
    asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory");
}

//: matrix_tile
// What matrix instructions take a tile by: lines of LINE bytes that swizzle, EIGHT bytes from eight of
// them to the next eight, `block` bytes from one block of lines to the next. It counts in 16 bytes.
template <int block>
__device__ __forceinline__ unsigned long long FUNCTION(const void *tile)
{
    const unsigned long long address = __cvta_generic_to_shared(tile);
    return address >> 4 | (unsigned long long)(block / 16) << 16 | STRIDEull << 32 | LAYOUTull << 62;
}

//: own_matrix_tile
// What matrix instructions take a tile by: lines of LINE bytes that swizzle, EIGHT bytes from eight of
// them to the next eight, `block` bytes from one block of lines to the next. It counts in 16 bytes.
// In a cluster the upper bits of an address say whose memory it is in, which is no part of the place.
template <int block>
__device__ __forceinline__ unsigned long long FUNCTION(const void *tile)
{
    const unsigned long long address = __cvta_generic_to_shared(tile) & 0x3ffff;
    return address >> 4 | (unsigned long long)(block / 16) << 16 | STRIDEull << 32 | LAYOUTull << 62;
}

//: wgmma_fence_held
// Comes before matrix instructions whose sums, or whose `a`, other instructions have written.
template <typename Array>
__device__ __forceinline__ void wgmma_fence(Array &a)
{
    unsigned *words = reinterpret_cast<unsigned *>(a);
    #pragma unroll
    for (int i = 0; i < int(sizeof(a) / sizeof(unsigned)); ++i) {
        asm volatile("" : "+r"(words[i])::"memory");
    }
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

//: wgmma_fence
// Comes before matrix instructions whose sums other instructions have written.
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

//: wgmma_commit
// Makes a group of the matrix instructions begun since the last.
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

//: wgmma_wait
// Waits until at most `pending` groups, the newest, are under way.
template <int pending>
__device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

//: lane_sums
// Four of a thread's sums, as instructions have them: two neighbours of a row, two of the other.
#define MACRO(j) "+HOLD"(sums[0][j]), "+HOLD"(sums[0][j + 1]), "+HOLD"(sums[1][j]), "+HOLD"(sums[1][j + 1])

//: wgmma_wait_all
// Waits until no matrix instruction is under way: from here on these sums may be read.
__device__ __forceinline__ void wgmma_wait(TOTAL (*sums)[VALUES])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;"
                 : OPERANDS
                 :: "memory");
}

//: wgmma_held
// sums += a * b by a warpgroup, 64 x DEPTH times DEPTH x COLS, b a tile in shared memory; it only
// begins that. Of the sums and of a, which is in registers, a thread has two rows, eight apart.
__device__ __forceinline__ void FUNCTION(TOTAL (*sums)[VALUES], const ELEMENT *a_top,
                                         const ELEMENT *a_bottom, unsigned long long b)
{
    const unsigned *a0 = reinterpret_cast<const unsigned *>(a_top);
    const unsigned *a1 = reinterpret_cast<const unsigned *>(a_bottom);
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.eq.u32 add, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64nCOLSkDEPTH.KIND.SHORT.SHORT {"
                 NAMED
                 "}, {A_PLACE}, %B_PLACE, addMODES;\n"
                 "}"
                 : OPERANDS
                 : "r"(a0[0]), "r"(a1[0]), "r"(a0[1]), "r"(a1[1]), "l"(b));
}

//: wgmma
// sums += a * b by a warpgroup, 64 x DEPTH times DEPTH x COLS, of tiles in shared memory; it only
// begins that. Of the sums a thread has two rows, eight apart.
__device__ __forceinline__ void FUNCTION(TOTAL (*sums)[VALUES], unsigned long long a,
                                                 unsigned long long b)
{
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.eq.u32 add, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64nCOLSkDEPTH.KIND.SHORT.SHORT {"
                 NAMED
                 "}, %A_PLACE, %B_PLACE, addMODES;\n"
                 "}"
                 : OPERANDS
                 : "l"(a), "l"(b));
}
