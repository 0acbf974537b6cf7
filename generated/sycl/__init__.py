"""The presets' kernels, ready to call: each `<name>.cpp` beside this file is importable by its name.

    from gemmgen.generated.sycl import sg16_block_16x2
    c = sg16_block_16x2(a, b)

What is compiled is the text of the file, by the first call. Without a SYCL runtime the text can be had all the same, as
`sg16_block_16x2.source.text`, and a call says what to install. A SYCL project includes `<name>.hpp`, which holds the
same kernel and a launcher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen.api import shipped

if TYPE_CHECKING:
    from gemmgen.runtime.sycl import SyclKernel

__all__ = shipped.names(__name__, ".cpp")  # noqa: PLE0605


def __getattr__(name: str) -> SyclKernel:
    source = shipped.source(__name__, ".cpp", "sycl", name, "kernel")
    from gemmgen.api import SyclKernel

    kernel = SyclKernel(source)
    globals()[name] = kernel
    return kernel


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
