"""Shared memory of a CUDA kernel: of a fixed size, or carved out of what the launch brings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from gemmgen.backends.clike import CLike
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.kernel import Kernel, local_bytes
from gemmgen.ir.meetings import Mbarrier
from gemmgen.ir.stmt import Alloc, BoxCopy
from gemmgen.ir.swizzle import LINES, LINES_BYTES
from gemmgen.ir.walk import walk
from gemmgen.launch import tensor_maps

#: Shared memory that a kernel may declare with a fixed size; more must be asked for at the launch.
STATIC_BYTES = 48 * 1024
#: Where the first of eight lines that swizzle may stand: on multiples of all eight, of the widest lines that is.
SWIZZLED_BYTES = LINES * LINES_BYTES[-1]
MBARRIER_BYTES = 8


def dynamic_bytes(kernel: Kernel) -> int:
    """Shared memory that must be asked for at the launch; none while it may have a fixed size. Where lines swizzle all
    is asked for, mbarriers too, so that the first line stands where shared memory begins.
    """
    if _swizzles(kernel):
        return local_bytes(kernel) + MBARRIER_BYTES * sum(step.count for step in _mbarriers(kernel))
    total = local_bytes(kernel)
    return total if total > STATIC_BYTES or any(s.reuses for s in _shared(kernel)) else 0


def declare_shared(buffer: Buffer, printer: CLike) -> list[str]:
    """The declaration of an array in what the launch brings."""
    kernel = printer.kernel
    arrays = [s.buffer for s in _shared(kernel) if not s.reuses]
    offset = sum(a.bytes for a in arrays[: arrays.index(buffer)]) if buffer in arrays else 0
    if buffer.layout.swizzle and offset % (LINES * buffer.layout.swizzle):
        raise LoweringError(f"{buffer.name} begins at byte {offset}, where no lines may swizzle")
    return [_carved(buffer.name, printer.types[buffer.dtype.name], printer.dimensions(buffer), offset)]


def brought(printers: Sequence[CLike]) -> list[str]:
    """The declaration of what launches bring, where a kernel of the file takes any. In the file's namespace: every
    array of that name in a program is one and the same, aligned as the first of them.
    """
    kernels = [printer.kernel for printer in printers if printer.dynamic_bytes()]
    if not kernels:
        return []
    align = SWIZZLED_BYTES if any(map(_swizzles, kernels)) else 16
    return ["// What the launch brings.", f"extern __shared__ __align__({align}) unsigned char shared[];", ""]


def init_mbarriers(step: Mbarrier, printer: CLike) -> list[str]:
    """The declaration of an array of mbarriers, and what makes them ready."""
    rows, cols = printer.kernel.group
    which = printer.expr(step.index)
    declared = _declare_mbarriers(step, printer.kernel)
    if step.arrivals:
        return [declared, *_init_for_copies(step, which, printer.kernel)]
    return [
        declared,
        f"if ({which} < {step.count}) {{",
        f"    mbarrier_init(&{step.name}[{which}], {rows * cols});",
        "}",
    ]


def _init_for_copies(step: Mbarrier, which: str, kernel: Kernel) -> list[str]:
    """What makes all mbarriers ready that copies tell or wait for, behind the last of their declarations. One thread
    does: several would take turns, in a loop, since the instruction's address must be the same for all of a warp. Maps
    are fetched meanwhile.
    """
    alike = [other for other in _mbarriers(kernel) if other.arrivals]
    if step != alike[-1]:
        return []
    loops: list[str] = []
    for count, arrays in groupby(alike, lambda other: other.count):
        var = "slot" if not loops else "i"
        loops += [
            "    #pragma unroll",
            f"    for (int {var} = 0; {var} < {count}; ++{var}) {{",
            *(f"        mbarrier_init(&{other.name}[{var}], {other.arrivals});" for other in arrays),
            "    }",
        ]
    return [
        f"if ({which} == 0) {{",
        *(f"    fetch_map(&{tensor_map.name});" for tensor_map in tensor_maps(kernel)),
        *loops,
        "    mbarriers_ready();",
        "}",
    ]


def _declare_mbarriers(step: Mbarrier, kernel: Kernel) -> str:
    """The declaration of an array of mbarriers."""
    if not _swizzles(kernel):
        return f"__shared__ unsigned long long {step.name}[{step.count}];"
    steps = _mbarriers(kernel)
    offset = local_bytes(kernel) + MBARRIER_BYTES * sum(other.count for other in steps[: steps.index(step)])
    return _carved(step.name, "unsigned long long", f"[{step.count}]", offset)


def _carved(name: str, element: str, extents: str, offset: int) -> str:
    start = f"shared + {offset}" if offset else "shared"
    return f"auto &{name} = *reinterpret_cast<{element}(*){extents}>({start});"


def _shared(kernel: Kernel) -> list[Alloc]:
    return [s for s in walk(kernel.body) if isinstance(s, Alloc) and s.buffer.space is Space.LOCAL]


def _swizzles(kernel: Kernel) -> bool:
    boxes = any(isinstance(s, BoxCopy) for s in walk(kernel.body))
    return boxes or any(s.buffer.layout.swizzle for s in _shared(kernel))


def _mbarriers(kernel: Kernel) -> list[Mbarrier]:
    return [s for s in walk(kernel.body) if isinstance(s, Mbarrier) and s.verb == "init"]
