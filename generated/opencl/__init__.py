"""The presets' kernels, ready to call: each `<name>.cl` beside this file is importable by its name.

    from gemmgen.generated.opencl import L3_SIMD_32x2_1x8
    c = L3_SIMD_32x2_1x8(a, b)

What is compiled is the text of the file. The device is chosen by the first call: the arrays' own for pyopencl
arrays, else one that has what the kernel requires. Without pyopencl the text can be had all the same, as
`L3_SIMD_32x2_1x8.source.text`, and a call says what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.api import shipped

if TYPE_CHECKING:
    from gemmgen.api.shipped import SourceAlone
    from gemmgen.runtime.opencl import CompiledKernel

__all__ = shipped.names(__name__, ".cl")  # noqa: PLE0605


def __getattr__(name: str) -> CompiledKernel | SourceAlone:
    kernel = shipped.opencl_kernel(shipped.source(__name__, ".cl", "opencl", name))
    globals()[name] = kernel
    return kernel


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
