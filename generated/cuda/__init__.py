"""The presets' kernels, ready to call: each `<name>.cu` beside this file is importable by its name.

    from gemmgen.generated.cuda import smem_8x8_double
    c = smem_8x8_double(a, b)

What is compiled is the text of the file, by the first call, for the GPU that the arrays lie on. Without CuPy the text
can be had all the same, as `smem_8x8_double.source.text`, and a call says what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.api import shipped

if TYPE_CHECKING:
    from gemmgen.runtime.cuda import CudaKernel

__all__ = shipped.names(__name__, ".cu")  # noqa: PLE0605


def __getattr__(name: str) -> CudaKernel:
    source = shipped.source(__name__, ".cu", "cuda", name)
    from gemmgen.api import CudaKernel

    kernel = CudaKernel(source)
    globals()[name] = kernel
    return kernel


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
