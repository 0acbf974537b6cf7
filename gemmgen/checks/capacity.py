"""What a schedule takes of local memory and of registers, against what a target has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd

from gemmgen.checks.lines_of_c import SUM_PAD, stores_lines
from gemmgen.ir.instructions import DPAS_LANES, matrix_instruction
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.schedule.direct import Direct
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.schedule.warp_mma import WarpMma
from gemmgen.spec import GemmSpec

#: Registers of a lane, in bytes, on devices with `dpas`: 128 of 32 bits.
DPAS_LANE_BYTES = 512
#: Shared memory is read by vectors of up to so many bytes, and elements; registers of a thread of CUDA, in bytes.
VECTOR_BYTES, VECTOR, THREAD_BYTES = 16, 4, 255 * 4
#: Threads of a multiprocessor of NVIDIA's, on most of those that have few.
MULTIPROCESSOR_THREADS = 1536
#: Where slices of K load what they multiply: elements that a work-item has asked for at most; registers beside those
#: and its sums; blocks whose loads hide each other's; and sums from which `ptxas` leaves no room for so many.
IN_FLIGHT, BESIDE_LOADS, TWO_BLOCKS, MANY_SUMS = 64, 13, 2, 32


def capacity_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What a schedule takes more of than the target has."""
    local = local_bytes(spec, s, target)
    if local > target.local_bytes:
        rings = (n for n in range(s.stages - 1, 0, -1) if not n % (s.mbarrier or 1))
        enough = next((n for n in rings if local_bytes(spec, s.but(stages=n), target) <= target.local_bytes), None)
        fewer = f"{enough} stages instead of {s.stages}, or " if enough else ""
        less = f"block_k {max(1, s.block_k // 2)} instead of {s.block_k}"
        if (slices := _fewer_slices(spec, s, target)) is not None:
            less = f"sliced_k {slices} instead of {s.sliced_k}"
        yield (
            f"local memory {local:,} B > {target.local_bytes:,} B on this target: use {fewer}{less}, or a smaller tile"
        )
    # Kernels of OpenCL and SYCL may be compiled for Intel's GPUs later, those of CUDA and HIP never.
    if s.large_grf and "leading_barriers" in target.features:
        yield f"large_grf is a build option for Intel's GPUs, and {target.name} has none: use --set large_grf=false"
    used = register_bytes(spec, s)
    limit = sub_group_registers(s, target) // s.sub_group if s.sub_group else target.register_bytes
    if used > limit:
        yield (
            f"registers {used:,} B per work-item > {limit:,} B on this target "
            f"(C alone takes {s.tile[0] * s.tile[1] * spec.accumulator.size:,} B): {_smaller(spec, s, limit)}"
        )


def _fewer_slices(spec: GemmSpec, s: Schedule, target: Target) -> int | None:
    """The most slices of K, fewer than now, whose tiles and sums local memory holds; None if there are none."""
    divisors = (n for n in range(s.sliced_k - 1, 0, -1) if s.block_k % n == 0)
    return next((n for n in divisors if local_bytes(spec, s.but(sliced_k=n), target) <= target.local_bytes), None)


def fragment_problems(s: Schedule, target: Target, words: int, lanes: int) -> Iterator[str]:
    """What fragments of so many words of 32 bits a lane take more of than a sub-group has."""
    used, limit = words * 4, sub_group_registers(s, target) // lanes
    if used > limit:
        larger = "" if s.large_grf else " or large_grf"
        yield f"registers {used:,} B per work-item > {limit:,} B on this target: use a smaller tile{larger}"


def whole_sub_groups(s: Schedule, target: Target, lanes: int) -> Iterator[str]:
    """What is wrong with a group that is to be made of whole sub-groups."""
    high, wide = s.group
    if wide % lanes:
        wider = -(-wide // lanes) * lanes
        yield f"group {high}x{wide} is not of whole sub-groups of {lanes}: use group {high}x{wider}"
    if high * wide > target.max_group:
        yield f"{high * wide} work-items > {target.max_group} on this target: use a smaller group"


def blocks_at_once(spec: GemmSpec, s: Schedule, target: Target) -> int:
    """The blocks of a multiprocessor that a compiler is to leave registers for: those that are asked for, or as many as
    there is room for; 0 for any number. Where slices of K load what they multiply for many sums, two if there is room.
    """
    work_items = s.all_work_items[0] * s.all_work_items[1]
    if isinstance(s.mainloop, Direct) and s.sliced_k > 1 and s.tile[0] * s.tile[1] >= MANY_SUMS:
        own = slice_registers(s.tile, s.block_k // s.sliced_k) * spec.accumulator.size
        return TWO_BLOCKS if TWO_BLOCKS * own * work_items <= target.multiprocessor_register_bytes else 0
    # While one block of warps waits for what it has loaded ahead, or stores, another multiplies.
    asked = TWO_BLOCKS if isinstance(s.mainloop, WarpMma) and s.prefetch else s.min_blocks
    room = target.multiprocessor_register_bytes // (work_items * max(1, register_bytes(spec, s)))
    return min(asked, room, MULTIPROCESSOR_THREADS // work_items)


def slice_registers(tile: tuple[int, int], depth: int) -> int:
    """Registers of a work-item that loads what it multiplies of so many elements along K."""
    rows, cols = tile
    return rows * cols + min(IN_FLIGHT, (rows + cols) * depth) + BESIDE_LOADS


def _smaller(spec: GemmSpec, s: Schedule, limit: int) -> str:
    """A tile whose registers are there, a step, or both together."""

    def fits(tile: tuple[int, int], depth: int) -> bool:
        return register_bytes(spec, s.but(tile=tile, block_k=depth)) <= limit

    tile = halved(s.tile, lambda tile: fits(tile, s.block_k))
    if tile != "1x1" or fits((1, 1), s.block_k):
        return f"use a smaller tile, such as {tile}"
    # Lanes that share A divide a step.
    least = (s.sub_group or 1) if s.a.shuffle else 1
    depths = (least << n for n in range(s.block_k.bit_length(), -1, -1))
    enough = next((depth for depth in depths if depth < s.block_k and fits(s.tile, depth)), None)
    if enough is not None:
        return f"use block_k {enough} instead of {s.block_k}"
    tile = halved(s.tile, lambda tile: fits(tile, least))
    return f"use a smaller tile and a smaller block_k, by --tile {tile} --set block_k={least}"


def halved(shape: tuple[int, int], fits: Callable[[tuple[int, int]], bool]) -> str:
    """The shape with its longer side halved until it fits, or is 1x1."""
    rows, cols = shape
    while rows * cols > 1 and not fits((rows, cols)):
        rows, cols = (rows // 2, cols) if rows >= cols else (rows, cols // 2)
    return f"{rows}x{cols}"


def sub_group_registers(s: Schedule, target: Target) -> int:
    """Registers of a sub-group, in bytes. Those of devices with matrix instructions are as wide as these: 16 lanes are
    Xe-HPC's, whose registers have twice the bytes of Xe-HPG's.
    """
    own = DPAS_LANE_BYTES * (s.sub_group or DPAS_LANES[0]) if s.atom in ("dpas", "joint_matrix") else 0
    return max(target.sub_group_register_bytes, own) * (2 if s.large_grf else 1)


def local_bytes(spec: GemmSpec, s: Schedule, target: Target) -> int:
    """Local memory of a group, in bytes."""
    total = 0
    a, b = s.staged("a", spec.a_order), s.staged("b", spec.b_order)
    for x, o, rows, cols in (("a", a, s.block_tile[0], s.block_k), ("b", b, s.block_k, s.block_tile[1])):
        if o.memory == "local":
            slow, fast = (cols, rows) if o.transposed else (rows, cols)
            total += s.stages * slow * (fast + o.pad) * spec.made(x).size
    planes = s.sliced_k * s.lanes_along_k
    staged = planes > 1 or s.cluster_reduction > 1
    partial = planes * s.block_tile[0] * s.block_tile[1] * spec.accumulator.size if staged else 0
    if stores_lines(spec, s):
        partial = s.block_tile[0] * (s.block_tile[1] // spec.halves + SUM_PAD) * spec.accumulator.size
    both = max(total, partial) if "reused_local_memory" in target.features else total + partial
    return both + 16 * (s.stages // s.mbarrier if s.mbarrier else 0)


def register_bytes(spec: GemmSpec, s: Schedule) -> int:
    """Registers that the tiles of a work-item need, in bytes: a lower bound of what a compiler takes."""
    rows, cols = s.tile
    if (atom := matrix_instruction(s.atom, spec.dtype, "warp")) is not None:
        a = rows // atom.c.rows.values * atom.a.rows.values
        b = cols // atom.c.cols.values * atom.b.cols.values
        operands = (a + b) * atom.a.cols.values * atom.dtype.size * s.register_stages
        return rows * cols * atom.sums.size + operands + _via_registers(spec, s)
    of_tiles = depth_of_tiles(spec, s)
    depth = s.block_k if s.whole_steps else s.b_sub_step or of_tiles
    a = rows * s.block_k // (s.sub_group or 1) if s.a.shuffle else rows * s.register_stages * of_tiles
    if s.by_blocks and not s.b_sub_step:
        # The rows of A that one read brings are used up before the next have to be there.
        a = s.a.width * s.block_k // (s.sub_group or 1) if s.a.memory == "image" else 0
    b = cols * max(depth, s.b.width if s.b.memory == "image" else 1) * s.register_stages
    return (rows * cols + a + b) * spec.accumulator.size + _via_registers(spec, s)


def depth_of_tiles(spec: GemmSpec, s: Schedule) -> int:
    """How many neighbours along K a work-item reads of local memory at a time: vectors, where asynchronous copies fill
    lines that lie along K, and registers hold them. Other tiles are read across K, which takes fewer registers.
    """
    if not isinstance(s.mainloop, SharedMemory) or s.atom != "fma":
        return 1
    found = 1
    for name, operand in (("a", s.a), ("b", s.b)):
        along_k = operand.memory == "local" and operand.async_copy and operand.transposed == (name == "b")
        width = max(1, min(VECTOR, VECTOR_BYTES // spec.made(name).size))
        found = max(found, gcd(width, s.block_k + operand.pad, s.block_k // s.sliced_k) if along_k else 1)
    (rows, cols), size = s.tile, spec.accumulator.size
    while found > 1 and (rows * cols + (rows + cols) * found * s.register_stages) * size > THREAD_BYTES:
        found //= 2
    return found


def _via_registers(spec: GemmSpec, s: Schedule) -> int:
    """What a work-item holds of the next tiles until they are stored to local memory, in bytes."""
    if not s.prefetch:
        return 0
    work_items, via = s.all_work_items[0] * s.all_work_items[1], 0
    for x, o, count in (("a", s.a, s.block_tile[0] * s.block_k), ("b", s.b, s.block_k * s.block_tile[1])):
        via += -(-count // work_items) * spec.read(x, o.prepacked).size if o.memory == "local" else 0
    return via
