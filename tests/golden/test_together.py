"""Emitted files beside one another: in one translation unit, in one OpenCL program."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from gemmgen import driver, presets
from tests.golden.test_presets import CUDA_NAMES, NAMES, target_of
from tests.support.tools import clang, ran, tool

HOST_WARNINGS = ("-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror")
#: Of CUDA's pairs: helpers of one name with different bodies, shared memory of different alignment, twice the same.
CHOSEN = [
    ("wgmma_128x256_s4", "mbarrier_8x16_16x16"),
    ("wgmma_3xtf32_128x128_s3", "wgmma_tf32_128x256_s4_held"),
    ("mbarrier_8x16_16x16_boxes_packed", "mbarrier_8x16_16x16_stream"),
]


def drawn(names: tuple[str, ...], count: int) -> list[tuple[str, str]]:
    """Pairs of different names, the same in every run."""
    rng = random.Random(20)
    return [(first, second) for first, second in (rng.sample(names, 2) for _ in range(count))]


@pytest.mark.parametrize("names", [*CHOSEN, *drawn(CUDA_NAMES, 5)], ids="+".join)
def test_two_cuda_files_and_their_launchers(names: tuple[str, str], root: Path, tmp_path: Path) -> None:
    """Host code, too, which `-cubin` leaves out."""
    file = tmp_path / "two.cu"
    file.write_text("".join(f'#include "{root}/generated/cuda/{name}.cu"\n' for name in names))
    needed = max((target_of(name) for name in names), key=lambda arch: (arch[3:], arch))
    arch = f"arch=compute_{needed[3:]},code={needed}"
    # What stands in the kernels has been compiled elsewhere.
    quick = ("-Xptxas", "-O0", "-Xcicc", "-O0")
    nvcc = tool("nvcc")
    ran([nvcc, "-std=c++17", *HOST_WARNINGS, *quick, "-gencode", arch, "-c", str(file), "-o", str(tmp_path / "two.o")])


def test_all_opencl_files_in_one_translation_unit(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.cl"
    file.write_text("".join(f'#include "{root}/generated/opencl/{name}.cl"\n' for name in NAMES))
    software = "-DGEMMGEN_DPAS_SOFTWARE"
    clang(file, "-cl-std=CL3.0", software)


def test_types_of_opencl_files_in_one_translation_unit(root: Path, tmp_path: Path) -> None:
    """Two kernels of the one mainloop that has a type of its own."""
    name = "dpas_32x4_8x64_block_2d"
    preset = presets.load(name)
    other = driver.emit(preset.spec, preset.schedule.but(name=f"{name}_2"), "opencl").text
    file = tmp_path / "two.cl"
    file.write_text((root / "generated" / "opencl" / f"{name}.cl").read_text("utf-8") + other)
    for defined in (("-DGEMMGEN_DPAS_SOFTWARE",), ("-DGEMMGEN_DPAS_SOFTWARE", "-DGEMMGEN_NO_ADDRESS_PAYLOADS")):
        clang(file, "-cl-std=CL3.0", *defined)


@pytest.mark.parametrize("name", CUDA_NAMES)
def test_nothing_stands_outside_of_a_namespace_but_kernels_and_launchers(name: str, root: Path) -> None:
    text = (root / "generated" / "cuda" / f"{name}.cu").read_text("utf-8")
    detail = rf"^namespace {name}_detail {{$.*?^}} // namespace {name}_detail$"
    outside = re.sub(detail, "", text, flags=re.DOTALL | re.MULTILINE).replace(f"\n{name}", f" {name}")
    outside = outside.replace("\n__launch", " __launch")
    functions = re.findall(r"^(?![ \t#/}{])(?:[\w:*&<> ]+?)(\w+)\(", outside, re.MULTILINE)
    # Attributes come before a name.
    attributes = {"__launch_bounds__", "__cluster_dims__", "alignas"}
    assert {x for x in functions if x not in attributes and not x.startswith(name)} == set()
    defined, undefined = (set(re.findall(rf"^#{word} (\w+)", text, re.MULTILINE)) for word in ("define", "undef"))
    assert defined - {"GEMMGEN_TENSOR_MAP"} == undefined
