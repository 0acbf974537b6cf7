// As much of HIP's header as emitted files take: the type, and its conversions.
#pragma once

#include <hip/hip_runtime.h>

struct __hip_bfloat16
{
    __bf16 value;
    __hip_bfloat16() = default;
    __device__ explicit __hip_bfloat16(float other) : value(__bf16(other)) {}
    __device__ operator float() const { return float(value); }
};
