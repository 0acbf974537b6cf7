"""The presets' kernels, ready to call: each `<name>.cl` beside this file is importable by its name.

    from gemmgen.generated.opencl import L3_SIMD_32x2_1x8
    c = L3_SIMD_32x2_1x8(a, b)

What is compiled is the text of the file. The device is chosen by the first call: the arrays' own for pyopencl
arrays, else one that has what the kernel requires.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmgen.runtime.opencl import CompiledKernel

__all__ = sorted(  # noqa: PLE0605
    entry.name.removesuffix(".cl") for entry in files(__name__).iterdir() if entry.name.endswith(".cl")
)


def __getattr__(name: str) -> CompiledKernel:
    if name not in __all__:
        near = get_close_matches(name, __all__, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module {__name__!r} has no kernel {name!r}{hint}")
    from gemmgen import driver, presets
    from gemmgen.runtime.api import CompiledKernel

    preset = presets.load(name)
    # The preset gives the arguments and the launch geometry; the text is the file's.
    source = driver.emit(preset.spec, preset.schedule, "opencl")
    text = files(__name__).joinpath(f"{name}.cl").read_text(encoding="utf-8")
    kernel = CompiledKernel(replace(source, text=text))
    globals()[name] = kernel
    return kernel


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
