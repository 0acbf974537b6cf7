"""Every file of generated/sycl: as it is emitted, and taken without a warning by DPC++ (device) and g++ (host)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.errors import ScheduleError
from gemmgen.spec import GemmSpec
from tests.support import sycl
from tests.support.docs import blocks
from tests.support.golden import Golden
from tests.support.sycl import ENDINGS

NAMES = sycl.names()
#: The one whose self-checking program is kept to be read.
PROGRAM = "register_8x8_4x4"
CASES = [(name, form) for name in NAMES for form in ENDINGS]


def folder(root: Path) -> Path:
    return root / "generated" / "sycl"


@pytest.mark.parametrize(("name", "form"), CASES)
def test_emitted_file(name: str, form: str, golden: Golden) -> None:
    golden.check(folder(golden.root) / f"{name}{ENDINGS[form]}", sycl.emit(name, form).text)


def test_emitted_program(golden: Golden) -> None:
    golden.check(folder(golden.root) / "main" / f"{PROGRAM}.cpp", sycl.emit(PROGRAM, "main").text)


def test_emitted_transpose(golden: Golden) -> None:
    text = driver.emit_transpose(GemmSpec(), 16, "sycl").text
    golden.check(folder(golden.root) / "transpose" / "transpose_sg16.hpp", text)


def test_no_orphans(golden: Golden) -> None:
    expected = {folder(golden.root) / f"{name}{ENDINGS[form]}" for name, form in CASES}
    for ending in ENDINGS.values():
        golden.check_no_orphans(folder(golden.root).glob(f"*{ending}"), expected)


def test_forms_hold_one_kernel() -> None:
    for name in NAMES:
        texts = [sycl.emit(name, form).text for form in sycl.FORMS]
        bodies = [re.findall(r"// What each work-item does\..*?\n}\n", text, re.DOTALL) for text in texts]
        assert len(bodies[0]) == len(sycl.emit(name, "kernel").entry_points), name
        assert bodies[0] == bodies[1] == bodies[2], name


@sycl.needs_device
@pytest.mark.parametrize("form", ENDINGS)
def test_device_side(form: str) -> None:
    """What is kept is what is emitted (above)."""
    content = sycl.compile_together(form)
    missing = [name for name in NAMES if form == "kernel" and f"__sycl_kernel_{name}\0".encode() not in content]
    assert not missing


@sycl.needs_device
@pytest.mark.parametrize("block", [8, 16, 32])
def test_device_side_of_a_transpose(block: int) -> None:
    for form in ENDINGS:
        sycl.device_compile(driver.emit_transpose(GemmSpec(), block, "sycl", form=form))


@sycl.needs_device
def test_device_side_of_programs() -> None:
    sycl.device_compile(sycl.emit(PROGRAM, "main"))
    sycl.device_compile(driver.emit_transpose(GemmSpec(), 16, "sycl", form="main"))


@sycl.needs_device
@pytest.mark.parametrize("form", ENDINGS)
def test_host_side(form: str, tmp_path: Path) -> None:
    file = tmp_path / "all.cpp"
    file.write_text(sycl.together(form))
    sycl.host_check(file)


@sycl.needs_device
def test_host_side_of_programs(tmp_path: Path) -> None:
    spec = GemmSpec(m=64, a_order="col", c_order="col", alpha=2.0, multiple_of=(1, 8, 8))
    sources = {
        "plain": sycl.emit(PROGRAM, "main"),
        "folded": driver.emit(spec, presets.load("smem_8x8").schedule, "sycl", form="main"),
        "transpose": driver.emit_transpose(GemmSpec(), 16, "sycl", form="main"),
    }
    for name, source in sources.items():
        file = tmp_path / f"{name}.cpp"
        file.write_text(source.text)
        sycl.host_check(file)


@sycl.needs_device
def test_host_side_of_a_caller(tmp_path: Path) -> None:
    """Two headers in one program, called with and without events to wait for, and as `docs/cpp.md` has it."""
    chosen = ("L3_SLM_8x8_4x16", "sg16_block_16x2")
    for name in chosen:
        (tmp_path / f"{name}.hpp").write_text(sycl.emit(name, "header").text)
    (tmp_path / "transpose.hpp").write_text(driver.emit_transpose(GemmSpec(), 16, "sycl").text)
    call = "{}(queue, m, n, k, 1.0f, a, k, b, n, 0.0f, c, n{});"
    file = tmp_path / "caller.cpp"
    file.write_text(
        "".join(f'#include "{name}.hpp"\n#include "{name}.hpp"\n' for name in (*chosen, "transpose"))
        + "sycl::event f(sycl::queue &queue, int m, int n, int k, const float *a, const float *b, float *c)\n{\n"
        + f"    sycl::event first = {call.format(chosen[0], '')}\n"
        + f"    sycl::event then = {call.format(chosen[1], ', {first}')}\n"
        + "    return transpose_sg16(queue, k, m, a, m, c, k, {then});\n}\n"
        + "".join(blocks("cpp.md", "cpp"))
    )
    sycl.host_check(file, "-I", str(tmp_path))


# Not run here so far: icpx is in no registry that this project's machines reach. CI installs it.
@pytest.mark.parametrize("name", NAMES)
def test_icpx_takes_and_runs_the_program(name: str, tmp_path: Path) -> None:
    icpx = shutil.which("icpx")
    if icpx is None:
        pytest.skip("icpx is not on this machine: see .github/workflows/ci.yml, which installs it")
    (tmp_path / f"{name}.hpp").write_text(sycl.emit(name, "header").text)
    caller = tmp_path / "caller.cpp"
    caller.write_text(f'#include "{name}.hpp"\n')
    options = ["-fsycl", "-std=c++17", "-O3", "-fp-model=precise", *sycl.STRICT]
    sycl.run([icpx, *options, "-c", str(caller), "-o", str(tmp_path / "caller.o")])
    program, binary = tmp_path / f"{name}.cpp", tmp_path / name
    program.write_text(sycl.emit(name, "main").text)
    sycl.run([icpx, *options, str(program), "-o", str(binary)])
    assert sycl.run([str(binary)]).endswith("passed\n")


def test_images_name_the_buffer_schedule() -> None:
    preset = presets.load("block_read_32x2_1x8")
    with pytest.raises(ScheduleError, match="--method simd --tile 32x2 --group 1x8"):
        driver.emit(preset.spec, preset.schedule, "sycl")


def test_a_form_of_another_backend() -> None:
    with pytest.raises(ScheduleError, match="form 'main' means nothing to backend opencl: leave it out"):
        driver.emit_transpose(GemmSpec(), form="main")
    with pytest.raises(ScheduleError, match="use one of header, kernel, main"):
        driver.emit_transpose(GemmSpec(), backend="sycl", form="header-only")
