"""HIP C++17, for hipcc and clang: kernels for AMD's GPUs, and a launcher with C linkage that a C++ project can call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gemmgen.backends.clike import Words
from gemmgen.backends.simt import Simt


class Hip(Simt):
    """What is HIP's: its names. Of instructions it has those that CUDA has too."""

    words: ClassVar[Words] = Words("thread", "block", "global memory", "shared memory", "wavefront")
    name: ClassVar[str] = "hip"
    suffix: ClassVar[str] = ".hip"
    targets: ClassVar[tuple[str, ...]] = ("gfx1100", "gfx942")
    #: Its functions for matrix instructions are not written yet; a shuffle names the lanes that it goes through.
    lacks: ClassVar[frozenset[str]] = frozenset({"mfma", "free_sub_group_size"})
    types: ClassVar[Mapping[str, str]] = {**Simt.types, "bfloat16": "__hip_bfloat16"}
    type_headers: ClassVar[Mapping[str, str]] = {"float16": "hip/hip_fp16.h", "bfloat16": "hip/hip_bf16.h"}
    calls: ClassVar[Mapping[str, str]] = {
        **Simt.calls,
        # All lanes of a wavefront take part, and `width` of them are a sub-group.
        "broadcast": "__shfl({args}, {width})",
        "shuffle": "__shfl({args}, {width})",
        "shuffle_xor": "__shfl_xor({args}, {width})",
    }
    api: ClassVar[str] = "hip"
    header: ClassVar[str] = "hip/hip_runtime.h"
    rtc: ClassVar[str] = "__HIPCC_RTC__"
    #: HIP knows no error of its own for addresses.
    misaligned: ClassVar[str] = "hipErrorInvalidValue"
    multiprocessors: ClassVar[str] = "hipDeviceAttributeMultiprocessorCount"
    static_bytes: ClassVar[int] = 64 * 1024

    def function_address(self) -> str:
        return f"reinterpret_cast<const void *>({self.kernel.name})"

    def build_line(self) -> str:
        return f"hipcc -std=c++17 -O3 --offload-arch={self.target.name} -c {self.kernel.name}{self.suffix}"
