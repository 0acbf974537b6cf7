"""Products by matrix instructions, as the interpreter runs them: all types, lanes and layouts, ragged sizes."""

from __future__ import annotations

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.ir.dtypes import BF16, F16, F32, I8, DType
from gemmgen.ir.expr import Bin, Const, Var
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import exprs, walk, walk_expr
from gemmgen.methods import defaults
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, check_products, interpret, layouts


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize(("dtype", "result"), [(F16, F32), (F16, F16), (BF16, F32), (I8, None)])
def test_any_size_and_layout(dtype: DType, result: DType | None, lanes: int, rng: np.random.Generator) -> None:
    schedule = defaults("dpas", (16, 2), (1, lanes), 32 // dtype.size, lanes)
    specs = list(layouts(GemmSpec(dtype=dtype, c_dtype=result)))
    for size, spec in zip([(33, 18, 19), (1, 1, 1), (16, 40, 33), (7, 3, 64)] * 2, specs, strict=True):
        check_products(driver.lower_program(spec, schedule, TARGETS["intel"]), spec, rng, size)


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("dtype", [F16, I8], ids=str)
def test_several_instructions_along_k_in_a_step(dtype: DType, lanes: int, rng: np.random.Generator) -> None:
    depth = 32 // dtype.size
    schedule = defaults("dpas", (24, 3), (1, lanes), 3 * depth, lanes).but(large_grf=True)
    spec = GemmSpec(dtype=dtype, a_order="col")
    check_products(
        driver.lower_program(spec, schedule, TARGETS["intel"]),
        spec,
        rng,
        (25, 3 * lanes + 1, 3 * depth + 1),
        (24, 5, 2 * depth),
    )


def test_what_lies_past_k_never_counts(rng: np.random.Generator) -> None:
    """Not even where what happens to lie there is NaN: the padding of K is zeros, not what is next in memory."""
    spec = GemmSpec(dtype=F16, c_dtype=F32)
    problem = Problem.of(rng, spec, 9, 9, 5, 1.0, 0.0)
    a = problem.a.copy()
    a[1] = np.nan
    program = driver.lower_program(spec, defaults("dpas", (8, 1)), TARGETS["intel"])
    result = interpret(program, spec, Problem(a, problem.b, problem.c, 1.0, 0.0, spec), pad=0)
    assert np.isnan(result[1]).all()
    assert not np.isnan(np.delete(result, 1, axis=0)).any()


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("dtype", [F16, I8], ids=str)
def test_packing_divides_by_constants_alone(dtype: DType, lanes: int) -> None:
    """And only sizes, to round them up: each element's place is a sum."""
    schedule = defaults("dpas", (24, 3), (1, lanes), 64 // dtype.size, lanes).but(large_grf=True)
    program = driver.lower_program(GemmSpec(dtype=dtype), schedule, TARGETS["intel"])
    for kernel in program.kernels[:2]:
        nodes = (node for stmt in walk(kernel.body) for root in exprs(stmt) for node in walk_expr(root))
        divided = [node for node in nodes if isinstance(node, Bin) and node.op in ("/", "%")]
        assert {str(node.op) for node in divided} == {"/"}
        assert all(isinstance(node.b, Const) for node in divided)
        assert not {"local_row", "local_col", "i", "j", "p"} & {
            x.name for node in divided for x in walk_expr(node) if isinstance(x, Var)
        }
