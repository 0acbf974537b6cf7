"""Sources made by hand, so that the runtime is tested apart from what the passes make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from _pytest.mark import ParameterSet

from gemmgen.errors import DeviceError
from gemmgen.ir.expr import Var, ceil_div
from gemmgen.source import Argument, EntryPoint, Source
from gemmgen.spec import GemmSpec, Order

if TYPE_CHECKING:
    from gemmgen.runtime.opencl_devices import DeviceInfo

GEMM = """
#define AT(row, col, ld, row_major) ((row_major) ? (row) * (ld) + (col) : (col) * (ld) + (row))

__kernel void naive(int m, int n, int k, float alpha, {a}, {b}, float beta, __global float *c, int ldc)
{{
    const int col = get_global_id(0);
    const int row = get_global_id(1);
    if (row >= m || col >= n)
        return;
    float sum = 0.0f;
    for (int p = 0; p < k; ++p)
        sum += {load_a} * {load_b};
    __global float *to = c + AT(row, col, ldc, {c_row});
    *to = beta == 0.0f ? alpha * sum : alpha * sum + beta * *to;
}}
"""

TRANSPOSE = """
__kernel void turn(int rows, int cols, __global const float *a, int lda, __global float *b, int ldb)
{
    const int col = get_global_id(0);
    const int row = get_global_id(1);
    if (row < rows && col < cols)
        b[col * ldb + row] = a[row * lda + col];
}
"""

INT, FLOAT = "int32", "float32"


def naive(a: Order = "row", b: Order = "row", c: Order = "row", images: str = "") -> Source:
    """A product, one element per work-item, groups of 4x8; `images` names the operands that are images."""
    orders = {"a": a, "b": b}
    index = {"a": "row, p", "b": "p, col"}
    declare, load = {}, {}
    arguments = [*(Argument(x, "int", INT) for x in "mnk"), Argument("alpha", "scalar", FLOAT)]
    for x, order in orders.items():
        if x in images:
            slow, fast = index[x].split(", ") if order == "row" else index[x].split(", ")[::-1]
            declare[x] = f"__read_only image2d_t {x}"
            load[x] = f"read_imagef({x}, (int2)({fast}, {slow})).x"
            arguments.append(Argument(x, "image", FLOAT))
        else:
            declare[x] = f"__global const float *{x}, int ld{x}"
            load[x] = f"{x}[AT({index[x]}, ld{x}, {int(order == 'row')})]"
            arguments += [Argument(x, "buffer", FLOAT), Argument(f"ld{x}", "int", INT)]
    arguments += [Argument("beta", "scalar", FLOAT), Argument("c", "buffer", FLOAT, True), Argument("ldc", "int", INT)]
    text = GEMM.format(**declare, load_a=load["a"], load_b=load["b"], c_row=int(c == "row"))
    grid = ceil_div(Var("m"), 4), ceil_div(Var("n"), 8)
    entry = EntryPoint("naive", tuple(arguments), (4, 8), grid, 0, 0, None)
    spec = GemmSpec(a_order=a, b_order=b, c_order=c)
    return Source("naive", "opencl", "gemm", text, (entry,), spec, ("-cl-std=CL1.2",))


def turn() -> Source:
    """A transpose."""
    names = [("rows", "int"), ("cols", "int"), ("a", "buffer"), ("lda", "int"), ("b", "buffer"), ("ldb", "int")]
    arguments = tuple(Argument(n, k, INT if k == "int" else FLOAT, n == "b") for n, k in names)  # type: ignore[arg-type]
    entry = EntryPoint("turn", arguments, (4, 8), (ceil_div(Var("rows"), 4), ceil_div(Var("cols"), 8)), 0, 0, None)
    return Source("turn", "opencl", "transpose", TRANSPOSE, (entry,), GemmSpec())


def with_entry(source: Source, **changes: object) -> Source:
    """The source with another launch."""
    (entry,) = source.entry_points
    return replace(source, entry_points=(replace(entry, **changes),))  # type: ignore[arg-type]


def found() -> list[DeviceInfo]:
    """The devices of this machine: none where pyopencl is not installed."""
    try:
        from gemmgen.runtime.opencl_devices import devices

        return list(devices())
    except DeviceError:
        return []


def id_of(device: DeviceInfo) -> str:
    """What stands for a device in a test's name."""
    return f"{device.platform}-{device.number}".replace(" ", "_")


def devices_that(fit: Callable[[DeviceInfo], bool]) -> list[ParameterSet]:
    """For `pytest.mark.parametrize("device", ...)`: the machine's devices that fit, or one test that says there is
    none.
    """
    fitting = [pytest.param(device, id=id_of(device)) for device in ALL if fit(device)]
    return fitting or [pytest.param(None, marks=pytest.mark.skip(reason=NONE))]


NONE = 'no OpenCL device for this test: pip install "gemmgen[cpu]"'
ALL = tuple(found())
DEVICES = devices_that(lambda device: True)
CPUS = devices_that(lambda device: device.type == "cpu")

needs_device = pytest.mark.skipif(not ALL, reason=NONE)
