"""What is chosen for a CPU: by its sizes, its caches and its cores."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from gemmgen.sweeps import Shape, account, choose_sweep, costs, cycles

from gemmgen import driver, presets
from gemmgen.choose import SMALL_PRESET, choose
from gemmgen.ir.dtypes import F16, F64
from gemmgen.ir.target import TARGETS, Target
from gemmgen.kernel_names import kernel_name
from gemmgen.passes.validate import validate
from gemmgen.runtime import limits
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support.cli import printed

#: Two cores, as `target_of` describes them.
CPU = replace(TARGETS["cpu"], cores=2, cache_bytes=1 << 20, register_bytes=65536)
SHAPES: tuple[Shape, ...] = (
    *((1, 1, 1), (5, 3, 0), (7, 11, 13), (64, 64, 64), (1000, 1000, 1000), (2048, 2048, 2048), (3, 5000, 2)),
    *((64, 4096, 4096), (4096, 64, 4096), (4096, 4096, 64), (100, 100, 100000), (4096, 1, 4096)),
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_chosen_can_be_had_and_shares_c_out(shape: Shape) -> None:
    schedule = choose_sweep(GemmSpec(), shape, CPU)
    assert schedule is not None
    validate(GemmSpec(), schedule, CPU)
    assert choose_sweep(GemmSpec(m=shape[0], n=shape[1], k=shape[2] or None), (9, 9, shape[2]), CPU) == schedule
    if shape[0] * shape[1] > 20000:
        assert schedule.grid_multiple != (1, 1), "an odd number of work-items leaves a core without one"


@pytest.mark.parametrize("shape", [s for s in SHAPES if s[2] > 100], ids=str)
def test_the_order_of_sums_depends_on_the_sizes_alone(shape: Shape) -> None:
    """K in the same blocks and parts on any number of cores: the same bits."""
    chosen = [choose_sweep(GemmSpec(), shape, replace(CPU, cores=cores)) for cores in (1, 2, 3, 16, 64)]
    assert len({(s.kc, s.split_k) for s in chosen if s is not None}) == 1
    assert None not in chosen


def test_long_k_and_few_tiles_go_in_parts() -> None:
    for shape, split in (((6, 64, 100000), 12), ((100, 100, 100000), 1), ((6, 64, 4096), 1)):
        chosen = choose_sweep(GemmSpec(), shape, replace(CPU, cores=8))
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
        chosen = choose_sweep(spec, shape, target)
        assert chosen is not None
        assert chosen.vector == vector
        assert chosen.b.memory in memories
        driver.emit(spec, chosen, target=target)


@pytest.mark.parametrize("n", [63, 31, 17, 64])
def test_nothing_narrower_than_a_tile_is_read_in_place(n: int) -> None:
    chosen = choose_sweep(GemmSpec(), (521, n, 135), CPU)
    assert chosen is not None
    assert chosen.b.memory == "private" or n >= chosen.tile[1]


def test_what_drives_itself_from_the_caches_is_not_chosen() -> None:
    """B in place with lines whole pages apart, and more rows of A like that than the first level has places for."""
    for n in (512, 640, 1024, 1032, 2048):
        for k in (512, 520, 1024, 1032):
            chosen = choose_sweep(GemmSpec(), (1000, n, k), CPU)
            assert chosen is not None
            if n * 4 % 4096 == 0 and k > 640:
                assert chosen.b.memory == "private"
            if k * 4 % 4096 == 0:
                assert chosen.tile[0] <= costs().rows_in_place


def test_rows_go_in_blocks_where_a_comes_from_memory_and_k_at_once_where_it_fits() -> None:
    large = choose_sweep(GemmSpec(), (4096, 4096, 4096), CPU)
    assert large is not None
    assert large.mc * large.tile[0] * large.kc * 4 <= costs().near_share * costs().second_level
    assert large.mc > 0
    assert cycles(GemmSpec(), large, (4096,) * 3, CPU) < cycles(GemmSpec(), large.but(mc=0), (4096,) * 3, CPU)
    for size in (1000, 1024):
        chosen = choose_sweep(GemmSpec(), (size, size, size), CPU)
        assert chosen is not None
        assert (chosen.kc, chosen.mc) == (1024, 0)


@pytest.mark.parametrize("k", [1, 16, 32])
def test_what_is_shallow_is_copied_only_to_be_transposed(k: int) -> None:
    for order in ("row", "col"):
        chosen = choose_sweep(GemmSpec(b_order="col" if order == "col" else "row"), (2000, 2000, k), CPU)
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
    chosen = [choose_sweep(spec, shape, replace(CPU, cores=cores)) for cores in (1, 2, 16)]
    assert [s is not None and s.dot_product for s in chosen] == [along_k] * 3
    assert len({(s.kc, s.vector, s.split_k) for s in chosen if s is not None}) == 1


def test_few_rows_have_tiles_of_as_many_and_b_in_few_lines_at_a_time() -> None:
    chosen = choose_sweep(GemmSpec(), (2, 8192, 8192), CPU)
    assert chosen is not None
    assert chosen.tile[0] == 2
    assert chosen.kc in (8, 32)
    one = choose_sweep(GemmSpec(), (1, 8192, 8192), CPU)
    assert one is not None
    assert (one.tile, one.kc) == ((1, 256), 8)


def test_a_c_by_columns_is_written_once() -> None:
    """An element at a time, so that sums don't wait there; few rows have tiles of as many where A is by columns."""
    chosen = choose_sweep(GemmSpec(a_order="col", c_order="col"), (8, 1000, 4096), CPU)
    assert chosen is not None
    assert (chosen.tile[0], chosen.kc) == (8, 0)


def test_what_vectors_cannot_do_is_left_to_others() -> None:
    assert choose_sweep(GemmSpec(dtype=F16), (1000, 1000, 1000), CPU) is None


def test_a_makers_processors_have_costs_of_their_own() -> None:
    """Intel's leave a page more slowly, so that few rows are enough for a copy of B."""
    shape = 126, 768, 1000
    chosen = [choose_sweep(GemmSpec(), shape, replace(CPU, cores=2, maker=maker)) for maker in ("", "intel", "other")]
    assert [s is not None and s.b.memory for s in chosen] == ["global", "private", "global"]
    assert costs("intel").page > costs().page
    assert costs("other") == costs()
    assert limits.maker("Intel(R) Xeon(R) Processor") == "intel"
    assert limits.maker("AMD EPYC") == ""


def test_rows_of_a_tile_stay_where_the_second_level_costs() -> None:
    """On Intel's: then all panels of B pass by before the next rows."""
    sizes = 1000, 1024, 2048, 4096
    intel = replace(CPU, cores=2, maker="intel", cache_bytes=2 << 20)
    chosen = [choose_sweep(GemmSpec(), (size,) * 3, intel) for size in sizes]
    assert [s and (s.tile, s.mc, s.macro_kernel[1] > 1) for s in chosen] == [((6, 64), 1, True)] * len(sizes)
    others = [choose_sweep(GemmSpec(), (size,) * 3, replace(intel, maker="")) for size in sizes]
    assert all(s is not None and s.mc != 1 for s in others)


def test_what_intels_processors_want_in_the_loop_over_k() -> None:
    """Four steps written out, and prefetches where there are registers for them; nothing of it for others, or SYCL."""
    intel = replace(CPU, cores=2, maker="intel", cache_bytes=2 << 20)

    def said(m: int, n: int, k: int, target: Target = intel, **spec: object) -> tuple[object, ...]:
        s = choose_sweep(replace(GemmSpec(), **spec), (m, n, k), target)  # type: ignore[arg-type]
        assert s is not None
        return s.tile, s.block_k, s.b_prefetch, s.c_prefetch

    assert said(1024, 1024, 1024) == ((6, 64), 4, 8, True)
    assert said(256, 256, 256) == ((6, 64), 4, 8, False), "too short to ask for six rows"
    assert said(300, 40, 700) == ((8, 48), 4, 0, True)
    assert said(1024, 1024, 1024, c_order="col")[1:] == (4, 8, False)
    assert said(1024, 1024, 1024, replace(intel, maker=""))[1:] == (1, 0, False)
    assert said(1024, 1024, 1024, replace(intel, features=intel.features - {"cache_prefetch"}))[1:] == (4, 0, False)
    assert said(500, 64, 30)[1:] == (1, 0, False), "B in place"


def test_what_intels_processors_want_of_thin_products_and_small_ones() -> None:
    """Copies, which are read by pointers; rows from memory several at a time; one work-item, which wakes no thread."""
    intel = replace(CPU, cores=2, maker="intel", cache_bytes=2 << 20)

    def chosen(m: int, n: int, k: int) -> Schedule:
        s = choose_sweep(GemmSpec(), (m, n, k), intel)
        assert s is not None
        return s

    def work_items(size: int) -> int:
        s = chosen(size, size, size)
        extents = zip(s.tile, s.macro_kernel, s.grid_multiple, strict=True)
        return prod(-(-size // (unit * sweep * even)) * even for unit, sweep, even in extents)

    assert chosen(4096, 64, 4096).b.memory == chosen(100, 100, 100000).b.memory == "private"
    assert chosen(8192, 1, 8192).tile[0] > 2
    assert work_items(64) == 1 < work_items(128)


def test_other_devices_are_left_to_others() -> None:
    assert choose_sweep(GemmSpec(), None, TARGETS["intel"]) is None


@pytest.mark.parametrize("cache", [0, 1, 1 << 18, 1 << 40])
def test_a_device_that_says_little_or_much_of_its_cache(cache: int) -> None:
    chosen = choose_sweep(GemmSpec(), (2000, 2000, 2000), replace(CPU, cache_bytes=cache, cores=1))
    assert chosen is not None
    usual = choose_sweep(GemmSpec(), (2000, 2000, 2000), replace(CPU, cache_bytes=costs().second_level, cores=1))
    assert chosen == usual or cache in (1, 1 << 18)


def test_the_account_is_what_is_compared() -> None:
    shape = (700, 900, 1100)
    chosen = choose_sweep(GemmSpec(), shape, CPU)
    assert chosen is not None
    assert sum(account(GemmSpec(), chosen, shape, CPU).values()) == cycles(GemmSpec(), chosen, shape, CPU)
    worse = chosen.but(macro_kernel=(1, 1), grid_multiple=(1, 1))
    assert cycles(GemmSpec(), chosen, shape, CPU) < cycles(GemmSpec(), worse, shape, CPU)
    ideal = 700 * 900 * 1100 / 16 / costs().fma_per_cycle / CPU.cores
    assert cycles(GemmSpec(), chosen, shape, CPU) > ideal


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


def test_the_command_line_chooses_and_explains() -> None:
    chosen = choose_sweep(GemmSpec(m=1000, n=1000, k=1000), None, TARGETS["cpu"])
    assert chosen is not None
    text = printed("explain", "--target", "cpu", "-M", "1000", "-N", "1000", "-K", "1000")
    assert text.startswith(f"{kernel_name(chosen, GemmSpec())}: C = ")
    assert "k_block by 1024, m_block by 96, " in text
    assert "171x4 tiles one after the other" in text
    assert "blocks of 4x1024x64 to private memory" in text
    assert "cycles of the busiest of 1 core for 1000 x 1000 x 1000, by the model of sweeps.toml" in text
    assert "multiply-adds and loads" in text
    naive = printed("explain", "--target", "cpu", "--method", "naive")
    assert naive.startswith("gemm_f32_naive_1x1: C = ") and "vectors of" not in naive
