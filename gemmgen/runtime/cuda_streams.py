"""Streams of CUDA, whoever made them, and which of them a call belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from gemmgen.errors import SpecError
from gemmgen.runtime.cuda_arrays import GpuMatrix, loaded


@dataclass(frozen=True, slots=True)
class ForeignStream:
    """A `cudaStream_t` that another library owns."""

    pointer: int

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol's version, and the stream."""
        return 0, self.pointer


@contextmanager
def on_device(number: int) -> Iterator[None]:
    """Make a GPU the current one, for CUDA's runtime and so for torch too."""
    import cupy

    with cupy.cuda.Device(number):
        yield


@contextmanager
def on_stream(pointer: int) -> Iterator[None]:
    """Make a stream CuPy's current one."""
    import cupy

    if int(cupy.cuda.get_current_stream().ptr) == pointer:
        yield
        return
    stream = cupy.cuda.Stream.from_external(ForeignStream(pointer)) if pointer else cupy.cuda.Stream.null
    with stream:
        yield


def stream_pointer(stream: object, matrices: list[GpuMatrix], device: int) -> int:
    """The `cudaStream_t` to launch on.

    Raises: SpecError for something else than a stream, a stream of another GPU, and where CuPy and torch, whose arrays
    are mixed, have different current streams.
    """
    if stream is None:
        return _current_stream({matrix.maker for matrix in matrices}, device)
    where = getattr(stream, "device_id", None)  # CuPy's; -1 for one that belongs to none
    if loaded("torch.cuda", "Stream", stream):
        where = getattr(stream, "device_index", None)
    if isinstance(where, int) and where not in (-1, device):
        raise SpecError(f"the stream belongs to GPU {where}, but the arrays lie on GPU {device}: pass one of that GPU")
    for attribute in ("ptr", "cuda_stream"):  # CuPy's, torch's
        if isinstance(pointer := getattr(stream, attribute, None), int):
            return pointer
    protocol = getattr(stream, "__cuda_stream__", None)
    if callable(protocol):
        return int(cast("tuple[int, int]", protocol())[1])
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    raise SpecError(
        f"stream is of type {type(stream).__name__}: pass a stream of CuPy or torch, or a cudaStream_t as an integer"
    )


def _current_stream(makers: set[str], device: int) -> int:
    import cupy

    with cupy.cuda.Device(device):
        own = int(cupy.cuda.get_current_stream().ptr)
    if "torch" not in makers:
        return own
    import torch

    theirs = int(torch.cuda.current_stream(device).cuda_stream)
    if "cupy" in makers and own != theirs:
        raise SpecError(
            "CuPy's and torch's arrays are mixed while their current streams differ, so that it is open which to wait "
            "for: pass stream="
        )
    return theirs
