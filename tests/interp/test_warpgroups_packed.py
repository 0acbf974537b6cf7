"""Products by warpgroups of matrices that no tensor map takes as they lie: a kernel before lays them out anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.ir.copy_instructions import SPANNING_VECTOR
from gemmgen.ir.dtypes import BF16, F32
from gemmgen.ir.stmt import Body, For, If, Stmt, VectorCopy
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.broken import broken, faults
from tests.support.problems import Problem, check_products, interpret

SM_90A = TARGETS["sm_90a"]
#: Lines of an odd number of elements, nothing assumed.
SPEC = GemmSpec(dtype=BF16, c_dtype=F32)


def packed(method: str, which: str, transposed: str = "") -> Schedule:
    """128x64 of C a block; the operands of `which` are packed, those of `transposed` in the order that is not usual."""
    base = defaults(method, (2, 16), (64, 4)).but(stages=3)
    a, b = (
        replace(operand, prepacked=name in which, transposed=name in transposed)
        for name, operand in (("a", base.a), ("b", base.b))
    )
    return base.but(a=a, b=b)


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator) -> None:
    program = driver.lower_program(spec, schedule, SM_90A)
    check_products(program, spec, rng, (65, 71, 201))


@pytest.mark.parametrize("transposed", ["", "a", "b"])
@pytest.mark.parametrize(("a", "b"), [("row", "col"), ("col", "row")])
def test_any_order_and_odd_lines(a: Order, b: Order, transposed: str, rng: np.random.Generator) -> None:
    check(replace(SPEC, a_order=a, b_order=b), packed("wgmma", "ab", transposed), rng)


@pytest.mark.parametrize("which", ["a", "b"])
def test_one_of_them(which: str, rng: np.random.Generator) -> None:
    """The other's lines are assumed to be as maps have them."""
    check(replace(SPEC, ld_multiple=8), packed("wgmma", which), rng)


def test_parts_of_k(rng: np.random.Generator) -> None:
    check(SPEC, packed("wgmma", "ab").but(split_k=3), rng)


def test_float32_of_any_order(rng: np.random.Generator) -> None:
    """Whose tiles the instructions can't turn: whole numbers, which TF32 holds."""
    spec = GemmSpec(a_order="col", b_order="row")
    program = driver.lower_program(spec, packed("wgmma_tf32", "ab", "b"), SM_90A)
    problem = replace(Problem.integers(rng, 65, 71, 201), spec=spec).typed(spec)
    assert np.array_equal(interpret(program, spec, problem, 3), problem.expected)


def test_a_prologue_is_applied_where_it_is_packed(rng: np.random.Generator) -> None:
    spec = replace(SPEC, prologue_b="b * 3 - 1")
    program = driver.lower_program(spec, packed("wgmma", "ab"), SM_90A)
    check_products(program, spec, rng, (65, 70, 130), factors=(1.0, 0.0))


@pytest.mark.parametrize(("parts", "packed"), [(1, True), (3, True), (3, False)])
def test_what_the_chooser_makes_of_a_preset_is_taken(parts: int, packed: bool) -> None:
    schedule = candidates.varied("wgmma_128x256_s4", parts, (packed, packed))
    spec = GemmSpec(dtype=BF16, ld_multiple=1 if packed else 8)
    assert not driver.refusals(spec, schedule, "cuda", SM_90A)


def test_vectors_are_read_where_there_is_something_around_them(rng: np.random.Generator) -> None:
    """A's lines 16 to 63 of 65 are; the first and the last block, read so, would go past A's ends."""
    program = driver.lower_program(SPEC, packed("wgmma", "ab"), SM_90A)
    problem = Problem.of(rng, SPEC, 65, 71, 201, -2.0, 3.0)

    def everywhere(stmt: Stmt) -> Body:
        match stmt:
            case If(_, (For(body=(_, VectorCopy() as move, _)),) as vectors) if move.atom == SPANNING_VECTOR:
                return vectors
        return (stmt,)

    with faults("out-of-bounds", "reads around 8 elements from 0 of"):
        interpret(replace(program, kernels=(broken(program.kernels[0], everywhere),)), SPEC, problem, 3)


def test_callers_give_matrices_at_any_address() -> None:
    """What the workspaces' maps ask for is nothing that a caller's matrix must keep."""
    spec = replace(SPEC, c_dtype=None)
    source = driver.emit(spec, packed("wgmma", "ab").but(c_width=1), "cuda", SM_90A)
    assert source.alignment == 1
    assert [x.name for x in source.workspaces] == ["a_packed", "b_packed"]
    assert [x.operand for entry in source.entry_points for x in entry.maps] == ["a_packed", "b_packed"]
