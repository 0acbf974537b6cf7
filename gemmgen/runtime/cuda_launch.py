"""A prepared call on a GPU: all kernels of a product, with everything but addresses and factors filled in.

Arguments and launch attributes lie in a *frame*. A replay takes a frame from a list, writes addresses into it,
launches, and puts it back. So threads share a call without a lock, and no memory is allocated for arguments. The driver
copies arguments when it queues a kernel (CUDA Driver API, `cuLaunchKernelEx`).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from gemmgen.errors import DeviceError
from gemmgen.ir.expr import Const
from gemmgen.ir.walk import evaluate
from gemmgen.runtime import cuda_driver
from gemmgen.runtime.arrays import value_of
from gemmgen.runtime.calls import Factors, written
from gemmgen.runtime.cuda_build import CudaBuilt
from gemmgen.source import EntryPoint, TensorMap

#: `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
_EARLY = 6
#: The size of a tensor map. Its address is a multiple of 64 bytes.
MAP_BYTES, _MAP_ALIGNMENT = 128, 64
#: The distance of a matrix's lines in bytes is a multiple of this.
_ALIGNED_BYTES = 16
#: `CUtensorMapDataType`, by element type. Types of one byte are copied as bytes.
MAP_TYPES = {"float16": 6, "float32": 7, "bfloat16": 9, "int8": 0, "int32": 3, "float8_e4m3fn": 0, "float8_e5m2": 0}
#: That of a map which rounds float32 to TF32.
_TFLOAT32 = 11
#: `CUtensorMapSwizzle`, by the bytes of a line of the tile.
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
#: Nothing interleaved, zeros outside.
_NONE = 0
#: `CU_TENSOR_MAP_L2_PROMOTION_L2_128B`: the bytes that L2 fetches at a time. With 256, L2 fetches unused bytes if lines
#: don't begin on multiples of 256, and nothing was faster on an H200 (64x4096x14336: 33.4 us with 256, 32.3 with 128).
_FETCHED = 2
#: The address that a map has before the first launch. It only has to be aligned.
_SOME_ADDRESS = 1 << 12
#: Workspaces begin on multiples of this.
ROOM_ALIGNMENT = 256
#: The arguments that scale; of integers they are integers like the sizes.
FACTORS = ("alpha", "beta")
#: The bytes of an integer or a scalar in a frame.
_SLOT = 16

#: What `cuLaunchKernelEx` takes: a launch configuration, a function, the addresses of the arguments, nothing else.
_Launch: TypeAlias = tuple[ctypes.c_void_p, ctypes.c_void_p, "ctypes.Array[ctypes.c_void_p]", None]


class _Frame:
    """Memory for one launch of all kernels.

    Attributes:
        configs, attributes: what the launches point to.
    """

    __slots__ = ("attributes", "base", "configs", "factors", "launches", "maps", "memory", "stream")

    def __init__(self, image: bytes, factors: Factors) -> None:
        self.memory = ctypes.create_string_buffer(len(image) + _MAP_ALIGNMENT)
        self.base = -ctypes.addressof(self.memory) % _MAP_ALIGNMENT
        ctypes.memmove(ctypes.addressof(self.memory) + self.base, image, len(image))
        self.launches: tuple[_Launch, ...] = ()
        self.configs: tuple[cuda_driver.LaunchConfig, ...] = ()
        self.attributes: tuple[cuda_driver.LaunchAttribute, ...] = ()
        self.maps: tuple[tuple[ctypes.c_void_p, int, int], ...] = ()
        self.factors = factors
        self.stream: int | None = 0


class CudaLaunches:
    """All kernels of a product on one GPU. Safe to use from several threads.

    Args:
        built: the kernels.
        device: the GPU's number.
        grids: the kernels to launch, by their numbers, with their grids as (layers, rows, columns).
        addresses: the names of the arguments that are addresses, in the order in which `launch` gets them.
        values: the other arguments by name: integers, alpha and beta.
        factors: alpha and beta as the caller passed them.
    """

    def __init__(
        self,
        built: CudaBuilt,
        device: int,
        grids: Sequence[tuple[int, tuple[int, int, int]]],
        addresses: Sequence[str],
        values: Mapping[str, complex],
        factors: Factors = (None, None),
    ) -> None:
        self._built, self._device, self._factors = built, device, factors
        self._pack = struct.Struct(f"={len(addresses)}Q").pack_into
        self._frames: list[_Frame] = []
        self._launch = cuda_driver.library().cuLaunchKernelEx
        self._replace = cuda_driver.library().cuTensorMapReplaceAddress
        offsets = {name: 8 * index for index, name in enumerate(addresses)}
        self._image = bytearray(8 * len(addresses))
        self._grids = [self._step(number, grid) for number, grid in grids]
        self._arguments: list[list[int]] = []
        self._maps: list[tuple[int, int, int]] = []
        self._scalars: dict[str, tuple[int, str]] = {}
        self._place_arguments(dict(offsets), list(addresses), values)

    def launch(self, stream: int, addresses: Sequence[int], factors: Factors | None = None) -> None:
        """Queue all kernels, with the GPU's context current, or none.

        Args:
            stream: the `CUstream`, which may be capturing a graph.
            addresses: in the order of the names.
            factors: alpha and beta, if they may differ from those that the call was prepared with. They may be zero
                only if those were.

        Raises: DeviceError with the driver's code; struct.error, OverflowError or TypeError for factors that the
        kernels' type does not hold.
        """
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        self._pack(frame.memory, frame.base, *addresses)
        if factors is not None and factors != frame.factors:
            self._write_factors(frame, factors)
        if frame.stream != stream:
            for config in frame.configs:
                config.stream = stream
            frame.stream = stream
        for pointer, index, before in frame.maps:
            if code := self._replace(pointer, addresses[index] - before):
                raise cuda_driver.failure(code, "the address of a tensor map")
        launch = self._launch
        for each in frame.launches:
            if code := launch(*each):
                self._again(each, code)
        self._frames.append(frame)

    def _again(self, each: _Launch, code: int) -> None:
        """Launch once more, if the thread only lacked a context."""
        if code in cuda_driver.NO_CONTEXT:
            cuda_driver.enter(self._device)
            code = self._launch(*each)
        cuda_driver.check(code, "a launch")

    def _write_factors(self, frame: _Frame, factors: Factors) -> None:
        for name, value in zip(FACTORS, factors, strict=True):
            if name in self._scalars and value is not None:
                offset, dtype = self._scalars[name]
                data = written(value, dtype)
                struct.pack_into(f"{len(data)}s", frame.memory, frame.base + offset, data)
        frame.factors = factors

    # --- making frames ----------------------------------------------------------------------------

    def _step(self, number: int, groups: tuple[int, int, int]) -> tuple[EntryPoint, ctypes.c_void_p, tuple[int, ...]]:
        """A kernel with its function, and its grid along x, y and z."""
        entry = self._built.entries[number]
        layers, rows, cols = groups
        return (
            entry,
            self._built.functions[number],
            (min(cols, self._built.at_once.get(entry.name, cols)), rows, layers),
        )

    def _place_arguments(self, places: dict[str, int], addresses: list[str], values: Mapping[str, complex]) -> None:
        """Lay out every argument. Kernels share arguments of one name and type."""
        sizes = {name: value for name, value in values.items() if isinstance(value, int)}
        for entry, _, _ in self._grids:
            maps = {tensor_map.name: tensor_map for tensor_map in entry.maps}
            offsets = []
            for argument in entry.arguments:
                if argument.name in maps:
                    offsets.append(self._place_map(maps[argument.name], addresses, sizes))
                    continue
                if argument.kind not in ("int", "scalar"):
                    value_of(entry, argument.name, places)
                    offsets.append(places[argument.name])
                    continue
                key = f"{argument.name} {argument.dtype}"
                if key not in places:
                    value = value_of(entry, argument.name, values)
                    data = np.dtype(argument.dtype).type(value).tobytes()
                    places[key] = self._placed(data.ljust(_SLOT, b"\0"), _SLOT)
                    if argument.name in FACTORS:
                        self._scalars[argument.name] = places[key], argument.dtype
                offsets.append(places[key])
            self._arguments.append(offsets)

    def _place_map(self, tensor_map: TensorMap, addresses: list[str], sizes: Mapping[str, int]) -> int:
        words = encoded(tensor_map, _SOME_ADDRESS, sizes)
        offset = self._placed(words or bytes(MAP_BYTES), _MAP_ALIGNMENT)
        if words is not None:
            self._maps.append((offset, addresses.index(tensor_map.operand), bytes_before(tensor_map, sizes)))
        return offset

    def _placed(self, data: bytes, alignment: int) -> int:
        self._image.extend(bytes(-len(self._image) % alignment))
        offset = len(self._image)
        self._image.extend(data)
        return offset

    def _new_frame(self) -> _Frame:
        frame = _Frame(bytes(self._image), self._factors)
        begin = ctypes.addressof(frame.memory) + frame.base
        launches, configs, attributes = list[_Launch](), [], []
        for (entry, function, grid), offsets in zip(self._grids, self._arguments, strict=True):
            high, wide = entry.group
            said = cuda_driver.LaunchAttribute(_EARLY, 0, (ctypes.c_int * 16)(1))
            config = cuda_driver.LaunchConfig(
                (ctypes.c_uint * 3)(*grid),
                (ctypes.c_uint * 3)(wide, high, 1),
                entry.dynamic_bytes,
                None,
                ctypes.addressof(said),
                int(entry.early),
            )
            arguments = (ctypes.c_void_p * max(1, len(offsets)))(*(begin + offset for offset in offsets))
            launches.append((ctypes.c_void_p(ctypes.addressof(config)), function, arguments, None))
            configs.append(config)
            attributes.append(said)
        frame.launches, frame.configs, frame.attributes = tuple(launches), tuple(configs), tuple(attributes)
        frame.maps = tuple((ctypes.c_void_p(begin + offset), index, before) for offset, index, before in self._maps)
        return frame


# --- tensor maps, made by the driver --------------------------------------------------------------


def encoded(tensor_map: TensorMap, address: int, sizes: Mapping[str, int]) -> bytes | None:
    """The tensor map of a matrix that it says begins at an address. An empty matrix has none, and no kernel uses it.

    Raises: DeviceError with the driver's code.
    """
    lines, length = (evaluate(extent, dict(sizes)) for extent in (tensor_map.lines, tensor_map.length))
    count, apart = (evaluate(x, dict(sizes)) for x in tensor_map.batch or (Const(1), Const(0)))
    if not lines or not length or not count:
        return None
    pitch = _pitch(tensor_map, sizes)
    if tensor_map.batch is None:
        return _asked(tensor_map, address, (length, lines), (pitch,))
    if tensor_map.ends:
        return _asked(tensor_map, address, (length, lines, count), (pitch, pitch))
    return _asked(tensor_map, address, (length, lines, count), (pitch, apart if count > 1 else 0))


def _pitch(tensor_map: TensorMap, sizes: Mapping[str, int]) -> int:
    """Elements from a line to the next. The leading dimension of a single line is never used, and need not meet the
    tensor map's rules.
    """
    lines, length = (evaluate(extent, dict(sizes)) for extent in (tensor_map.lines, tensor_map.length))
    step = _ALIGNED_BYTES // tensor_map.dtype.size
    return evaluate(tensor_map.pitch, dict(sizes)) if lines > 1 else -(-length // step) * step


def bytes_before(tensor_map: TensorMap, sizes: Mapping[str, int]) -> int:
    """How far before the matrix its map begins: by all lines, where these end with a group."""
    lines = evaluate(tensor_map.lines, dict(sizes)) if tensor_map.ends else 0
    return lines * _pitch(tensor_map, sizes) * tensor_map.dtype.size if lines else 0


def _asked(tensor_map: TensorMap, address: int, extents: tuple[int, ...], steps: tuple[int, ...]) -> bytes:
    """The map from the driver, from the extents (fast axis first), and the distances of lines and of matrices in
    elements.
    """
    room = ctypes.create_string_buffer(MAP_BYTES + _MAP_ALIGNMENT)
    first = -ctypes.addressof(room) % _MAP_ALIGNMENT
    high, wide = tensor_map.box
    size, rank = tensor_map.dtype.size, len(extents)
    code = cuda_driver.library().cuTensorMapEncodeTiled(
        ctypes.c_void_p(ctypes.addressof(room) + first),
        ctypes.c_int(_TFLOAT32 if tensor_map.rounded else MAP_TYPES[tensor_map.dtype.name]),
        ctypes.c_uint(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*extents),
        (ctypes.c_uint64 * (rank - 1))(*(step * size for step in steps)),
        (ctypes.c_uint * rank)(*(wide, high, 1)[:rank]),
        (ctypes.c_uint * rank)(*(1,) * rank),
        ctypes.c_int(_NONE),
        ctypes.c_int(_SWIZZLES[tensor_map.swizzle]),
        ctypes.c_int(_FETCHED),
        ctypes.c_int(_NONE),
    )
    if code:
        what, apart = " x ".join(map(str, reversed(extents))), " and ".join(map(str, steps))
        raise DeviceError(
            f"CUDA makes no map of {tensor_map.operand}, {what} elements, lines (and matrices) {apart} apart (CUresult "
            f"{code}). If all of them begin on multiples of 16 bytes, please report it"
        )
    return room.raw[first : first + MAP_BYTES]
