// As much of HIP's header as emitted files take: the type, and its conversions.
#pragma once

#include <hip/hip_runtime.h>

struct __half
{
    _Float16 value;
    __half() = default;
    __device__ explicit __half(float other) : value(_Float16(other)) {}
    __device__ operator float() const { return float(value); }
};
