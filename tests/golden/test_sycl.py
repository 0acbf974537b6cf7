"""Every file of generated/sycl: as it is emitted, and taken without a warning by DPC++ (device) and g++ (host)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.errors import ScheduleError
from gemmgen.source import Source
from gemmgen.spec import GemmSpec
from tests.support import sycl
from tests.support.docs import blocks
from tests.support.golden import Golden
from tests.support.sycl import ENDINGS

NAMES = sycl.shipped()
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
        # Programs that check themselves are of float32.
        forms = [form for form in sycl.FORMS if form != "main" or name not in sycl.BY_MATRICES]
        texts = [sycl.emit(name, form).text for form in forms]
        bodies = [re.findall(r"// What each work-item does\..*?\n}\n", text, re.DOTALL) for text in texts]
        assert len(bodies[0]) == len(sycl.emit(name, "kernel").entry_points), name
        assert all(body == bodies[0] for body in bodies), name


def transposes(form: str) -> str:
    """Those of each sub-group size in one text."""
    return "".join(driver.emit_transpose(GemmSpec(), block, "sycl", form=form).text for block in (8, 16, 32))


def programs(*sources: Source) -> str:
    """Several programs in one text, each in a namespace: the runtime's headers are then read once."""
    lines = [line for source in sources for line in source.text.splitlines() if line.startswith("#include")]
    # Programs call their launcher in the global namespace.
    texts = ((x.name, x.text.replace(f" ::{x.name}(", f" of_{x.name}::{x.name}(")) for x in sources)
    parts = [f"namespace of_{name} {{\n{text}}}\n" for name, text in texts]
    return "\n".join((*dict.fromkeys(lines), *parts))


@sycl.needs_device
@pytest.mark.parametrize("form", ENDINGS)
def test_device_side(form: str) -> None:
    """What is kept is what is emitted (above)."""
    content = sycl.compile_together(form)
    assert form == "header" or not [x for x in NAMES if f"__sycl_kernel_{x}\0".encode() not in content]


@sycl.needs_device
@pytest.mark.parametrize("form", ENDINGS)
def test_device_side_of_transposes(form: str) -> None:
    content = sycl.device_compile_text(transposes(form), "transposes")
    assert form == "header" or all(f"__sycl_kernel_transpose_sg{x}\0".encode() in content for x in (8, 16, 32))


@sycl.needs_device
def test_device_side_of_programs() -> None:
    transpose = driver.emit_transpose(GemmSpec(), 16, "sycl", form="main")
    sycl.device_compile_text(programs(sycl.emit(PROGRAM, "main"), transpose), "programs")


@sycl.needs_device
def test_host_side_of_kernels(tmp_path: Path) -> None:
    file = tmp_path / "all.cpp"
    file.write_text(sycl.together("kernel") + transposes("kernel"))
    sycl.host_check(file)


@sycl.needs_device
def test_host_side_of_programs(tmp_path: Path) -> None:
    spec = GemmSpec(m=64, a_order="col", c_order="col", alpha=2.0, multiple_of=(1, 8, 8))
    plain = sycl.emit(PROGRAM, "main")
    folded = driver.emit(spec, presets.load("smem_8x8").schedule, "sycl", form="main")
    transpose = driver.emit_transpose(GemmSpec(), 16, "sycl", form="main")
    file = tmp_path / "programs.cpp"
    file.write_text(programs(plain, folded, transpose))
    sycl.host_check(file)


@sycl.needs_device
def test_host_side_of_headers_and_a_caller(tmp_path: Path) -> None:
    """All headers in one program, some included twice, called with and without events to wait for, and as `docs/cpp.md`
    has it.
    """
    chosen = ("L3_SLM_8x8_4x16", "sg16_block_16x2")
    for name in chosen:
        (tmp_path / f"{name}.hpp").write_text(sycl.emit(name, "header").text)
    (tmp_path / "transpose.hpp").write_text(driver.emit_transpose(GemmSpec(), 16, "sycl").text)
    call = "{}(queue, m, n, k, 1.0f, a, k, b, n, 0.0f, c, n{});"
    file = tmp_path / "caller.cpp"
    file.write_text(
        sycl.together("header")
        + "".join(f'#include "{name}.hpp"\n#include "{name}.hpp"\n' for name in (*chosen, "transpose"))
        + "sycl::event f(sycl::queue &queue, int m, int n, int k, const float *a, const float *b, float *c)\n{\n"
        + f"    sycl::event first = {call.format(chosen[0], '')}\n"
        + f"    sycl::event then = {call.format(chosen[1], ', {first}')}\n"
        + "    return transpose_sg16(queue, k, m, a, m, c, k, {then});\n}\n"
        + "".join(blocks("cpp.md", "cpp"))
    )
    sycl.host_check(file, "-I", str(tmp_path))


def test_images_name_the_buffer_schedule() -> None:
    preset = presets.load("block_read_32x2_1x8")
    with pytest.raises(ScheduleError, match="--method simd --tile 32x2 --group 1x8"):
        driver.emit(preset.spec, preset.schedule, "sycl")


def test_a_form_of_another_backend() -> None:
    with pytest.raises(ScheduleError, match="form 'main' means nothing to backend cuda: leave it out"):
        driver.emit(GemmSpec(), presets.load("naive").schedule, "cuda", form="main")
    with pytest.raises(ScheduleError, match="form 'main' means nothing to backend opencl: use one of kernel, header"):
        driver.emit_transpose(GemmSpec(), form="main")
    with pytest.raises(ScheduleError, match="use one of header, kernel, main"):
        driver.emit_transpose(GemmSpec(), backend="sycl", form="header-only")
