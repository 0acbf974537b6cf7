"""Grouped products on the devices of this machine: against float64, group by group, by kernels and by `grouped`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Literal, cast

import numpy as np
import pytest

import gemmgen
from gemmgen import candidates, driver, presets
from gemmgen.api.kernels import Kernel, Wanted
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.ir.dtypes import BF16, F16, F32, F64, I8, DType
from gemmgen.ir.instructions import cut_sums
from gemmgen.runtime import opencl_arrays, opencl_devices
from gemmgen.runtime.cuda_memory import TorchMemory
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Grouped
from tests.device.naive import DEVICES
from tests.support import cuda, sycl
from tests.support.grouped import ENDS, OTHERS, Groups
from tests.support.problems import Matrix
from tests.support.tensors import need_torch

KINDS: tuple[Grouped, ...] = ("rows", "k")
#: Two matrices of four columns lie in it.
BESIDE = np.ones((4, 8), np.float32)


def launch(kernel: object, groups: Groups) -> None:
    """Call a kernel, and check what it leaves."""
    assert callable(kernel)
    before, offsets = groups.c.copy(), np.asarray(groups.ends, np.int32)
    factors = {"alpha": groups.alpha, "beta": groups.beta}
    assert kernel(groups.a, groups.b, groups.c, offsets=offsets, **factors, **groups.operands) is groups.c
    groups.check(before, groups.c)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["naive", "smem_8x8"])
def test_opencl(name: str, kind: Grouped, device: DeviceInfo, rng: np.random.Generator) -> None:
    spec = GemmSpec(grouped=kind)
    kernel = CompiledKernel.from_source(
        driver.emit(spec, presets.load(name).schedule, target=target_of(device.handle)), device
    )
    for ends in (ENDS, *OTHERS):
        launch(kernel, Groups.of(rng, spec, ends))
    launch(kernel, Groups.of(rng, spec, factors=(2.0, 0.0)))


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_is_shared(kind: Grouped, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Rows behind the last group come back as they were, even from a copy on the device."""
    monkeypatch.setattr(opencl_arrays, "way_of", lambda _: "copy")
    spec = GemmSpec(grouped=kind)
    for assumed in (spec, replace(spec, ld_multiple=8)):
        launch(gemmgen.compile(assumed, "naive"), Groups.of(rng, spec, factors=(2.0, 0.0)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_on_the_device(kind: Grouped, device: DeviceInfo, rng: np.random.Generator) -> None:
    """By one launch after the other with other offsets, which nobody on the host reads."""
    import pyopencl.array as cl_array

    spec = GemmSpec(grouped=kind)
    kernel = CompiledKernel.from_source(
        driver.emit(spec, presets.load("naive").schedule, target=target_of(device.handle)), device
    )
    groups = Groups.of(rng, spec, (5, 5, 40), pad=0)
    there = [cl_array.to_device(kernel.queue, np.ascontiguousarray(x)) for x in (groups.a, groups.b, groups.c)]
    for ends in ((5, 5, 40), (0, 67, 67), (1, 2, 3)):
        offsets = cl_array.to_device(kernel.queue, np.asarray(ends, np.int32))
        before = there[2].get()
        result = kernel(*there, offsets=offsets, alpha=groups.alpha, beta=groups.beta)
        Groups(spec, ends, groups.a, groups.b, groups.c, groups.alpha, groups.beta).check(before, result.get())
        result = gemmgen.grouped(there[0], there[1], offsets, there[2], alpha=groups.alpha, beta=0)
        Groups(spec, ends, groups.a, groups.b, groups.c, groups.alpha, 0.0).check(result.get(), result.get())


@sycl.needs_device
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["naive", "smem_8x8"])
def test_sycl(name: str, kind: Grouped, rng: np.random.Generator) -> None:
    spec = GemmSpec(grouped=kind)
    kernel = gemmgen.compile(spec, name, backend="sycl")
    for ends in (ENDS, *OTHERS):
        launch(kernel, Groups.of(rng, spec, ends))


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16, I8])
@pytest.mark.parametrize("kind", KINDS)
def test_grouped(kind: Grouped, dtype: DType, rng: np.random.Generator) -> None:
    """By choice, with a new result, with one of the caller's, and added to what C holds."""
    spec = GemmSpec(grouped=kind, dtype=dtype, c_dtype=F32 if dtype == BF16 else None)
    for ends in (ENDS, OTHERS[0]):
        groups = Groups.of(rng, spec, ends, factors=(1.0, 0.0))
        result = gemmgen.grouped(groups.a, groups.b, ends, dtype=groups.c.dtype)
        groups.check(result.copy(), result)
    groups = Groups.of(rng, spec, factors=(2.0, 1.0))
    before = groups.c.copy()
    assert gemmgen.grouped(groups.a, groups.b, ENDS, groups.c, alpha=2, beta=1) is groups.c
    groups.check(before, groups.c)


@pytest.mark.parametrize("backend", ["opencl", pytest.param("sycl", marks=sycl.needs_device)])
@pytest.mark.parametrize("kind", KINDS)
def test_calls_are_prepared(
    kind: Grouped, backend: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """A later call with other offsets, arrays and factors makes no request; offsets are checked all the same."""
    spec = GemmSpec(grouped=kind)
    first = Groups.of(rng, spec, (5, 5, 40), factors=(1.0, 0.0))
    offsets = np.array(first.ends, np.int32)
    result = gemmgen.grouped(first.a, first.b, offsets, out=first.c, alpha=1.0, backend=backend)
    assert result is first.c
    with monkeypatch.context() as patched:
        patched.delattr("gemmgen.api.grouped._Request")
        for ends in ((5, 5, 40), (0, 67, 67), (1, 2, 3)):
            groups = Groups.of(rng, spec, ends, factors=(2.0, 0.0))
            before, offsets = groups.c.copy(), np.array(ends, np.int32)
            again = gemmgen.grouped(groups.a, groups.b, offsets, out=groups.c, alpha=2.0, backend=backend)
            assert again is groups.c
            groups.check(before, groups.c)
        choice = gemmgen.last_choice()
        assert choice is not None
        assert (choice.by, choice.why) == (backend, "chosen by the mean size of a group")
    for ends, said in (((5, 4, 40), "4 < 5"), ((-1, 5, 40), "-1 < 0"), ((5, 5, 400), "400 > 67")):
        with pytest.raises(SpecError, match=said):
            gemmgen.grouped(first.a, first.b, np.array(ends, np.int32), out=first.c, backend=backend)


def test_a_kernels_calls_are_prepared(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    spec = GemmSpec(grouped="rows")
    kernel = gemmgen.compile(spec, "naive")
    launch(kernel, Groups.of(rng, spec, (5, 5, 40)))
    with monkeypatch.context() as patched:
        patched.setattr(kernel, "_looked_at", None)
        launch(kernel, Groups.of(rng, spec, (0, 67, 67)))
    groups = Groups.of(rng, spec, (5, 5, 40))
    with pytest.raises(SpecError, match="4 < 5"):
        kernel(groups.a, groups.b, groups.c, offsets=np.array((5, 4, 40), np.int32), alpha=2.0, beta=1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_calls_with_tensors_on_the_cpu_are_prepared(
    kind: Grouped, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """As those of NumPy's arrays over the same memory."""
    torch = need_torch()
    groups = Groups.of(rng, GemmSpec(grouped=kind), (5, 5, 40), factors=(1.0, 0.0))
    a, b = torch.from_numpy(groups.a), torch.from_numpy(groups.b)
    offsets = torch.tensor(groups.ends, dtype=torch.int32)
    with monkeypatch.context() as patched:
        patched.setattr("gemmgen.api.libraries.TorchHost", None)
        for _ in range(2):
            result = gemmgen.grouped(a, b, offsets)
            assert isinstance(result, torch.Tensor)
            out = torch.from_numpy(groups.c.copy())
            assert gemmgen.grouped(a, b, offsets, out=out) is out
            groups.check(groups.c, out.numpy())
            patched.setattr("gemmgen.api.grouped._Request", None)
    with pytest.raises(SpecError, match="requires a gradient"):
        gemmgen.grouped(a.clone().requires_grad_(), b, offsets)


@pytest.mark.parametrize("kind", KINDS)
def test_epilogues(kind: Grouped, rng: np.random.Generator) -> None:
    spec = GemmSpec(grouped=kind, epilogue=("bias", "gelu", "residual"))
    groups = Groups.of(rng, spec, factors=(1.0, 0.0))
    many, (rows, cols) = len(ENDS), groups.c.shape[-2:]
    lead = () if kind == "rows" else (many,)
    bias, residual = rng.standard_normal((many, cols), np.float32), rng.standard_normal((*lead, rows, cols), np.float32)
    groups = groups.with_operands(bias=bias, residual=residual)
    result = gemmgen.grouped(
        groups.a, groups.b, ENDS, epilogue=["bias", "gelu", "residual"], bias=bias, residual=residual
    )
    groups.check(result.copy(), result)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_an_epilogue_may_lie_anyhow(kind: Grouped, order: Literal["C", "F"]) -> None:
    """They are copied if their elements lie apart, whatever the order of C is."""
    a, b = np.ones((6, 6), np.float32), np.ones((2, 6, 4) if kind == "rows" else (6, 4), np.float32)
    shape, (groups, n) = (6, 4) if kind == "rows" else (2, 6, 4), (2, 4)
    many = np.arange(groups * n * 2, dtype=np.float32).reshape(groups, n * 2)
    row = many[0, :n]
    for bias in (
        many[:, :n],
        many[:, ::2],
        np.asfortranarray(many[:, :n]),
        many[::-1, :n],
        np.broadcast_to(row, (2, 4)),
    ):
        zeros = np.zeros(shape, np.float32)
        out = np.asfortranarray(zeros) if kind == "rows" and order == "F" else zeros
        assert gemmgen.grouped(a, b, [2, 6], epilogue="bias", bias=bias, out=out) is out
        for group, (begin, end) in enumerate(((0, 2), (2, 6))):
            mine = out[begin:end] if kind == "rows" else out[group]
            assert (mine == (6 if kind == "rows" else end - begin) + bias[group]).all()


def test_scales_of_rows_may_lie_anyhow() -> None:
    """Those of groups of K have a line for each group."""
    a, b, many = (
        np.ones((6, 6), np.float32),
        np.ones((6, 4), np.float32),
        np.arange(24, dtype=np.float32).reshape(2, 12),
    )
    result = gemmgen.grouped(a, b, [2, 6], epilogue="row_bias", row_bias=many[:, :6])
    assert (result == np.array([2, 4])[:, None, None] + many[:, :6, None]).all()


@pytest.mark.parametrize("schedule", [None, "smem_8x8"])
@pytest.mark.parametrize("kind", KINDS)
def test_gates(kind: Grouped, schedule: str | None, rng: np.random.Generator) -> None:
    """B has two halves of columns, C has half as many columns as B; by a named schedule a second call is prepared."""
    groups = Groups.of(rng, GemmSpec(grouped=kind, epilogue=("swiglu", "bias")), sizes=(38, 28), factors=(1.0, 0.0))
    bias = rng.standard_normal((len(ENDS), groups.c.shape[-1]), np.float32)
    groups = groups.with_operands(bias=bias)
    for _ in range(2):
        result = gemmgen.grouped(groups.a, groups.b, ENDS, epilogue=["swiglu", "bias"], bias=bias, schedule=schedule)
        assert result.shape == groups.c.shape
        groups.check(result.copy(), result)


def test_a_gate_is_two_products_on_a_cpu(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Vectors of a CPU hold one half's sums; two products by these take less time than one by registers."""
    # `gemmgen.api.grouped` is the function.
    module = import_module("gemmgen.api.grouped")
    asked, kernel_for = list[object](), module.kernel_for

    def counted(wanted: Wanted) -> Kernel:
        asked.append(wanted.spec.gate)
        return cast(Kernel, kernel_for(wanted))

    monkeypatch.setattr(module, "kernel_for", counted)
    a, b = rng.standard_normal((9, 4), np.float32), rng.standard_normal((2, 4, 6), np.float32)
    cpu = next(x for x in opencl_devices.devices() if x.type == "cpu")
    gemmgen.grouped(a, b, [4, 9], epilogue="swiglu", device=cpu)
    assert asked == [None, None]


def test_what_a_gate_is_refused_for(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((9, 4), np.float32), rng.standard_normal((2, 4, 6), np.float32)
    cases: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: gemmgen.grouped(a, b[..., :5], [4, 9], epilogue="swiglu"), "but b has 5 columns: pass an even number"),
        (
            lambda: gemmgen.grouped(a, b, [4, 9], np.zeros((9, 3), np.float32), beta=1, epilogue="swiglu"),
            "beta = 1, but swiglu makes c anew: add it by residual",
        ),
        (
            lambda: gemmgen.grouped(a, b, [4, 9], epilogue="swiglu", out=np.zeros((9, 6), np.float32)),
            "out has shape 9x6, not 9x3",
        ),
    )
    for call, said in cases:
        with pytest.raises(SpecError, match=said):
            call()


def test_an_empty_list_of_ends() -> None:
    """NumPy makes an array of float64 of it."""
    result = gemmgen.grouped(np.ones((3, 4), np.float32), np.ones((0, 4, 5), np.float32), [])
    assert result.shape == (3, 5)


def test_integers_bit_for_bit(rng: np.random.Generator) -> None:
    a = rng.integers(-128, 128, (67, 200)).astype(np.int8)
    b = rng.integers(-128, 128, (len(ENDS), 200, 31)).astype(np.int8)
    result = gemmgen.grouped(a, b, ENDS, dtype=np.int32)
    begin = 0
    for group, end in enumerate(ENDS):
        assert (result[begin:end] == a[begin:end].astype(np.int32) @ b[group].astype(np.int32)).all()
        begin = end


def test_views_and_results_of_other_types(rng: np.random.Generator) -> None:
    a, b = (
        rng.standard_normal((67, 40), np.float32)[:, ::2],
        rng.standard_normal((2, 31, 20), np.float32).swapaxes(1, 2),
    )
    out = np.full((67, 31), 7, np.float64)
    assert gemmgen.grouped(a, b, np.array([30, 50]), out=out) is out
    assert (out[50:] == 7).all()
    for mine, matrix in ((slice(0, 30), b[0]), (slice(30, 50), b[1])):
        assert np.allclose(out[mine], a[mine] @ matrix, atol=1e-4)


@pytest.mark.parametrize("beta", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_behind_the_last_group_stay(dtype: type[np.generic], beta: float) -> None:
    """Beside a C of its own too, and to the last bit where the result is converted."""
    a, b, c = np.ones((6, 5), np.float32), np.ones((2, 5, 4), np.float32), np.full((6, 4), 5, dtype)
    for _ in range(2):
        out = np.full((6, 4), 7.1, dtype)
        assert gemmgen.grouped(a, b, [2, 4], c, beta=beta, out=out) is out
        assert (out[:4] == 5 + beta * 5).all()
        assert (out[4:] == np.array(7.1, dtype)).all()
        assert (c == 5).all()
    out = np.full((6, 4), 7.1, dtype)
    gemmgen.grouped(a, b, [2, 4], out, beta=1)
    assert (out[4:] == np.array(7.1, dtype)).all()


@pytest.mark.parametrize("device", DEVICES)
def test_rows_behind_the_last_group_stay_on_a_device(device: DeviceInfo) -> None:
    import pyopencl.array as cl_array

    queue = opencl_devices.own_queue(device.handle)
    matrices = np.ones((6, 5), np.float32), np.ones((2, 5, 4), np.float32), np.full((6, 4), 5, np.float32)
    a, b, c = (cl_array.to_device(queue, x) for x in matrices)
    for end in (4, 0):
        offsets = cl_array.to_device(queue, np.array([0, end], np.int32))
        out = cl_array.to_device(queue, np.full((6, 4), 7, np.float32))
        gemmgen.grouped(a, b, offsets, c, beta=2, out=out)
        assert (out.get()[:end] == 15).all()
        assert (out.get()[end:] == 7).all()


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (np.lib.stride_tricks.as_strided(np.zeros(100, np.float32), (4, 4), (0, 4)), "elements of out share memory"),
        (np.broadcast_to(np.zeros(4, np.float32), (4, 4)), "out is read-only"),
        (np.broadcast_to(np.zeros(4, np.float32), (4, 4)), "elements of out share memory"),
        (BESIDE[:, ::2], "out overlaps a in memory: pass another out, or a copy of a"),
        (BESIDE[:, :4], "out overlaps a in memory: pass another out, or a copy of a"),
    ],
)
def test_an_out_that_holds_no_result(out: Matrix, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        gemmgen.grouped(BESIDE[:, :4], np.ones((1, 4, 4), np.float32), [4], out=out)


def test_a_result_that_is_read_only() -> None:
    """Called as the caller calls it, and with all that is wrong."""
    a, b, fixed = np.ones((4, 4), np.float32), np.ones((1, 4, 4), np.float32), np.zeros((4, 8), np.float32)
    fixed.flags.writeable = False
    for matrix in (fixed[:, ::2], fixed[:, :4]):
        with pytest.raises(SpecError, match="out is read-only: pass a writable array"):
            gemmgen.grouped(a, b, [4], out=matrix)
        with pytest.raises(SpecError, match="c is read-only") as caught:
            gemmgen.grouped(a, b, [5], matrix)
        assert len(caught.value.problems) == 2, caught.value.problems


def test_bad_calls_name_every_problem(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((9, 4), np.float32), rng.standard_normal((2, 4, 3), np.float32)
    kernel = gemmgen.compile(GemmSpec(grouped="rows"), "naive")
    ends = np.array([4, 9], np.int32)
    for call, said in (
        (lambda: kernel(a, b), "offsets is missing, which says where groups end: pass offsets="),
        (lambda: kernel(a, b, offsets=ends.astype(np.int64)), "offsets has dtype int64, not int32"),
        (lambda: kernel(a, b, offsets=ends[::-1]), "offsets has elements -4 bytes apart"),
        (lambda: kernel(a, b, offsets=ends[None]), "offsets has shape 1x2, not one dimension"),
        (lambda: kernel(a, b[0], offsets=ends), "b has shape 4x3, not 3 dimensions: pass [groups, k, n]"),
        (lambda: kernel(a, b, offsets=ends[:1]), "offsets end 1 groups, but b has 2 matrices: pass as many"),
        (lambda: gemmgen.grouped(a, b, [4, 3]), "offsets[1] = 3 < 4, where group 1 begins: pass ascending ends"),
        (lambda: gemmgen.grouped(a, b, [4, 10]), "offsets[1] = 10 > 9, what all groups share: pass ends inside of it"),
        (lambda: gemmgen.grouped(a, b, ends.astype(float)), "offsets has dtype float64: pass whole numbers"),
        (lambda: gemmgen.grouped(a, b[None], ends), "pass [total rows, k] and [groups, k, n], or [m, total k] and"),
        (lambda: gemmgen.grouped(a, b, ends, beta=1), "beta = 1 adds to a c that was not given"),
        (lambda: gemmgen.grouped(a, b, ends, out=np.zeros((9, 4), np.float32)), "out has shape 9x4, not 9x3"),
        (
            lambda: gemmgen.grouped(a, b, ends, epilogue="bias", bias=np.zeros(3, np.float32)),
            "bias has shape 3, not 2x3",
        ),
    ):
        with pytest.raises(SpecError, match=re.escape(said)):
            call()
    with pytest.raises(SpecError) as several:
        gemmgen.grouped(a[:, 1:], b, [4, 3, 99], out=cast(Matrix, np.zeros((9, 4), np.float32)))
    assert len(several.value.problems) == 5, several.value.problems
    with pytest.raises(TypeError, match="unexpected keyword argument 'offsets'"):
        gemmgen.compile(GemmSpec(), "naive")(a, b[0], offsets=ends)
    with pytest.raises(
        ScheduleError, match="a grouped product deals out blocks by offsets, but the scheduler is SplitK"
    ):
        gemmgen.grouped(a, b, ends, schedule=presets.load("naive").schedule.but(split_k=2))


def test_nothing_to_do(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((9, 4), np.float32), rng.standard_normal((2, 4, 3), np.float32)
    out = np.full((9, 3), 7, np.float32)
    assert (gemmgen.grouped(a, b[:0], np.zeros(0, np.int32), out=out) == 7).all()
    assert gemmgen.grouped(a[:0], b, [0, 0]).shape == (0, 3)
    assert (gemmgen.grouped(a[:, :0], b[:, :0], [4, 9]) == 0).all()
    assert (gemmgen.grouped(a[:, :0], b[0, :0], [0, 0]) == 0).all()
    assert (gemmgen.grouped(a, b, [4, 9], out, alpha=0, beta=0)[:9] == 0).all()


def test_nothing_to_do_for_a_gate() -> None:
    for a, b, shape in (((0, 9), (9, 2), (0, 0, 1)), ((3, 9), (0, 9, 0), (3, 0))):
        result = gemmgen.grouped(np.ones(a, np.float32), np.ones(b, np.float32), [], epilogue="swiglu")
        assert result.shape == shape


# --- on a GPU of CUDA -----------------------------------------------------------------------------

SKIP = cuda.why_no_gpu()
on_gpu = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
#: Schedules in the orders that they take groups in. 8-bit floats lie along K, where lines can't begin anywhere.
CUDA: dict[str, tuple[Grouped, ...]] = {
    "naive": KINDS,
    "smem_8x8": KINDS,
    "async_8x8_8x16": KINDS,
    "mbarrier_8x8_4x8_slices8": KINDS,
    "gemv_4x4": ("rows",),
    "mma_8x16_16x8": KINDS,
    "wgmma_128x256_s4": KINDS,
    "wgmma_f8_128x256_s4": ("rows",),
}


@on_gpu
@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in CUDA.items() for kind in kinds])
@pytest.mark.parametrize("ends", [ENDS, *OTHERS])
def test_cuda(name: str, kind: Grouped, ends: tuple[int, ...], rng: np.random.Generator) -> None:
    preset = candidates.load(name)
    unit = 16 // preset.spec.dtype.size
    f8 = preset.spec.dtype.size == 1
    spec = GemmSpec(
        grouped=kind,
        dtype=preset.spec.dtype,
        c_dtype=BF16 if f8 else None,
        a_order="col" if kind == "k" else "row",
        b_order="col" if f8 else "row",
        ld_multiple=unit if name.startswith("wgmma") else 1,
    )
    launch_on_cuda(Groups.of(rng, spec, ends, (4 * unit, 3 * unit), pad=0), preset.schedule)


@on_gpu
@pytest.mark.parametrize("name", ["smem_8x8", "mma_8x16_16x8", "wgmma_128x256_s4"])
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_gates(name: str, kind: Grouped, rng: np.random.Generator) -> None:
    preset = candidates.load(name)
    unit = 16 // preset.spec.dtype.size
    spec = GemmSpec(
        grouped=kind,
        dtype=preset.spec.dtype,
        a_order="col" if kind == "k" else "row",
        ld_multiple=unit if name.startswith("wgmma") else 1,
        epilogue=("swiglu",),
    )
    launch_on_cuda(Groups.of(rng, spec, ENDS, (4 * unit, 4 * unit), (1.5, 0.0), pad=0), preset.schedule)


def launch_on_cuda(groups: Groups, schedule: Schedule, only: int | None = None) -> None:
    """Call a kernel several times, and check what it leaves. A by columns is the transpose of what lies in memory."""
    import torch

    spec, kind, ends = groups.spec, groups.spec.grouped, groups.ends
    f8 = spec.dtype.size == 1
    a, b, c = (
        torch.from_numpy(np.ascontiguousarray(x).view(f"int{8 * x.itemsize}")).cuda().view(getattr(torch, str(x.dtype)))
        for x in (groups.a.T if kind == "k" else groups.a, groups.b.swapaxes(1, 2) if f8 else groups.b, groups.c)
    )
    a, b = a.T if kind == "k" else a, b.transpose(1, 2) if f8 else b
    kernel = gemmgen.compile(spec, schedule, backend="cuda")
    offsets, before = torch.tensor(ends, dtype=torch.int32, device="cuda"), groups.c.copy()
    for _ in range(3):
        out = c.clone()
        kernel(a, b, out, offsets=offsets, alpha=groups.alpha, beta=groups.beta)
        result = out.cpu().view(getattr(torch, f"int{8 * out.element_size()}")).numpy().view(groups.c.dtype)
        groups.check(before, result, cut_sums(schedule.atom, spec.dtype), only)


#: Blocks of C one after the other, in turns, of clusters; C by threads; steps of which a group has several.
WARPGROUPS: dict[str, dict[str, object]] = {
    "by TMA": {},
    "persistent": {"persistent": True},
    "in turns": {"persistent": True, "epilogue_stages": 2, "ordered_epilogue": True},
    "cluster": {"cluster": (2, 1)},
    "by threads": {"epilogue_stages": 0, "c_width": 8},
    "shallow": {"block_k": 16, "stages": 3, "persistent": True},
}


@on_gpu
@pytest.mark.parametrize("changes", WARPGROUPS.values(), ids=WARPGROUPS)
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_by_warpgroups(kind: Grouped, changes: dict[str, object], rng: np.random.Generator) -> None:
    if kind == "rows" and not changes.keys().isdisjoint({"cluster", "ordered_epilogue"}):
        changes = {"persistent": True, "epilogue_stages": 0, "c_width": 2}
    spec = GemmSpec(grouped=kind, dtype=BF16, a_order="col" if kind == "k" else "row", ld_multiple=8)
    groups = Groups.of(rng, spec, sizes=(1032, 776), pad=0, factors=(2.0, -0.5))
    launch_on_cuda(groups, candidates.load("wgmma_128x256_s4").schedule.but(**changes))


@on_gpu
@pytest.mark.parametrize("changes", WARPGROUPS.values(), ids=WARPGROUPS)
@pytest.mark.parametrize("only", [1, 3, 4])
def test_cuda_adds_nothing_of_neighbours(changes: dict[str, object], only: int, rng: np.random.Generator) -> None:
    """A group of K is right where every other group, and all of K past the last one, is NaN."""
    spec = GemmSpec(grouped="k", dtype=BF16, a_order="col", ld_multiple=8)
    groups = Groups.of(rng, spec, sizes=(264, 520), pad=0, factors=(1.0, 0.0))
    groups.leave(only)
    launch_on_cuda(groups, candidates.load("wgmma_128x256_s4").schedule.but(**changes), only)


@on_gpu
@pytest.mark.parametrize("kind", KINDS)
def test_calls_on_a_gpu_are_prepared(kind: Grouped, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    a = torch.randn(1024, 256, device="cuda")
    b = torch.randn(*((5, 256, 192) if kind == "rows" else (1024, 192)), device="cuda")
    a, ends = a if kind == "rows" else a.T, (0, 1, 700, 700, 1000)
    gemmgen.grouped(a, b, torch.tensor([200, 400, 600, 800, 1000], dtype=torch.int32, device="cuda"))
    with monkeypatch.context() as patched:
        patched.delattr("gemmgen.api.grouped._Request")
        result = gemmgen.grouped(a, b, torch.tensor(ends, dtype=torch.int32, device="cuda"))
    for group, (begin, end) in enumerate(zip((0, *ends), ends, strict=False)):
        left, right = (a[begin:end], b[group]) if kind == "rows" else (a[:, begin:end], b[begin:end])
        new = result[begin:end] if kind == "rows" else result[group]
        assert torch.allclose(new.double(), left.double() @ right.double(), atol=1e-3)


@on_gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_behind_the_last_group_stay_on_a_gpu(dtype: str) -> None:
    """The host waits for no offset: a graph holds the call."""
    import torch

    a, b = torch.ones(6, 5, device="cuda"), torch.ones(2, 5, 4, device="cuda")
    c = torch.full((6, 4), 5.0, device="cuda", dtype=getattr(torch, dtype))
    offsets, out = torch.tensor([2, 4], dtype=torch.int32, device="cuda"), torch.full_like(c, 7.1)
    gemmgen.grouped(a, b, offsets, c, beta=2, out=out)
    assert (out[:4] == 15).all()
    assert (out[4:] == torch.full_like(c, 7.1)[4:]).all()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gemmgen.grouped(a, b, offsets, c, beta=2, out=out)
    offsets.copy_(torch.tensor([1, 2]))
    out.fill_(7)
    graph.replay()
    assert (out[:2] == 15).all()
    assert (out[2:] == 7).all()


def test_rows_that_torch_copies() -> None:
    """As on a GPU: those before the last end, in the target's type."""
    torch = need_torch()
    target, ends = torch.full((6, 4), 7, dtype=torch.int32), torch.tensor([2, 4])
    TorchMemory.assign_rows(cast(TorchMemory, None), target, torch.full((6, 4), 5.0), ends, 0)
    assert target.tolist() == [[5] * 4] * 4 + [[7] * 4] * 2


@on_gpu
def test_lines_of_c_alone_begin_anywhere() -> None:
    """A and B go by TMA all the same, where there are tensor maps."""
    import torch

    a, b = (torch.randn(x, device="cuda", dtype=torch.bfloat16) for x in ((1024, 256), (5, 190, 256)))
    ends = (0, 1, 700, 700, 1000)
    result = gemmgen.grouped(a, b.mT, torch.tensor(ends, dtype=torch.int32, device="cuda"))
    choice = gemmgen.last_choice()
    assert choice is not None
    if torch.cuda.get_device_capability() == (9, 0):
        assert "wgmma" in str(choice.kernel)
    for group, (begin, end) in enumerate(zip((0, *ends), ends, strict=False)):
        wanted = a[begin:end].double() @ b[group].double().T
        assert torch.allclose(result[begin:end].double(), wanted, rtol=1e-2, atol=0.5)


@on_gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("skewed", [False, True])
def test_beside_torch(kind: Grouped, dtype: str, skewed: bool) -> None:
    """By choice; offsets of 64 bits are converted where they lie, and the host reads nothing."""
    import torch

    ends = [0, 1, 700, 700, 1000] if skewed else [200, 400, 600, 800, 1000]
    offsets = torch.tensor(ends, dtype=torch.int64, device="cuda")
    a = torch.randn(1024, 256, device="cuda").to(getattr(torch, dtype))
    b = torch.randn(*((5, 256, 192) if kind == "rows" else (1024, 192)), device="cuda").to(a.dtype)
    a = a if kind == "rows" else a.T
    result = gemmgen.grouped(a, b, offsets)
    begin = 0
    for group, end in enumerate(ends):
        left, right = (a[begin:end], b[group]) if kind == "rows" else (a[:, begin:end], b[begin:end])
        new = result[begin:end] if kind == "rows" else result[group]
        bound = 1e-5 if dtype == "float32" else 1e-2
        assert (new.double() - left.double() @ right.double()).abs().max() <= bound * 64 if new.numel() else True
        begin = end
    graph = torch.cuda.CUDAGraph()
    out = result.clone()
    with torch.cuda.graph(graph):  # which nothing that waits for the device would survive
        gemmgen.grouped(a, b, offsets.int(), out=out)
    out.fill_(7)
    graph.replay()
    assert torch.equal(out[: ends[-1]] if kind == "rows" else out, result[: ends[-1]] if kind == "rows" else result)
