// One product on a SYCL device, by a header that gemmgen wrote. CMakeLists.txt emits it.
#include <algorithm>
#include <cstdio>

#include <sycl/sycl.hpp>

#include "tile_8x8.hpp"

int main()
{
    const int m = 300, n = 200, k = 100;
    sycl::queue queue;
    float *a = sycl::malloc_shared<float>(m * k, queue);
    float *b = sycl::malloc_shared<float>(k * n, queue);
    float *c = sycl::malloc_shared<float>(m * n, queue);
    std::fill(a, a + m * k, 1.0f);
    std::fill(b, b + k * n, 2.0f);

    // C = 1 * A * B + 0 * C, all three by rows without gaps.
    tile_8x8(queue, m, n, k, 1.0f, a, k, b, n, 0.0f, c, n).wait();

    const bool is_right = std::all_of(c, c + m * n, [](float x) { return x == 200.0f; });
    std::puts(is_right ? "right" : "wrong");
    for (float *each : {a, b, c}) {
        sycl::free(each, queue);
    }
    return is_right ? 0 : 1;
}
