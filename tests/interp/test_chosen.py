"""That what is chosen computes the product: schedules that are no presets, but made of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.choice.gpu import ranked
from gemmgen.choose import choose
from gemmgen.ir.dtypes import BF16, C64, F8_E4M3, F32, F64, I8
from gemmgen.ir.instructions import cut_sums, product_error
from gemmgen.ir.target import TARGETS
from gemmgen.oracle import answer
from gemmgen.passes.validate import is_transposed
from gemmgen.spec import GemmSpec, Order
from tests.support.problems import Problem, check_products, interpret


@pytest.mark.parametrize(
    ("spec", "target", "shape", "how"),
    [
        (GemmSpec(c_order="col"), "sm_80", (40, 36, 60), "slm"),
        (GemmSpec(c_order="col"), "sm_90", (40, 36, 530), "slm split"),
        (GemmSpec(b_order="col"), "sm_90", (40, 36, 530), "slm split"),
        (GemmSpec(dtype=BF16, c_order="col"), "sm_80", (70, 40, 150), "mma_direct"),
        (GemmSpec(dtype=BF16, c_order="col"), "sm_80", (71, 69, 65), "mma packed_a packed_b"),
        (GemmSpec(dtype=BF16, c_order="col"), "sm_90a", (72, 70, 150), "wgmma packed_a packed_b"),
        (GemmSpec(dtype=F64, c_order="col"), "sm_90a", (40, 36, 300), "mma_f64 split"),
        (GemmSpec(dtype=C64), "sm_90a", (10, 40, 200), "slm split"),
        (GemmSpec(dtype=I8), "sm_80", (67, 41, 601), "mma_s8 split packed_a packed_b"),
        (GemmSpec(allow_tf32=True, b_order="col", ld_multiple=4), "sm_90a", (70, 72, 100), "wgmma_tf32"),
        (GemmSpec(allow_tf32=True), "sm_80", (260, 256, 96), "mma_tf32"),
        (GemmSpec(dtype=BF16), "sm_90a", (131, 67, 64), "wgmma packed_a packed_b"),
        (GemmSpec(dtype=I8, c_order="col"), "sm_90a", (70, 40, 300), "wgmma_s8 packed_a packed_b"),
        (GemmSpec(dtype=I8, ld_multiple=16), "sm_90a", (64, 48, 1056), "wgmma_s8 packed_b"),
        (GemmSpec(dtype=I8, b_order="col", ld_multiple=16), "sm_90a", (64, 48, 2080), "wgmma_s8 split"),
        (GemmSpec(dtype=F8_E4M3, a_order="col", ld_multiple=16), "sm_90a", (64, 48, 272), "wgmma_f8 packed_a packed_b"),
    ],
    ids=str,
)
def test_it_is_right(
    spec: GemmSpec, target: str, shape: tuple[int, int, int], how: str, rng: np.random.Generator
) -> None:
    few = replace(TARGETS[target], cores=8)
    schedule = choose(spec, shape, few)
    packed = schedule.a.prepacked * " packed_a" + schedule.b.prepacked * " packed_b"
    assert schedule.method + (schedule.split_k > 1) * " split" + packed == how
    whole = not spec.accumulator.is_float
    problem = Problem.of(rng, spec, *shape, 2 if whole else -1.5, 1 if whole else 0.5)
    found = interpret(driver.lower_program(spec, schedule, few), spec, problem, spec.ld_unit("a"))
    atom, matrices = (schedule.atom, spec.dtype), (problem.a, problem.b, problem.c)
    right = answer(
        spec, matrices, (problem.alpha, problem.beta), product_error=product_error(*atom), cut=cut_sums(*atom)
    )
    assert right.holds(found).all()


@pytest.mark.parametrize(
    ("orders", "multiples", "packed"),
    [
        (("row", "col"), (8, 8, 1), ""),  # a vocabulary of 50257
        (("row", "row"), (8, 1, 1), "b"),
        (("row", "row"), (1, 8, 8), "a"),
        (("col", "row"), (2, 8, 8), "a"),
        (("row", "col"), (1, 1, 8), "ab"),
    ],
    ids=str,
)
@pytest.mark.parametrize("c_order", ["row", "col"])
def test_only_what_needs_it_is_packed(
    orders: tuple[Order, Order],
    multiples: tuple[int, int, int],
    packed: str,
    c_order: Order,
    rng: np.random.Generator,
) -> None:
    """One short line of A, B or C once made a kernel lay out both A and B."""
    few = replace(TARGETS["sm_90a"], cores=8)
    spec = GemmSpec(dtype=BF16, a_order=orders[0], b_order=orders[1], c_order=c_order, ld_multiple=multiples)
    problem = Problem.of(rng, spec, 300, 330, 90, -1.5, 0.5)
    found = islice(ranked(spec, (300, 330, 90), few), 40)
    seen: set[tuple[bool, int, bool]] = set()
    for schedule in (each for _, each in found if each.by_warpgroups):
        a, b = (schedule.b, schedule.a) if is_transposed(spec, schedule, few) else (schedule.a, schedule.b)
        assert (a.prepacked, b.prepacked) == ("a" in packed, "b" in packed)
        assert not schedule.epilogue_stages or multiples[2] == 8
        kind = schedule.operands_swapped, schedule.epilogue_stages, schedule.persistent
        if kind not in seen:
            seen.add(kind)
            problem.check(interpret(driver.lower_program(spec, schedule, few), spec, problem, 1))
    assert any(staged for _, staged, _ in seen) == (multiples[2] == 8)


@pytest.mark.parametrize("name", ["a", "b"])
def test_stored_in_bytes(name: str, rng: np.random.Generator) -> None:
    spec = replace(GemmSpec(dtype=BF16, c_dtype=F32, ld_multiple=16), **{f"{name}_dtype": I8})  # type: ignore[arg-type]
    schedule = choose(spec, None, TARGETS["sm_90a"])
    assert schedule.by_warpgroups
    check_products(driver.lower_program(spec, schedule, TARGETS["sm_90a"]), spec, rng, (70, 67, 75), pad=16)
