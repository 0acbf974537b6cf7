"""The constants of a CPU that the prior computes with: from what the machine says of itself, or measured on it.

A cycle is that of a core which begins two multiply-adds of vectors in each, so that only ratios count. The machine says
the sizes of its caches (`Target.caches`). `gemmgen tune --calibrate` measures the fields of `MEASURED`, which are kept
with the device's records. The other constants hold for all CPUs. They were searched on figures of four of them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from gemmgen.ir.target import Measured, Target, measured_on
from gemmgen.records import dataclass

#: What is measured; each is said below.
MEASURED: tuple[str, ...] = ("threads", "third_line", "memory_line", "several_line")
#: Bytes of the caches of a CPU that says nothing of them: first and second level of a core, third level of all.
CACHES = (32 << 10, 1 << 20, 32 << 20)
#: Bytes of the third level at most: of a larger one, processes on other cores take their part.
MOST_THIRD = 64 << 20
#: The rows of a tile whose pointers Intel's compiler keeps, which has sub-groups on CPUs; others are taken to be LLVM.
INTEL = {"pointers": 12.0, "pointers_beside_copy": 8.0}


@dataclass(frozen=True, slots=True)
class Machine:
    """The constants of a device. A line is 64 bytes.

    Attributes:
        first, second: bytes of the caches of a core.
        third: bytes of the cache of all cores.
        pointers, pointers_beside_copy: rows of A whose pointers the compiler keeps in registers, where B is in place
            and beside a copy. Those of taller tiles are loaded again in each step.
        second_line, third_line, memory_line: cycles of a line from the second level, the third, and memory.
        several_line: the same of A, where vectors lie along K and a tile reads several rows at a time.
        threads: cycles until other threads take work-items.
        fma, load: vectors that are multiplied and loaded in a cycle.
        latency: cycles of a multiply-add, until the next one to the same sum can begin.
        page: cycles of a step whose line of B is on a page of its own.
        strided: times `second_line` that a line of B in place takes, whose neighbour is no part of the tile.
        row: cycles of the beginning of a part of a row of B that is copied.
        copy: cycles of a line that is copied, beside its way to the core; `transposed` where its elements are.
        move: cycles of another vector of such a line.
        apart: cycles of a line in place from memory, of more lines at a time than hardware follows.
        tile: cycles of a tile beside its steps.
        element: cycles of an element of C whose vector is added up at the end.
        single: cycles of an element of C that is stored by itself.
        rest: cycles of a multiply-add of single elements, where K is no whole vectors.
        group, kernel: cycles of a work-item, and of another kernel.
        wait: of a work-item, the part that the other cores wait for the last one.
    """

    first: float
    second: float
    third: float
    pointers: float = 8.0
    pointers_beside_copy: float = 14.0
    second_line: float = 1.0
    third_line: float = 4.0
    memory_line: float = 8.0
    several_line: float = 10.0
    threads: float = 20000.0
    fma: float = 2.0
    load: float = 2.5
    latency: float = 4.0
    page: float = 2.0
    strided: float = 1.5
    row: float = 15.0
    copy: float = 4.5
    transposed: float = 30.0
    move: float = 2.0
    apart: float = 5.0
    tile: float = 200.0
    element: float = 6.0
    single: float = 2.0
    rest: float = 0.6
    group: float = 250.0
    kernel: float = 12000.0
    wait: float = 0.1


def machine_of(target: Target) -> Machine:
    """The constants of a device: measured, or as it says, or usual ones."""
    return _machine(target, measured_on(target))


@cache
def _machine(target: Target, measured: Measured) -> Machine:
    return replace(derived(target), **{name: value for name, value in measured if name in MEASURED})


@cache
def derived(target: Target) -> Machine:
    """The constants of a device as it says, or usual ones, whatever was measured."""
    first, second, third = (said or usual for said, usual in zip(target.caches, CACHES, strict=True))
    return Machine(first, second, min(third, MOST_THIRD), **(INTEL if "sub_groups" in target.features else {}))
