"""Hopper's tensor cores on a GPU: each new instruction alone against the interpreter's meaning of it; then products of
every order, ragged sizes, poison, exact integers and repeats.

A kernel that waits for what never comes hangs: run this file by itself, under a time limit
(`timeout 300 pytest -x tests/device/test_cuda_wgmma.py`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import gemmgen
from gemmgen import candidates, driver
from gemmgen.driver import refusals
from gemmgen.ir.dtypes import BF16, F16, F32, DType
from gemmgen.ir.instructions import product_error
from gemmgen.methods import defaults
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.runtime.cuda_build import code_of
from gemmgen.runtime.cuda_devices import pick, target_of
from gemmgen.runtime.nvrtc import nvrtc
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support import cuda
from tests.support.problems import Problem, interpret


def why_not() -> str | None:
    """The reason to skip: no GPU, no torch, or a GPU that has other instructions."""
    reason = cuda.why_no_gpu() or (None if find_spec("torch") else "torch is not installed")
    if reason is None and "wgmma" not in target_of(pick()).features:
        return f"{pick().name} has no wgmma"
    return reason


SKIP = why_not()
pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
#: Elements of a byte, packed operands, those in registers and elements in two terms have tests of their own
#: (`test_cuda_atoms.py`).
NAMES = tuple(
    name
    for name in candidates.names()
    if candidates.load(name).schedule.by_warpgroups
    and candidates.load(name).spec.dtype.size > 1
    and not candidates.load(name).schedule.a.prepacked
    and "private" not in (candidates.load(name).schedule.a.memory, candidates.load(name).schedule.b.memory)
)
ORDERS: tuple[tuple[Order, Order], ...] = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
#: Of elements that the instructions turn.
TURNING = tuple(name for name in NAMES if candidates.load(name).spec.dtype != F32)
#: Under, around and over a block; whole blocks; a single element; K of fewer steps than the ring has slots, and more.
SIZES = ((1, 1, 1), (129, 131, 37), (256, 512, 64), (200, 520, 296), (270, 16, 500), (128, 256, 1000), (1000, 1000, 64))


def request(name: str, dtype: DType | None = None) -> tuple[GemmSpec, Schedule]:
    preset = candidates.load(name)
    return replace(preset.spec, dtype=dtype or preset.spec.dtype), preset.schedule


# --- one instruction of each kind -----------------------------------------------------------------


#: A's order, B's, and the type.
STEPS = [(a, b, dtype) for a, b in ORDERS for dtype in (BF16, F16)] + [("row", "col", F32)]


@pytest.mark.parametrize(("a", "b", "dtype"), STEPS, ids=str)
def test_one_step_as_the_interpreter_has_it(a: Order, b: Order, dtype: DType) -> None:
    """One box of A, one of B, four instructions, one wait (of TF32 two steps): every element's own number, so that an
    element out of place, a wrong descriptor or a swizzle that is not the hardware's shows as such.
    """
    spec = GemmSpec(dtype=dtype, c_dtype=F32, ld_multiple=8, a_order=a, b_order=b)
    method = "wgmma_tf32" if dtype == F32 else "wgmma"
    schedule = defaults(method, (2, 16), (32, 4)).but(producer_threads=32, setmaxnreg=(0, 0), stages=2)
    rng = np.random.default_rng(3)
    rows, cols = rng.integers(-8, 9, (64, 64)), rng.integers(-8, 9, (64, 64))
    for left, right in ((rows, np.eye(64)), (np.eye(64), cols), (rows, cols)):
        problem = Problem(left.astype(np.float32), right.astype(np.float32), np.full((64, 64), np.nan), 1.0, 0.0)
        problem = problem.typed(spec)
        kernel = driver.lower(spec, schedule, target_of(pick()))
        expected = interpret(kernel, spec, problem, pad=0)
        assert np.array_equal(on_gpu(spec, schedule, left, right), expected)


def on_gpu(spec: GemmSpec, schedule: Schedule, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A product of matrices that the type holds, C full of NaN before."""
    import torch

    kernel = compiled(spec, schedule)
    dtype = getattr(torch, str(spec.dtype))
    stored = []
    for matrix, order in ((left, spec.a_order), (right, spec.b_order)):
        lines = np.ascontiguousarray(matrix if order == "row" else matrix.T)
        tensor = torch.from_numpy(lines.astype(np.float32)).cuda().to(dtype)
        stored.append(tensor if order == "row" else tensor.T)
    c = torch.full((len(left), right.shape[1]), float("nan"), device="cuda", dtype=getattr(torch, str(spec.result)))
    kernel(stored[0], stored[1], c, alpha=1.0, beta=0.0)
    found: np.ndarray = c.float().cpu().numpy()
    return found


@cache
def compiled(spec: GemmSpec, schedule: Schedule) -> CudaKernel:
    return gemmgen.compile(spec, schedule, backend="cuda")


# --- products -------------------------------------------------------------------------------------


def check(spec: GemmSpec, schedule: Schedule, pads: tuple[int, ...] = (0, 8)) -> None:
    """Every size, its lines at least `pad` elements longer than they need be, whatever lies there NaN."""
    import torch

    kernel = compiled(spec, schedule)
    dtype, result = (getattr(torch, str(x)) for x in (spec.dtype, spec.result))
    torch.manual_seed(1)

    def matrix(rows: int, cols: int, order: Order, pad: int, kind: object) -> torch.Tensor:
        high, wide = (rows, cols) if order == "row" else (cols, rows)
        whole = torch.full((high, -(-wide // 8) * 8 + pad), float("nan"), device="cuda").to(kind)
        whole[:, :wide] = torch.randn((high, wide), device="cuda").to(kind)
        return whole[:, :cols] if order == "row" else whole[:, :rows].T

    for m, n, k in SIZES:
        for pad in pads:
            a, b = matrix(m, k, spec.a_order, pad, dtype), matrix(k, n, spec.b_order, pad, dtype)
            for alpha, beta in ((1.0, 0.0), (-1.5, 0.25)):
                c = matrix(m, n, spec.c_order, pad, result)
                reference = alpha * (a.double() @ b.double()) + (beta * c.double() if beta else 0.0)
                size = abs(alpha) * (a.double().abs() @ b.double().abs()) + abs(beta) * c.double().abs()
                if not beta:
                    c.fill_(float("nan"))
                kernel(a, b, c, alpha=alpha, beta=beta)
                # Tensor cores drop bits that rounding would keep: twice what sums of float32 allow.
                bound = size * (2 * (k + 3) * 2.0**-24 + product_error(schedule.atom, spec.dtype))
                bound += 0.0 if spec.result == F32 else 2.0**-spec.result.digits * (reference.abs() + bound) + 2.0**-24
                off = (c.double() - reference).abs()
                assert bool((off <= bound).all()), f"{m}x{n}x{k}, pad {pad}: off by {float((off / bound).max())}"


@pytest.mark.parametrize("name", NAMES)
def test_any_size(name: str) -> None:
    check(*request(name))


@pytest.mark.parametrize(("a", "b"), ORDERS[1:])
@pytest.mark.parametrize("name", TURNING)
def test_layouts(name: str, a: Order, b: Order) -> None:
    spec, schedule = request(name)
    spec = replace(spec, a_order=a, b_order=b)
    if refusals(spec, schedule, "cuda"):
        pytest.skip("a row-major B takes more shared memory")
    check(spec, schedule)


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_sums_kept_in_float32(dtype: DType) -> None:
    spec, schedule = request(TURNING[0], dtype)
    check(replace(spec, c_dtype=F32), schedule)
    check(replace(spec, c_dtype=F32, c_order="col"), schedule.but(name=None, c_width=1, epilogue_stages=0), (0,))


@pytest.mark.parametrize(
    "changes",
    [
        {"stages": 2},
        {"stages": 3},
        {"tile": (4, 48), "stages": 3, "c_width": 2},
        {"tile": (2, 48), "c_width": 2},
        {"c_width": 2},
        {"group": (96, 4), "tile": (2, 32), "setmaxnreg": (160, 32)},
        {"producer_threads": 32, "setmaxnreg": (0, 0)},
        {"split_k": 3},
    ],
    ids=[
        "2 slots",
        "3 slots",
        "256x192",
        "128x192",
        "stores of pairs",
        "three warpgroups",
        "a warp copies",
        "parts of K",
    ],
)
def test_rings_and_roles(changes: dict[str, object]) -> None:
    spec, _ = request(TURNING[0])
    check(spec, defaults("wgmma").but(**changes))


@pytest.mark.parametrize(("a", "b"), ORDERS)
@pytest.mark.parametrize(
    ("tile", "group", "changes"),
    [
        ((4, 2), (4, 32), {}),
        ((6, 4), (4, 64), {"split_k": 4, "threadblock_swizzle": 2, "producer_threads": 128, "setmaxnreg": (160, 40)}),
        ((4, 2), (4, 32), {"split_k": 6, "cluster_reduction": 2, "c_width": 4}),
        ((2, 2), (4, 32), {"split_k": 4, "cluster_reduction": 4, "c_width": 1}),
        ((2, 16), (32, 4), {"split_k": 8, "cluster_reduction": 8, "c_width": 4}),
    ],
    ids=["swapped", "swapped, two warpgroups", "joined by twos", "by fours", "by eights, not swapped"],
)
def test_few_rows_and_joined_parts(
    tile: tuple[int, int], group: tuple[int, int], changes: dict[str, object], a: Order, b: Order
) -> None:
    spec, _ = request(TURNING[0])
    base = defaults("wgmma", tile, group).but(stages=4, producer_threads=32, setmaxnreg=(0, 0))
    check(replace(spec, a_order=a, b_order=b), base.but(**changes))
    wide = 1 if "cluster_reduction" not in changes else base.c_width
    check(replace(spec, c_order="col"), base.but(**{**changes, "c_width": wide}), (0,))


@pytest.mark.parametrize("name", NAMES)
def test_exact_integers_and_repeats(name: str) -> None:
    """Sums of small integers are exact in any order; and the same bits each of 300 times."""
    import torch

    spec, schedule = request(name)
    spec = replace(spec, c_dtype=F32)
    rng = np.random.default_rng(11)
    left, right = rng.integers(-8, 9, (700, 1096)), rng.integers(-8, 9, (1096, 840))
    assert np.array_equal(on_gpu(spec, schedule, left, right), (left @ right).astype(np.float32))
    kernel = compiled(spec, schedule)
    kind = getattr(torch, str(spec.dtype))
    a, b = (torch.randn(shape, device="cuda").to(kind) for shape in ((700, 1096), (1096, 840)))
    b = b if spec.b_order == "row" else b.T.contiguous().T
    c, first = (torch.full((700, 840), float("nan"), device="cuda") for _ in range(2))
    kernel(a, b, first)
    for _ in range(300):
        c.fill_(float("nan"))
        kernel(a, b, c)
        assert bool((c.view(torch.int32) == first.view(torch.int32)).all())


def test_nothing_along_k() -> None:
    import torch

    spec, schedule = request(TURNING[0])
    a, b = torch.empty((130, 0), device="cuda").bfloat16(), torch.empty((0, 264), device="cuda").bfloat16()
    c = torch.ones((130, 264), device="cuda").bfloat16()
    compiled(spec, schedule)(a, b, c, alpha=1.0, beta=0.5)
    assert bool((c == 0.5).all())


def test_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    preset = candidates.load("wgmma_64x64_s8")
    source = driver.emit(preset.spec, preset.schedule, "cuda")
    code = code_of(source, nvrtc(), "sm_90a")
    # Beside it stands what NVRTC said of itself.
    (file,) = (tmp_path / "gemmgen" / "cuda").glob(f"{source.name}*")
    made = file.stat().st_mtime_ns
    assert code_of(source, nvrtc(), "sm_90a") == code
    assert file.stat().st_mtime_ns == made
    code_of(replace(source, text=source.text + "\n"), nvrtc(), "sm_90a")
    assert len(list(file.parent.glob(f"{source.name}*"))) == 2


def test_lines_that_no_map_takes_are_refused() -> None:
    """With the remedy, before anything is launched."""
    import torch

    spec, schedule = request(TURNING[0])
    a, b = torch.zeros((64, 65), device="cuda").bfloat16(), torch.zeros((65, 64), device="cuda").bfloat16()
    with pytest.raises(gemmgen.SpecError, match="multiple"):
        compiled(spec, schedule)(a, b)
