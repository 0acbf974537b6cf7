"""What the presets emit is under version control: every change of an emitted kernel shows in a diff."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from gemmgen import candidates, driver, presets
from gemmgen.backends import backend as find_backend
from gemmgen.ir.show import show
from gemmgen.ir.target import TARGETS
from tests.support.golden import Golden
from tests.support.tools import clang, nvcc


def expressible(backend: str, names: Iterable[str] = presets.names()) -> tuple[str, ...]:
    """The presets that a backend's default target can take, and use well; goldens of others would be orphans."""
    loaded = [candidates.load(name) for name in names]
    unfit = find_backend(backend).unfit
    fit = (p for p in loaded if unfit(p.schedule.all_work_items) is None)
    return tuple(p.name for p in fit if not driver.refusals(p.spec, p.schedule, backend))


NAMES = expressible("opencl")
CUDA_NAMES = expressible("cuda")
#: Those that no file is kept of; they are compiled as well.
UNLISTED, CUDA_UNLISTED = (expressible(backend, presets.unlisted()) for backend in ("opencl", "cuda"))
#: One each of: shuffles from buffers, a ring in local memory, block reads from images.
SHOWN = ("L3_SIMD_32x2_1x8", "smem_8x8_double", "block_read_32x1_1x8")

DIGEST = """
import hashlib
from gemmgen import candidates, driver
digest = hashlib.sha256()
for name in candidates.names()[::3]:
    preset = candidates.load(name)
    for backend in ("opencl", "cuda", "sycl"):
        if not driver.refusals(preset.spec, preset.schedule, backend):
            digest.update(driver.emit(preset.spec, preset.schedule, backend).text.encode())
print(digest.hexdigest())
"""


def emit(name: str, backend: str = "opencl") -> str:
    preset = candidates.load(name)
    return driver.emit(preset.spec, preset.schedule, backend).text


@pytest.mark.parametrize("name", NAMES)
def test_emitted_file(name: str, golden: Golden) -> None:
    golden.check(golden.root / "generated" / "opencl" / f"{name}.cl", emit(name))


@pytest.mark.parametrize("name", CUDA_NAMES)
def test_emitted_cuda_file(name: str, golden: Golden) -> None:
    golden.check(golden.root / "generated" / "cuda" / f"{name}.cu", emit(name, "cuda"))


@pytest.mark.parametrize(("backend", "suffix"), [("opencl", ".cl"), ("cuda", ".cu")])
def test_no_orphans(backend: str, suffix: str, golden: Golden) -> None:
    folder = golden.root / "generated" / backend
    golden.check_no_orphans(folder.glob(f"*{suffix}"), {folder / f"{name}{suffix}" for name in expressible(backend)})


def test_text_is_independent_of_hash_seed() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert len(digests) == 1


def target_of(name: str) -> str:
    """The architecture that a file names."""
    preset = candidates.load(name)
    return driver.default_target(preset.spec, preset.schedule, "cuda").name


@pytest.mark.parametrize("arch", sorted({target_of(name) for name in (*CUDA_NAMES, *CUDA_UNLISTED)}))
def test_nvcc_takes_them_without_warnings_or_spills(arch: str, root: Path, tmp_path: Path) -> None:
    """All files of an architecture in one translation unit, where nothing that they define meets."""
    names = [name for name in (*CUDA_NAMES, *CUDA_UNLISTED) if target_of(name) == arch]
    folder = root / "generated" / "cuda"
    file = tmp_path / "all.cu"
    for name in set(names).intersection(CUDA_UNLISTED):
        (tmp_path / f"{name}.cu").write_text(emit(name, "cuda"))
    files = (f"{tmp_path if name in CUDA_UNLISTED else folder}/{name}.cu" for name in names)
    file.write_text("".join(f'#include "{path}"\n' for path in files))
    report = nvcc(file, arch, tmp_path)
    spills = re.findall(r"(\d+) bytes spill stores", report)
    assert len(spills) >= len(names)
    assert not any(map(int, spills)), report


# What has an `a` is compiled for where it is needed: presets `wgmma_*`.
@pytest.mark.parametrize("arch", [name for name in find_backend("cuda").targets if not name.endswith("a")])
@pytest.mark.parametrize(
    "name", ["naive", "L3_SIMD_32x2_1x8", "smem_8x8_double", "async_8x8_16x16", "mbarrier_8x16_16x16"]
)
def test_nvcc_for_each_target(name: str, arch: str, tmp_path: Path) -> None:
    preset = presets.load(name)
    target = TARGETS[arch]
    needs = {"async_copy": ("sm_80", preset.schedule.a.async_copy), "mbarrier": ("sm_90", preset.schedule.mbarrier)}
    missing = [since for feature, (since, asked) in needs.items() if asked and feature not in target.features]
    if missing:
        problems = driver.refusals(preset.spec, preset.schedule, "cuda", target)
        assert all(any(f"{since} or later" in problem for problem in problems) for since in missing)
        return
    nvcc(driver.emit(preset.spec, preset.schedule, "cuda", target).text, arch, tmp_path)


@pytest.mark.parametrize("stop_after", driver.PASS_NAMES)
@pytest.mark.parametrize("name", SHOWN)
def test_ir_after_pass(name: str, stop_after: str, golden: Golden) -> None:
    preset = presets.load(name)
    kernel = driver.lower(preset.spec, preset.schedule, stop_after=stop_after)
    golden.check(_ir_file(golden.root, name, stop_after), show(kernel).rstrip("\n") + "\n")


def test_no_orphaned_ir(golden: Golden) -> None:
    expected = {_ir_file(golden.root, name, stop_after) for name in SHOWN for stop_after in driver.PASS_NAMES}
    golden.check_no_orphans((golden.root / "tests" / "golden" / "ir").rglob("*.txt"), expected)


@pytest.mark.parametrize(
    ("name", "has_matrices"),
    [(name, with_them) for name in (*NAMES, *UNLISTED) for with_them in (True, False)[: 1 + name.startswith("dpas")]],
)
def test_compiles_without_warnings(name: str, has_matrices: bool, tmp_path: Path) -> None:
    preset = candidates.load(name)
    source = driver.emit(preset.spec, preset.schedule, "opencl")
    file = tmp_path / f"{name}.cl"
    file.write_text(source.text)
    # As it was emitted for, or by the newest standard, where every feature is optional and so available here.
    options = source.options(of_intel=False, has_matrices=has_matrices)
    standard = () if any(option.startswith("-cl-std=") for option in options) else ("-cl-std=CL3.0",)
    clang(file, *standard, *options)


def _ir_file(root: Path, name: str, stop_after: str) -> Path:
    number = driver.PASS_NAMES.index(stop_after)
    return root / "tests" / "golden" / "ir" / name / f"{number:02}_{stop_after}.txt"


def test_head_comment_says_what_the_schedule_does() -> None:
    """Loads are named as they are emitted, not as they were asked for."""
    text = emit("async_8x8_16x16", "cuda")
    assert "// A          global memory, cp.async of single elements, 3 stages in shared memory, transposed," in text
    assert "// B          global memory, cp.async of 4 elements, 3 stages in shared memory" in text
    head = text.split("#ifndef")[0]
    assert all(part in head for part in ("warps of 4x8 threads", "double-buffered across tiles", "serpentine order"))
    assert "loads of 4 elements" in emit("register_8x8_4x4", "cuda").split("#ifndef")[0]
