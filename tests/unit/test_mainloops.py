"""The parts that kernels are composed of: which mainloop serves a schedule, and how flat they stay."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

import pytest

from gemmgen import candidates, driver, mainloops, presets
from gemmgen.build import MAINLOOPS, build, mainloop_of
from gemmgen.ir.stmt import CooperativeCopy
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import walk
from gemmgen.mainloops.mainloop import Mainloop
from gemmgen.schedule import Operand, flat


def test_every_mainloop_is_built_and_serves_a_preset() -> None:
    assert {member.__name__ for member in flat.MAINLOOPS} == MAINLOOPS.keys()
    assert {mainloop_of(presets.load(name).schedule) for name in presets.names()} == MAINLOOPS.keys() - {"Mfma"}


@pytest.mark.parametrize(
    ("preset", "mainloop"),
    [
        ("naive", "Direct"),
        ("smem_8x8", "SharedMemory"),
        ("L3_SIMD_8x4_8x8", "SubGroup"),
        ("mma_8x16_16x16", "WarpMma"),
        ("wgmma_128x256_s4", "WarpgroupMma"),
        ("dpas_32x2_1x8", "Dpas"),
        ("cpu_6x64", "CpuPanel"),
    ],
)
def test_mainloop_of_a_preset(preset: str, mainloop: str) -> None:
    assert mainloop_of(candidates.load(preset).schedule) == mainloop


def test_sub_groups_may_stage_b_in_shared_memory() -> None:
    preset = candidates.load("block_read_32x2_4x8")
    staged = preset.schedule.but(b=Operand("local", width=4), name=None)
    assert mainloop_of(staged) == "SubGroup"
    assert not driver.refusals(preset.spec, staged, "opencl", TARGETS["intel"])
    kernel = build(preset.spec, staged, TARGETS["intel"]).main
    assert next(stmt.dst.buffer.name for stmt in walk(kernel.body) if isinstance(stmt, CooperativeCopy)) == "b_shared"


def test_no_mainloop_inherits_from_one_that_inherits() -> None:
    """Beside the base of all, which builds nothing."""
    modules = [
        import_module(f"{mainloops.__name__}.{found.name}") for found in pkgutil.iter_modules(mainloops.__path__)
    ]
    classes = [x for module in modules for _, x in inspect.getmembers(module, inspect.isclass)]
    ours = [x for x in classes if x.__module__.startswith(mainloops.__name__)]
    assert ours
    assert inspect.isabstract(Mainloop)
    depths = {x.__name__: sum(base in ours for base in x.__mro__ if base is not Mainloop) for x in ours}
    assert not {name: depth for name, depth in depths.items() if depth > 2}
