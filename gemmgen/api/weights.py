"""Weights in fewer bits: `gemmgen.prepack` rounds a matrix once, and `gemm` takes it as `b`.

A kernel makes each element, `(q - zero) * scale`, as it loads it: a prologue (docs/weights.md). Scales, and zero points
if there are any, belong to a column, or to a group of neighbours along K in a column.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

import numpy as np
import numpy.typing as npt

from gemmgen.api.gemm_problems import FLAGS, factor_problems, flag_problems, is_set
from gemmgen.api.libraries import kind_of
from gemmgen.epilogue import GROUPS, OPERANDS, gate_of
from gemmgen.errors import DtypeError, SpecError
from gemmgen.ir.numeric import in_pairs, of_pairs
from gemmgen.records import dataclass
from gemmgen.runtime.views import mask_problems

Numbers = npt.NDArray[Any]
#: What a file begins with, and then the version of what follows: the length and the checksum of a header in JSON, the
#: header, the arrays.
MAGIC = b"GEMMGENW"
#: Bits of an element -> the version of the format that knows it. So a file of int8 is read by whoever reads version 1.
VERSIONS = {8: 1, 4: 2}
#: Bits of an element -> the type of the array that holds them: of int4, bytes of two neighbours along K.
TYPES: dict[int, type[np.generic]] = {8: np.int8, 4: np.uint8}
#: The fields before the header; the bytes that a header has at most; what each array begins on a multiple of.
_HEAD, MOST_HEADER, ALIGNED = struct.Struct("<8sIII"), 4096, 64
BITS = tuple(VERSIONS)
#: Types of activations.
ACTIVATIONS = ("float32", "float16", "bfloat16")
#: What does not go with such a `b`.
_WITHOUT = ("transpose_b", "conjugate_b", "prologue_b", "device_memory")


@dataclass(frozen=True, eq=False)
class Packed:
    """A matrix in fewer bits, [k, n]: `prepack` makes one, `load` reads one.

    Attributes:
        values: the elements, kept column by column: for few rows of activations kernels read lines along K. int8
            [k, n]; or, of 4 bits, uint8 [ceil(k / 2), n], the first of two neighbours along K in a byte's low half.
        scales: float32, [n], or [groups, n] with `group`.
        zeros: zero points, int8 of the scales' shape; None if the elements are symmetric.
        group: neighbours along K that share a scale; None for all of a column.
        k: rows; None for as many as `values` hold. Of 4 bits an odd number has to be named.
    """

    values: Numbers
    scales: Numbers
    zeros: Numbers | None = None
    group: int | None = None
    k: int | None = None
    _placed: dict[object, dict[str, object]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raises: SpecError with every problem."""
        if problems := [*self._problems()]:
            raise SpecError(problems)

    def _problems(self) -> list[str]:
        values, scales, zeros = cast("tuple[object, object, object]", (self.values, self.scales, self.zeros))
        if not _is_group(self.group):
            return [f"group = {self.group!r}: use None, for all of a column, or {', '.join(map(str, GROUPS))}"]
        is_matrix = isinstance(values, np.ndarray) and values.ndim == 2 and 0 not in values.shape
        if not is_matrix or cast("Numbers", values).dtype.type not in TYPES.values():
            return ["values are no int8 or uint8 matrix with elements: pass an array of NumPy, [k, n] or [k / 2, n]"]
        lines, each = cast("Numbers", values).shape[0], 8 // self.bits
        if type(self.k) not in (int, type(None)) or (self.k is not None and -(-self.k // each) != lines):
            return [
                f"k = {self.k!r} is not what {lines} rows of {each} elements each hold: leave it out, or correct it"
            ]
        k, n = self.shape
        if self.bits == 4 and k == 1:
            return ["k = 1 of 4 bits is half a byte, which kernels take for a whole one: use bits=8"]
        wanted = (n,) if self.group is None else (-(-k // self.group), n)
        problems = []
        if not isinstance(scales, np.ndarray) or scales.dtype != np.float32 or scales.shape != wanted:
            problems.append(f"scales are no float32 array of shape {wanted}: pass one for these values and this group")
        elif not np.isfinite(scales).all():
            problems.append("scales are not all finite: check what they were made of")
        if zeros is not None and (not isinstance(zeros, np.ndarray) or zeros.dtype != np.int8 or zeros.shape != wanted):
            problems.append(f"zeros are no int8 array of shape {wanted}: pass one, or None")
        elif zeros is not None and (zeros.min() < -largest(self.bits) - 1 or zeros.max() > largest(self.bits)):
            problems.append(f"zeros are beyond the {self.bits} bits of an element: pass some from -8 to 7")
        return problems

    def __repr__(self) -> str:
        """What it is, without its elements."""
        (k, n), scales = self.shape, "a column" if self.group is None else f"{self.group} of a column"
        zeros = "" if self.zeros is None else ", zero points"
        return f"<Packed {k}x{n}, int{self.bits}, a scale for {scales}{zeros}>"

    @property
    def bits(self) -> int:
        """Of an element."""
        return 4 if self.values.dtype == TYPES[4] else 8

    @property
    def shape(self) -> tuple[int, int]:
        """k and n."""
        rows, n = self.values.shape
        return self.k or rows * (8 // self.bits), n

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(x.nbytes for x in (self.values, self.scales, self.zeros) if x is not None)

    def dequantized(self) -> npt.NDArray[np.float32]:
        """The matrix that these elements stand for."""

        def each(x: Numbers) -> Numbers:
            return x if self.group is None else np.repeat(x, self.group, axis=0)[: self.shape[0]]

        values = of_pairs(self.values, 0, self.shape[0]) if self.bits == 4 else self.values
        shifted = values.astype(np.float32) - (0 if self.zeros is None else each(self.zeros).astype(np.float32))
        return (shifted * each(self.scales)).astype(np.float32)

    # --- as `b` of `gemm` -------------------------------------------------------------------------

    def multiplied(self, gemm: Callable[..., Any], a: Any, c: Any, options: dict[str, Any]) -> Any:
        """alpha * op(A) @ self + beta * C. Raises: SpecError, DtypeError."""
        problems = flag_problems({name: options.get(name, False) for name in FLAGS})
        problems += [f"{x} does not go with prepacked weights as b: leave it out" for x in _without(options)]
        if (gate := _gate(options.get("epilogue"))) is not None:
            problems.append(f"{gate} takes no prepacked weights, whose columns have scales each: pass b.dequantized()")
        dtype = str(getattr(a, "dtype", type(a).__name__)).removeprefix("torch.")
        is_typed = isinstance(a, Packed) or dtype in ACTIVATIONS
        if isinstance(a, Packed):
            problems.append("a is prepacked as well, and only b may be: pass a.dequantized()")
        elif not is_typed:
            problems.append(f"a of {dtype} with prepacked weights: cast it to one of {', '.join(ACTIVATIONS)}")
        extents = tuple(getattr(a, "shape", ()))
        k = extents[-2 if is_set(options.get("transpose_a")) and len(extents) > 1 else -1] if extents else None
        if k != self.shape[0]:
            problems.append(f"a has k = {k}, the prepacked weights k = {self.shape[0]}: transpose a, or cut it")
        factor_problems((options["alpha"], options["beta"]), c is not None, problems)
        if problems:
            raise (SpecError if is_typed else DtypeError)(problems)
        suffix = "" if self.group is None else f"_{self.group}"
        element = "b" if self.zeros is None else f"(b - b_zero{suffix})"
        arrays = self._like(a, suffix)
        chosen = {"prologue_b": f"{element} * b_scale{suffix}", **{k: x for k, x in arrays.items() if k != "values"}}
        return gemm(a, arrays["values"], c, **{**options, **chosen})

    def _like(self, a: Any, suffix: str) -> dict[str, object]:
        """The arrays where a lies, in its library; copied once."""
        kind = kind_of(a)
        place: object = kind
        if kind == "pyopencl":
            place = kind, a.queue.context.int_ptr
        elif hasattr(a, "device"):
            place = kind, type(a).__module__, str(a.device)
        if place not in self._placed:
            put = _putter(a)
            given = {"values": self.values.T, f"b_scale{suffix}": self.scales.reshape(-1)}
            if self.zeros is not None:
                given[f"b_zero{suffix}"] = self.zeros.reshape(-1)
            placed: dict[str, Any] = {name: put(np.ascontiguousarray(x)) for name, x in given.items()}
            self._placed[place] = {**placed, "values": placed["values"].T}
        return self._placed[place]

    # --- files ------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `load` reads. A file of that name is replaced as a whole. Raises: OSError."""
        named = {"values": self.values.T, "scales": self.scales, "zeros": self.zeros}
        arrays = {name: np.ascontiguousarray(x) for name, x in named.items() if x is not None}
        k, n = self.shape
        header = json.dumps(
            {
                "layout": "col",
                "k": k,
                "n": n,
                "bits": self.bits,
                "group": self.group,
                "arrays": {name: x.dtype.name for name, x in arrays.items()},
                "crc32": {name: zlib.crc32(x.tobytes()) for name, x in arrays.items()},
            }
        ).encode()

        def fill(file: BinaryIO) -> None:
            end = file.write(_HEAD.pack(MAGIC, VERSIONS[self.bits], len(header), zlib.crc32(header)) + header)
            for x in arrays.values():
                end += file.write(bytes(-end % ALIGNED))
                end += file.write(x.astype(x.dtype.newbyteorder("<"), copy=False).tobytes())

        from gemmgen import files  # a first call does without it

        files.write(path, fill)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file. Nothing of it is trusted: it holds no code, and all of it is checked.

        Raises: SpecError if it is no such file, or damaged; OSError.
        """
        try:
            return cls(**_read(_bytes_of(Path(path))))
        except SpecError as error:
            raise SpecError(f"{os.fspath(path)}: {problem}" for problem in error.problems) from None


def prepack(w: Any, bits: int = 8, group: int | None = None, zero_points: bool = False) -> Packed:
    """A matrix of weights in fewer bits, rounded to nearest.

    Args:
        w: [k, n], of floats: an array of NumPy, or what NumPy converts (torch's tensors on the CPU).
        bits: of an element: 8 or 4.
        group: neighbours along K that share a scale: 32, 64 or 128; None for all of a column.
        zero_points: whether elements lie between the least and the largest weight of their group (asymmetric); else
            between minus and plus the largest magnitude.

    Raises: SpecError with every problem.
    """
    problems = mask_problems("w", w)
    array = _array_of(w)
    if not _is_whole(bits) or bits not in BITS:
        problems.append(f"bits = {bits!r}: use {' or '.join(map(str, BITS))}, a whole number")
    if not _is_group(group):
        problems.append(f"group = {group!r}: use None, for all of a column, or {', '.join(map(str, GROUPS))}")
    if not isinstance(cast("object", zero_points), bool | np.bool_):
        problems.append(f"zero_points = {zero_points!r}: use True or False")
    if array.ndim != 2 or 0 in array.shape:
        problems.append(f"w has shape {array.shape}, of no matrix with elements: pass [k, n], a stack matrix by matrix")
    if array.dtype.kind != "f":
        real = "w.real" if array.dtype.kind == "c" else "w"
        problems.append(f"w is of type {array.dtype}, not of floats: pass {real}.astype(np.float32)")
    elif array.size and not np.abs(array).max() <= np.finfo(np.float32).max:
        problems.append("w has elements that are not finite in float32, which no scale holds: replace them")
    if problems:
        raise SpecError(problems)
    bits, group = int(bits), None if group is None else int(group)
    if bits == 4 and len(array) == 1:
        raise SpecError("w has one row, half a byte of 4 bits, which kernels take for a whole one: use bits=8")
    values, scales, zeros = _rounded(array, largest(bits), group or len(array), zero_points)
    if group is None:
        scales, zeros = scales[0], None if zeros is None else zeros[0]
    stored = np.asfortranarray(in_pairs(values, 0) if bits == 4 else values)
    return Packed(stored, scales, zeros, group, len(array))


def _is_group(group: object) -> bool:
    """Whether so many neighbours can share a scale. A float of that value is none."""
    return group is None or (_is_whole(group) and group in GROUPS)


def _is_whole(number: object) -> bool:
    """Whether it is an integer of Python's or of NumPy's."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _array_of(w: Any) -> Numbers:
    """A matrix of weights as an array of NumPy. Raises: SpecError."""
    try:
        # Parameters require gradients; NumPy has no bfloat16.
        array: Numbers = np.asarray(w.detach().float() if hasattr(w, "is_cuda") else w)
    except (TypeError, ValueError, RuntimeError) as error:
        raise SpecError(f"w is no array that NumPy can read: {error}") from None
    return array


def largest(bits: int) -> int:
    """The largest number of an element."""
    return (1 << bits - 1) - 1


def _rounded(array: Numbers, most: int, depth: int, zero_points: bool) -> tuple[Numbers, Numbers, Numbers | None]:
    """Elements from -most - 1 to `most`, or symmetric ones from -most; scales, and zero points, for each `depth` rows
    and each column.
    """
    k, n = array.shape
    grouped = np.zeros((-(-k // depth) * depth, n), np.float32)
    grouped[:k] = array
    grouped = grouped.reshape(-1, depth, n)
    low, high = np.minimum(grouped.min(axis=1), 0), np.maximum(grouped.max(axis=1), 0)
    if zero_points:
        scales = _positive((high / (2 * most + 1) - low / (2 * most + 1)).astype(np.float32))
        zeros = np.clip(np.rint(-low / scales) - most - 1, -most - 1, most)
    else:
        scales, zeros = _positive((np.maximum(-low, high) / most).astype(np.float32)), np.zeros_like(low)
    rounded = np.rint(grouped / scales[:, None, :]) + zeros[:, None, :]
    values = np.clip(rounded, -most - zero_points, most).astype(np.int8).reshape(-1, n)[:k]
    return values, scales, zeros.astype(np.int8) if zero_points else None


def _positive(scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Scales, 1 where all elements are 0."""
    return np.where(scales > 0, scales, np.float32(1))


def _without(options: Mapping[str, object]) -> list[str]:
    """The options of a call that do not go with such a `b`: `_WITHOUT`, and arrays of a prologue of it."""
    of_b = [name for name in options if name in OPERANDS and OPERANDS[name].of == "b"]
    given = {name: options.get(name) for name in (*_WITHOUT, *of_b)}
    return [name for name, value in given.items() if (is_set(value) if name in FLAGS else value is not None)]


def _gate(epilogue: object) -> str | None:
    """The gate that an epilogue begins with. What is no epilogue has none; the product tells of it."""
    then = (epilogue,) if isinstance(epilogue, str) else epilogue
    return gate_of(then) if isinstance(then, tuple) else None


def _putter(a: Any) -> Callable[[Numbers], object]:
    """What makes arrays of a's library where a lies."""
    kind = kind_of(a)
    if kind == "NumPy":
        return lambda x: x
    if type(a).__module__.split(".")[0] == "torch":
        import torch

        return lambda x: torch.from_numpy(x).to(a.device)
    if kind == "pyopencl":
        import pyopencl.array as cl_array

        return lambda x: cl_array.to_device(a.queue, x)
    if type(a).__module__.split(".")[0] == "cupy":
        import cupy

        def put(x: Numbers) -> object:
            with a.device:
                return cast("object", cupy.asarray(x))

        return put
    raise SpecError(
        f"a is of type {type(a).__name__}, for which weights are not moved: pass NumPy's, torch's or CuPy's"
    )


def _bytes_of(path: Path) -> bytes:
    """A file's bytes. Raises: SpecError for what is no such file, before more than its beginning is read; OSError."""
    # A pipe would be waited for; a device may have no end.
    if stat.S_ISREG(path.stat().st_mode):
        with path.open("rb") as file:
            if (head := file.read(_HEAD.size))[: len(MAGIC)] == MAGIC and len(head) == _HEAD.size:
                return head + file.read()
    raise SpecError(f"no file of prepacked weights, which begins with {MAGIC.decode()}: pass one by Packed.save")


def _read(data: bytes) -> dict[str, Any]:
    """The arguments of `Packed` in a file's bytes. Raises: SpecError."""
    _, version, length, checksum = _HEAD.unpack_from(data)
    if version not in VERSIONS.values():
        known = " and ".join(map(str, sorted(VERSIONS.values())))
        raise SpecError(f"version {version} of the format, but this gemmgen reads {known}: prepack the weights again")
    if length > MOST_HEADER or _HEAD.size + length > len(data):
        raise SpecError(f"a header of {length:,} bytes, beyond {MOST_HEADER:,} or the file's end: it is damaged")
    text = data[_HEAD.size : _HEAD.size + length]
    if zlib.crc32(text) != checksum:
        raise SpecError("its header does not match its checksum: the file is damaged, prepack the weights again")
    header = _header(text, version)
    k, n, bits, group, arrays = (header[name] for name in ("k", "n", "bits", "group", "arrays"))
    scales = (n,) if group is None else (-(-k // group), n)
    types = {
        "values": ((n, -(-k * bits // 8)), np.dtype(TYPES[bits]).name),
        "scales": (scales, "float32"),
        "zeros": (scales, "int8"),
    }
    end, found = _HEAD.size + length, dict[str, Any]()
    for name, dtype in arrays.items():
        shape, wanted = types[name]
        begin = end + -end % ALIGNED
        end = begin + math.prod(shape) * np.dtype(wanted).itemsize
        if dtype != wanted or end > len(data):
            raise SpecError(f"{name} of {dtype} and shape {shape} end behind the file's {len(data):,} bytes: damaged")
        if zlib.crc32(data[begin:end]) != header["crc32"].get(name):
            raise SpecError(f"{name} do not match their checksum: the file is damaged, prepack the weights again")
        found[name] = np.frombuffer(data[begin:end], np.dtype(wanted).newbyteorder("<")).astype(wanted).reshape(shape)
    if end != len(data):
        raise SpecError(f"{len(data) - end:,} bytes behind the last array: it is damaged")
    return {**found, "values": found["values"].T, "group": group, "k": k}


def _header(text: bytes, version: int) -> dict[str, Any]:
    """A file's header, with all of its fields checked. Raises: SpecError."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise SpecError("its header is no JSON: it is damaged") from None
    if not isinstance(header, dict):
        raise SpecError("its header is no JSON object: it is damaged")

    def is_count(value: object) -> bool:
        return type(value) is int and 0 < value < 2**31

    arrays, sums = header.get("arrays"), header.get("crc32")
    names = list(arrays) if isinstance(arrays, dict) else []
    checks = {
        "layout": header.get("layout") == "col",
        "k": is_count(header.get("k")),
        "n": is_count(header.get("n")),
        "bits": is_count(header.get("bits")) and VERSIONS.get(header["bits"]) == version,
        "group": "group" in header and header["group"] in (None, *GROUPS),
        "arrays": names in (["values", "scales"], ["values", "scales", "zeros"]),
        "crc32": isinstance(sums, dict),
    }
    wrong = [f"{name} = {str(header.get(name))[:40]}" for name, is_right in checks.items() if not is_right]
    if wrong:
        raise SpecError(f"its header has {each}, which this version does not know: it is damaged" for each in wrong)
    return header
