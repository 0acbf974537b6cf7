"""What is chosen for a CPU: by its sizes, its caches and its cores."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.choose import SMALL_PRESET, choose
from gemmgen.cpu.machine import CACHES, machine_of
from gemmgen.cpu.panels import account, by_order, choose_panels, cycles
from gemmgen.cpu.prior import HELD, Shape
from gemmgen.ir.dtypes import BF16, F16, F64, I8, DType
from gemmgen.ir.target import TARGETS, Target, calibrate, measured_on
from gemmgen.kernel_names import kernel_name
from gemmgen.passes.validate import problems_as_asked, validate
from gemmgen.runtime import limits
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support.cli import printed

#: Two cores, as `target_of` describes them.
CPU = replace(TARGETS["cpu"], cores=2, caches=(48 << 10, 1 << 20, 32 << 20), register_bytes=65536)
SHAPES: tuple[Shape, ...] = (
    *((1, 1, 1), (5, 3, 0), (7, 11, 13), (64, 64, 64), (1000, 1000, 1000), (2048, 2048, 2048), (3, 5000, 2)),
    *((64, 4096, 4096), (4096, 64, 4096), (4096, 4096, 64), (100, 100, 100000), (4096, 1, 4096)),
)
#: Where tiles of 12 rows in place are among the best.
SHARED_OUT = tuple((m, n, k) for m in (120, 240, 454) for n in (160, 320, 326) for k in (243, 431, 466))


def groups(s: Schedule | None, shape: Shape) -> int:
    """Work-items of a product."""
    assert s is not None
    extents = zip(shape[:2], s.tile, s.macro_kernel, s.grid_multiple, strict=True)
    return prod(-(-size // (unit * most * even)) * even for size, unit, most, even in extents)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_chosen_can_be_had_and_shares_c_out(shape: Shape) -> None:
    schedule = choose_panels(GemmSpec(), shape, CPU)
    assert schedule is not None
    validate(GemmSpec(), schedule, CPU)
    assert choose_panels(GemmSpec(m=shape[0], n=shape[1], k=shape[2] or None), (9, 9, shape[2]), CPU) == schedule
    if shape[0] * shape[1] > 20000:
        assert schedule.grid_multiple != (1, 1), "an odd number of work-items leaves a core without one"


@pytest.mark.parametrize("shape", [s for s in SHAPES if s[2] > 100], ids=str)
def test_the_order_of_sums_depends_on_the_sizes_alone(shape: Shape) -> None:
    """K in the same blocks and parts on any number of cores: the same bits."""
    chosen = [choose_panels(GemmSpec(), shape, replace(CPU, cores=cores)) for cores in (1, 2, 3, 16, 64)]
    assert len({(s.kc, s.split_k) for s in chosen if s is not None}) == 1
    assert None not in chosen


def test_long_k_and_few_tiles_go_in_parts() -> None:
    for shape, split in (((6, 64, 100000), 12), ((100, 100, 100000), 1), ((6, 64, 4096), 1)):
        chosen = choose_panels(GemmSpec(), shape, replace(CPU, cores=8))
        assert chosen is not None
        assert chosen.split_k == split


def test_types_orders_and_widths() -> None:
    shape = (1000, 1000, 1000)
    for spec, target, vector, memories in (
        (GemmSpec(dtype=F64), CPU, 8, {"global", "private"}),
        (GemmSpec(b_order="col"), CPU, 16, {"private"}),
        (GemmSpec(), replace(CPU, vector_bytes=32), 8, {"global", "private"}),
        (GemmSpec(), replace(CPU, vector_bytes=16), 4, {"global", "private"}),
    ):
        chosen = choose_panels(spec, shape, target)
        assert chosen is not None
        assert chosen.vector == vector
        assert chosen.b.memory in memories
        driver.emit(spec, chosen, target=target)


@pytest.mark.parametrize("n", [63, 31, 17, 64])
def test_nothing_narrower_than_a_tile_is_read_in_place(n: int) -> None:
    chosen = choose_panels(GemmSpec(), (521, n, 135), CPU)
    assert chosen is not None
    assert chosen.b.memory == "private" or n >= chosen.tile[1]


def test_what_drives_itself_from_the_caches_is_not_chosen() -> None:
    """B in place with lines whole pages apart."""
    for n in (512, 640, 1024, 1032, 2048):
        for k in (512, 520, 1024, 1032):
            chosen = choose_panels(GemmSpec(), (1000, n, k), CPU)
            assert chosen is not None
            if n * 4 % 4096 == 0 and k > 640:
                assert chosen.b.memory == "private"


def test_rows_go_in_blocks_where_a_comes_from_memory_and_k_at_once_where_it_fits() -> None:
    large = choose_panels(GemmSpec(), (4096, 4096, 4096), CPU)
    assert large is not None
    assert large.mc * large.tile[0] * large.kc * 4 <= HELD * machine_of(CPU).second
    in_blocks, without = cycles(GemmSpec(), [large, large.but(mc=0)], (4096,) * 3, CPU)
    assert large.mc > 0
    assert in_blocks < without
    for size in (1000, 1024):
        chosen = choose_panels(GemmSpec(), (size, size, size), CPU)
        assert chosen is not None
        assert chosen.kc == 1024


@pytest.mark.parametrize("k", [1, 16, 32])
def test_what_is_shallow_is_copied_only_to_be_transposed(k: int) -> None:
    for order in ("row", "col"):
        chosen = choose_panels(GemmSpec(b_order="col" if order == "col" else "row"), (2000, 2000, k), CPU)
        assert chosen is not None
        assert chosen.b.memory == ("private" if order == "col" else "global")


ALONG_K: tuple[tuple[GemmSpec, Shape, bool], ...] = (
    (GemmSpec(), (4000, 1, 4000), True),
    (GemmSpec(c_order="col"), (4000, 3, 300), True),
    (GemmSpec(b_order="col"), (1, 4000, 4000), True),
    (GemmSpec(b_order="col"), (12, 4000, 1000), True),
    (GemmSpec(b_order="col"), (1000, 1000, 1000), False),
    (GemmSpec(), (1, 4000, 4000), False),
    (GemmSpec(a_order="col"), (4000, 1, 4000), False),
    (GemmSpec(), (4000, 1, 12), False),
)


@pytest.mark.parametrize(("spec", "shape", "along_k"), ALONG_K, ids=str)
def test_few_columns_and_columns_in_lines_go_along_k(spec: GemmSpec, shape: Shape, along_k: bool) -> None:
    """The same order of sums on any number of cores there, too."""
    chosen = [choose_panels(spec, shape, replace(CPU, cores=cores)) for cores in (1, 2, 16)]
    assert [s is not None and s.dot_product for s in chosen] == [along_k] * 3
    assert len({(s.kc, s.vector, s.split_k) for s in chosen if s is not None}) == 1


def test_few_rows_have_tiles_of_as_many_and_b_in_few_lines_at_a_time() -> None:
    chosen = choose_panels(GemmSpec(), (2, 8192, 8192), CPU)
    assert chosen is not None
    assert chosen.tile[0] == 2
    assert chosen.kc == 8
    # Rows at the same places of their pages, or at others; and from memory.
    for n, kc in ((2048, 8), (2000, 16), (3000, 8)):
        one = choose_panels(GemmSpec(), (1, n, n), CPU)
        assert one is not None
        assert (one.tile, one.kc) == ((1, 64), kc)


def test_few_rows_read_a_b_from_memory_some_lines_at_a_time_and_a_cached_one_by_whole_columns() -> None:
    """8x4096x4096 took 1.5 times as long by a copy of B, which hardware fetches ahead no better."""
    for shape in ((8, 4096, 4096), (12, 3000, 3000), (11, 3648, 4804)):
        chosen = choose_panels(GemmSpec(), shape, replace(CPU, cores=1))
        assert chosen is not None
        assert (chosen.tile[0], chosen.b.memory, chosen.kc, chosen.b_prefetch) == (shape[0], "global", 8, 0)
    for shape in ((8, 1500, 1200), (64, 4096, 4096)):
        chosen = choose_panels(GemmSpec(), shape, CPU)
        assert chosen is not None
        assert chosen.kc > 16
        assert chosen.b_prefetch > 0 or chosen.b.memory == "private"
    few = choose_panels(GemmSpec(), (3, 452, 2082), CPU)
    assert few is not None
    assert (few.kc, few.b_prefetch) == (1024, 8), "whole columns are prefetched for any number of rows"


@pytest.mark.parametrize("m", range(2, 29))
def test_few_rows_and_few_columns_make_up_tiles_without_a_rest(m: int) -> None:
    """A tile of 12 rows would compute four for nothing where C has 8. The same of columns, beside vectors along K."""
    by_rows = choose_panels(GemmSpec(), (m, 1000, 1000), CPU), 0
    by_columns = choose_panels(GemmSpec(), (2000, min(m, 10), 600), CPU), 1
    for (chosen, axis), size in ((by_rows, m), (by_columns, min(m, 10))):
        assert chosen is not None
        if axis == 0 or chosen.dot_product:
            tiles = -(-size // chosen.tile[axis])
            assert tiles * chosen.tile[axis] - size < tiles


def test_a_c_by_columns_is_written_once() -> None:
    """An element at a time, so that sums don't wait there; few rows have tiles of as many where A is by columns."""
    chosen = choose_panels(GemmSpec(a_order="col", c_order="col"), (8, 1000, 2000), CPU)
    assert chosen is not None
    assert (chosen.tile[0], chosen.kc) == (8, 0)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_sums_of_16_bit_floats_stay_in_registers_or_wait_in_float32(dtype: DType) -> None:
    """C would round them between blocks of K, unless it is in float32, or a workspace takes the parts of K."""
    spec = GemmSpec(dtype=dtype)
    for shape, kc, parts in (
        ((1000, 1000, 2000), 0, 1),
        ((1000, 1000, 4000), 1024, 2),
        ((1, 4096, 4096), 8, 2),
        ((6, 64, 100000), None, 12),
    ):
        chosen = choose_panels(spec, shape, CPU)
        assert chosen is not None
        assert (chosen.vector, chosen.split_k) == (16, parts)
        assert kc is None or chosen.kc == kc
        driver.emit(spec, chosen, target=CPU)
    wide = choose_panels(GemmSpec(dtype=dtype, c_dtype="float32"), (1000, 1000, 4000), CPU)
    assert wide is not None
    assert wide.kc > 0
    assert [problem for problem in problems_as_asked(spec, wide, CPU) if "would round the sums" in problem]


def test_what_vectors_cannot_do_is_left_to_others() -> None:
    assert choose_panels(GemmSpec(dtype=I8), (1000, 1000, 1000), CPU) is None
    unconverted = replace(CPU, features=CPU.features - {"converted_vectors"})
    assert choose_panels(GemmSpec(dtype=F16), (1000, 1000, 1000), unconverted) is None


def test_a_compiler_that_keeps_fewer_pointers_gets_fewer_rows_in_place() -> None:
    """Intel's compiler, which has sub-groups, keeps the pointers of twelve rows where B is in place, LLVM of eight."""
    intel = replace(CPU, features=CPU.features | {"sub_groups"})
    tall = [shape for shape in SHARED_OUT if (s := choose_panels(GemmSpec(), shape, intel)) and s.tile == (12, 32)]
    assert len(tall) >= 5
    for shape in SHARED_OUT:
        chosen = choose_panels(GemmSpec(), shape, CPU)
        assert chosen is not None
        assert chosen.b.memory == "private" or chosen.tile[0] <= machine_of(CPU).pointers


@pytest.fixture
def measured() -> Iterator[Target]:
    """A device that is its own, so that what is measured on it is not taken for another."""
    target = replace(CPU, name="measured")
    yield target
    calibrate(target, {})


def test_what_was_measured_on_a_device_decides(measured: Target) -> None:
    shape = 100, 100, 100
    before = choose_panels(GemmSpec(), shape, measured)
    derived = machine_of(measured)
    calibrate(measured, {"threads": 1e7, "third_line": -1.0, "first": 5.0})
    assert machine_of(measured) == replace(derived, threads=1e7), "what is no time, or is not measured, is left out"
    alone = choose_panels(GemmSpec(), shape, measured)
    assert before is not None and alone is not None
    assert groups(before, shape) > 1 == groups(alone, shape)
    assert dict(measured_on(measured)) == {"first": 5.0, "threads": 1e7}
    # An order of sums that has to hold for any number of rows is not chosen by it.
    orders = [cycles for cycles, _ in by_order(GemmSpec(), shape, measured, 2, 128)]
    calibrate(measured, {})
    assert orders == [cycles for cycles, _ in by_order(GemmSpec(), shape, measured, 2, 128)]
    assert choose_panels(GemmSpec(), shape, measured) == before


def test_rows_at_a_time_follow_from_what_memory_gives(measured: Target) -> None:
    """By several rows of A at a time where that was found to be faster."""
    for several, rows in ((4.0, range(2, 9)), (16.0, range(1, 2))):
        calibrate(measured, {"memory_line": 8.0, "several_line": several})
        chosen = choose_panels(GemmSpec(), (8192, 1, 8192), measured)
        assert chosen is not None
        assert chosen.tile[0] in rows


def test_the_loop_over_k_is_written_out_beside_a_copy() -> None:
    def steps(m: int, n: int, k: int, **spec: object) -> int:
        chosen = choose_panels(replace(GemmSpec(), **spec), (m, n, k), CPU)  # type: ignore[arg-type]
        assert chosen is not None
        return chosen.block_k

    assert steps(1024, 1024, 1024) == 4
    assert steps(1024, 1024, 1024, a_order="col") == 1, "neighbours of A's steps would be shuffled"
    assert steps(500, 64, 30) == 1, "B in place"


def test_rows_of_a_pass_many_panels_where_c_is_large() -> None:
    """The next tile is that to the right: hardware fetches its lines of C ahead, and A comes once for all panels."""
    for shape in ((2603, 2754, 128), (1489, 3792, 608), (2048, 2048, 2048)):
        chosen = choose_panels(GemmSpec(), shape, CPU)
        assert chosen is not None
        assert chosen.mc == 1
        assert chosen.macro_kernel[1] >= 4


def test_b_that_many_rows_read_is_copied() -> None:
    """In place its vectors lie on two lines each where rows are no whole lines: 176x109x2944 took 1.4 times as long."""
    for shape in ((176, 109, 2944), (100, 100, 100000)):
        chosen = choose_panels(GemmSpec(), shape, CPU)
        assert chosen is not None
        assert chosen.b.memory == "private", shape


def test_vectors_of_half_a_line_lie_on_two_lines_half_as_often() -> None:
    """Those of bfloat16 are 32 bytes; by 12x32, as if each lay on two, 101x156x416 took 1.25 times as long."""
    xeon = replace(CPU, caches=(48 << 10, 2 << 20, 0), cores=1, features=CPU.features | {"sub_groups"})
    chosen = choose_panels(GemmSpec(dtype=BF16), (101, 156, 416), xeon)
    assert chosen is not None
    assert chosen.tile == (6, 64)


def test_lines_of_a_large_b_in_place_are_prefetched() -> None:
    """10x448x928 has one tile of rows; a B of the second level takes 1.05 times as long."""
    for shape, ahead in (((10, 448, 928), 8), ((10, 224, 321), 0)):
        chosen = choose_panels(GemmSpec(), shape, replace(CPU, caches=(48 << 10, 2 << 20, 0), cores=1))
        assert chosen is not None
        assert chosen.b.memory == "global"
        assert chosen.b_prefetch == ahead
    without = replace(CPU, features=CPU.features - {"cache_prefetch"}, cores=1)
    chosen = choose_panels(GemmSpec(), (10, 448, 928), without)
    assert chosen is not None
    assert chosen.b_prefetch == 0


def test_the_first_tile_copies_b_where_few_rows_share_a_panel() -> None:
    """48x666x887 rises from 0.72 to 0.92 of MKL; one row of tiles, many rows and a B of many pages don't gain."""
    xeon = replace(CPU, caches=(48 << 10, 2 << 20, 0))
    for cores in (1, 2):
        for m, n, is_fused in (
            (48, 666, True),
            (28, 1024, True),
            (1, 666, False),
            (1000, 666, False),
            (48, 9000, False),
        ):
            chosen = choose_panels(GemmSpec(), (m, n, 887), replace(xeon, cores=cores))
            assert chosen is not None
            assert chosen.fused_copy == is_fused
            assert chosen.b_prefetch == 16 or not is_fused


def test_a_c_of_five_vectors_has_tiles_as_wide() -> None:
    wide, other = (choose_panels(GemmSpec(), (897, n, 592), CPU) for n in (77, 90))
    assert wide is not None
    assert other is not None
    assert wide.tile == (5, 80)
    assert other.tile[1] < 80


def test_a_small_product_wakes_no_thread() -> None:
    for size, most in ((64, 1), (128, 64)):
        chosen = choose_panels(GemmSpec(), (size,) * 3, CPU)
        assert chosen is not None
        assert 1 <= groups(chosen, (size,) * 3) <= most
    assert groups(choose_panels(GemmSpec(), (256,) * 3, CPU), (256,) * 3) > 1


def test_other_devices_are_left_to_others() -> None:
    assert choose_panels(GemmSpec(), None, TARGETS["intel"]) is None


@pytest.mark.parametrize("caches", [(0, 0, 0), (1, 1, 1), (1 << 40, 1 << 40, 1 << 40), (0, 1 << 18, 0)], ids=str)
def test_a_device_that_says_little_or_much_of_its_cache(caches: tuple[int, int, int]) -> None:
    chosen = choose_panels(GemmSpec(), (2000, 2000, 2000), replace(CPU, caches=caches, cores=1))
    assert chosen is not None
    usual = choose_panels(GemmSpec(), (2000, 2000, 2000), replace(CPU, caches=CACHES, cores=1))
    assert chosen == usual or any(caches)


def test_caches_as_linux_describes_them(tmp_path: Path) -> None:
    assert limits.caches(tmp_path) is None
    described = (("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K"), ("3", "Unified", "?"))
    for number, texts in enumerate(described):
        (tmp_path / f"index{number}").mkdir()
        for name, text in zip(("level", "type", "size"), texts, strict=True):
            (tmp_path / f"index{number}" / name).write_text(f"{text}\n")
    assert limits.caches(tmp_path) == (48 << 10, 2 << 20, 0)


def test_the_account_is_what_is_compared() -> None:
    shape = (700, 900, 1100)
    chosen = choose_panels(GemmSpec(), shape, CPU)
    assert chosen is not None
    worse = chosen.but(macro_kernel=(1, 1), grid_multiple=(1, 1))
    first, second = cycles(GemmSpec(), [chosen, worse], shape, CPU)
    assert sum(account(GemmSpec(), chosen, shape, CPU).values()) == pytest.approx(first)
    assert first < second
    ideal = 700 * 900 * 1100 / 16 / machine_of(CPU).fma / CPU.cores
    assert first > ideal


SMALL: tuple[Shape, ...] = ((1, 1, 1), (16, 16, 100), (30, 20, 16))
THIN: tuple[Shape, ...] = ((1, 100000, 3), (8192, 1, 20), (1, 1, 20000), (64, 64, 64))


@pytest.mark.parametrize("shape", [*SMALL, *THIN], ids=str)
def test_the_runtime_and_the_command_line_choose_by_one_rule(shape: Shape) -> None:
    """Few multiplications, counted as it makes them, go to the one kernel that small products share; all else not."""
    m, n, k = shape
    cpu = TARGETS["cpu"]
    chosen = choose(GemmSpec(), shape, cpu)
    assert chosen == choose(GemmSpec(m=m, n=n, k=k), None, cpu)
    assert (chosen == presets.load(SMALL_PRESET).schedule) == (shape in SMALL)
    asked = ("--target", "cpu", "-M", str(m), "-N", str(n), "-K", str(k))
    name = kernel_name(chosen, GemmSpec())
    assert printed("explain", *asked).startswith(f"{name}:")
    assert f"{name}(" in printed("emit", *asked)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1024, 1024, 1024), (256, 4096, 300), (500, 8, 4000), (1, 4096, 4096)], ids=str)
def test_names_of_chosen_kernels_can_be_said(dtype: str, shape: Shape) -> None:
    """No digest: what caches decide beside the tile and KC is in the head comment."""
    for order in ("row", "col"):
        spec = GemmSpec(dtype=dtype, b_order=order)
        name = kernel_name(choose(spec, shape, TARGETS["cpu"]), spec)
        assert re.fullmatch(r"gemm_f(32|64)_\d+x\d+(_dot)?(_kc\d+)?(_split\d+)?(_v\d+)?", name), name


def test_the_command_line_chooses_and_explains() -> None:
    chosen = choose_panels(GemmSpec(m=1000, n=1000, k=1000), None, TARGETS["cpu"])
    assert chosen is not None
    text = printed("explain", "--target", "cpu", "-M", "1000", "-N", "1000", "-K", "1000")
    assert text.startswith(f"{kernel_name(chosen, GemmSpec())}: C = ")
    (down, across), cols = chosen.macro_kernel, chosen.tile[1]
    assert f"{down}x{across} tiles one after the other" in text
    assert f"blocks of {across}x{chosen.kc}x{cols} to private memory" in text
    assert "cycles of the busiest of 1 core for 1000 x 1000 x 1000, by the model of gemmgen/cpu" in text
    assert "multiply-adds and loads" in text
    naive = printed("explain", "--target", "cpu", "--method", "naive")
    assert naive.startswith("gemm_f32_naive_1x1: C = ") and "vectors of" not in naive
