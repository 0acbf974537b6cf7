"""Kernels whose sub-group size a compiler chooses: another one than they are written for fills C, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.errors import LoweringError
from gemmgen.ir.dtypes import F64, I32, DType
from gemmgen.ir.expr import Call, Const, compare
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import If, Return
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.methods import defaults
from gemmgen.simulator.execute import Argument, run
from gemmgen.spec import GemmSpec, Order

KHR = TARGETS["khr"]
M, N, K = 19, 45, 21


def arguments(dtype: DType, order: Order = "row") -> dict[str, Argument]:
    """A product with gaps behind each line of C, which nobody may write."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, size).astype(dtype.name) for size in ((M, K), (K, N)))
    ldc = (N if order == "row" else M) + 3
    lines = M if order == "row" else N
    c = np.full(lines * ldc, 7, dtype.name)
    sizes: dict[str, Argument] = {"m": M, "n": N, "k": K, "lda": K, "ldb": N, "ldc": ldc, "alpha": 1, "beta": 0}
    return {**sizes, "a": a.ravel(), "b": b.ravel(), "c": c}


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("dtype", [GemmSpec().dtype, F64, I32], ids=str)
@pytest.mark.parametrize("group", [(1, 8), (8, 8)])
def test_another_size_fills_all_of_c(group: tuple[int, int], dtype: DType, order: Order) -> None:
    spec = GemmSpec(dtype=dtype, c_order=order)
    kernel = driver.lower(spec, defaults("simd", (8, 2), group, 8), KHR)
    given = arguments(dtype, order)
    c = given["c"]
    assert isinstance(c, np.ndarray)
    run(kernel, given, sub_group_size=16)
    lines, length = (M, N) if order == "row" else (N, M)
    block = c.reshape(lines, -1)
    filled = np.isnan(block) if dtype.is_float else block == np.iinfo(dtype.name).min
    assert filled[:, :length].all()
    assert (block[:, length:] == 7).all()


def test_its_own_size_computes() -> None:
    kernel = driver.lower(GemmSpec(), presets.load("L3_SIMD_8x4_8x8").schedule, KHR)
    given = arguments(GemmSpec().dtype)
    a, b, c = (x for x in (given["a"], given["b"], given["c"]) if isinstance(x, np.ndarray))
    run(kernel, given)
    assert (c.reshape(M, -1)[:, :N] == a.reshape(M, K) @ b.reshape(K, N)).all()


def test_parts_of_k_are_filled_too() -> None:
    """What the second kernel then adds up is not a number."""
    program = driver.lower_program(GemmSpec(), presets.load("L3_SIMD_8x4_1x8").schedule.but(split_k=2), KHR)
    given = {**arguments(GemmSpec().dtype), "workspace": np.zeros(2 * M * N, np.float32)}
    for kernel in program.kernels:
        run(kernel, {p.name: given[p.name] for p in kernel.params}, sub_group_size=32)
    c = given["c"]
    assert isinstance(c, np.ndarray)
    assert np.isnan(c.reshape(M, -1)[:, :N]).all()


def test_where_the_size_is_required_nobody_asks() -> None:
    schedule = presets.load("L3_SIMD_8x4_1x8").schedule
    assert "get_max_sub_group_size" not in driver.emit(GemmSpec(), schedule, "opencl", TARGETS["intel"]).text
    text = driver.emit(GemmSpec(), schedule, "opencl", KHR).text
    assert text.count("if ((int)get_max_sub_group_size() != 8) {") == 1
    assert "#ifdef cl_intel_required_subgroup_size\n__attribute__((intel_reqd_sub_group_size(8)))\n#endif\n" in text


def test_the_transpose_asks_too() -> None:
    source = driver.emit_transpose(GemmSpec(), 16, "opencl", KHR)
    assert "if ((int)get_max_sub_group_size() != 16) {" in source.text
    assert "b[(col0 + i) * ldb" in source.text.split("return;")[0]


def test_the_verifier_lets_nobody_return_alone() -> None:
    own = Call("local_id", (Const(0),), I32)
    alone = If(compare("==", own, 0), (Return(),))
    with pytest.raises(LoweringError, match="may return without the others"):
        verify(Kernel("k", (), (alone,), (1, 8), (Const(1), Const(1)), 8), KHR)
