"""Whose arrays those of a call are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import numpy as np

from gemmgen.api.libraries import Library, NumPy, Standard, TorchHost
from gemmgen.errors import SpecError
from gemmgen.runtime.cuda_arrays import DLPACK_CUDA, GpuMatrix, TorchTensor, loaded
from gemmgen.runtime.views import is_device_array

Kind = Literal["NumPy", "pyopencl", "a GPU", "torch (CPU)", "DLPack (CPU)"]
_REMEDIES: dict[Kind, str] = {
    "pyopencl": "pyopencl.array.to_device(queue, x)",
    "a GPU": "cupy.asarray(x) or x.cuda()",
    "torch (CPU)": "torch.from_numpy(x)",
    "DLPack (CPU)": "its library's from_dlpack(x)",
    "NumPy": "np.asarray(x)",
}
_NUMPY = NumPy()


def library_of(values: Mapping[str, object], backend: str | None) -> Library:
    """The library of a call's arrays. Raises: SpecError where they are of several, or nothing runs on them."""
    kinds = {name: kind_of(value) for name, value in values.items() if value is not None}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name} is {kind}'s" for name, kind in kinds.items())
        there = next(remedy for kind, remedy in _REMEDIES.items() if kind in kinds.values())
        raise SpecError(f"arrays of two kinds are mixed ({listed}): make all of one kind, as by {there}")
    library = _library(next(iter(kinds.values()), "NumPy"), values)
    if backend is not None and backend not in library.backends:
        known = " or ".join(library.backends)
        remedy = ", or move the arrays to a GPU: cupy.asarray(x)" if backend == "cuda" else ""
        raise SpecError(f"backend {backend!r} does not take {library.name} arrays: use {known}{remedy}")
    return library


def kind_of(value: object) -> Kind:
    """Whose array it is; what is nobody's is left to NumPy."""
    if isinstance(value, np.ndarray):
        return "NumPy"
    if is_device_array(value):
        return "a GPU" if isinstance(value, GpuMatrix) else "pyopencl"
    if loaded("torch", "Tensor", value):
        return "torch (CPU)" if cast(TorchTensor, value).device.type == "cpu" else "a GPU"
    if loaded("cupy", "ndarray", value) or hasattr(value, "__cuda_array_interface__"):
        return "a GPU"
    where = getattr(value, "__dlpack_device__", None)
    if callable(where) and hasattr(value, "__array_namespace__"):
        return "a GPU" if cast("tuple[int, int]", where())[0] in DLPACK_CUDA else "DLPack (CPU)"
    return "NumPy"


def _library(kind: Kind, values: Mapping[str, object]) -> Library:
    match kind:
        case "pyopencl":
            from gemmgen.api.opencl_library import OpenCL

            return OpenCL()
        case "a GPU":
            from gemmgen.api.gpu_library import Gpu

            return Gpu(all(loaded("torch", "Tensor", value) for value in values.values() if value is not None))
        case "torch (CPU)":
            return TorchHost()
        case "DLPack (CPU)":
            return Standard(next(value for value in values.values() if value is not None))
    return _NUMPY
