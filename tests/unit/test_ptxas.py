"""`--strict`: what ptxas says of registers, and what is said where it can't be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.errors import DeviceError, ScheduleError
from gemmgen.options import build_schedule
from gemmgen.runtime import ptxas
from gemmgen.runtime.nvrtc import nvrtc
from gemmgen.runtime.ptxas import Usage
from gemmgen.source import Source
from gemmgen.spec import GemmSpec
from tests.support.cli import printed, refused
from tests.support.tools import tool

#: 1,024 threads a block leave a thread 64 registers at most, and it has 64 elements of C.
SPILLING = ["--backend", "cuda", "--method", "slm", "--tile", "8x8", "--group", "32x32"]
SPILLING_NAME = "gemm_f32_slm_256x256_by32x32"

NVCC_LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
    1552 bytes stack frame, 9600 bytes spill stores, 10264 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1552 bytes cumulative stack size, 8192 bytes smem
ptxas info    : Compile time = 470.943 ms
ptxas info    : Function properties for called
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers
"""
NVRTC_LOG = """ptxas info    : Function properties for one
ptxas         .     1552 bytes stack frame, 9604 bytes spill stores, 10268 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1552 bytes cumulative stack size, 8192 bytes smem
"""


def spilling() -> Source:
    return driver.emit(GemmSpec(), build_schedule("slm", tile="8x8", group="32x32"), "cuda")


def naive() -> Source:
    preset = presets.load("naive")
    return driver.emit(preset.spec, preset.schedule, "cuda")


def test_logs() -> None:
    assert ptxas.parse(NVCC_LOG) == (Usage("one", 32, 1552, 9600, 10264), Usage("two", 128, 0, 0, 0))
    assert ptxas.parse(NVRTC_LOG) == (Usage("one", 32, 1552, 9604, 10268),)
    assert ptxas.parse("nothing") == ()


def test_nvcc() -> None:
    tool("nvcc")
    ptxas.refuse_spills(naive(), "sm_90")
    with pytest.raises(
        ScheduleError, match=rf"^{SPILLING_NAME} spills [\d,]+ B by stores .* 32 registers.*smaller tile"
    ):
        ptxas.refuse_spills(spilling(), "sm_90")


def test_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        nvrtc()
    except DeviceError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(ptxas, "find_nvcc", lambda: None)
    ptxas.refuse_spills(naive(), "sm_90")
    with pytest.raises(ScheduleError, match=f"^{SPILLING_NAME} spills"):
        ptxas.refuse_spills(spilling(), "sm_90")
    with pytest.raises(DeviceError, match="NVRTC does not compile naive for sm_33"):
        ptxas.refuse_spills(naive(), "sm_33")


def test_neither(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gemmgen.tools.folders", lambda: [str(tmp_path)])
    monkeypatch.setattr("gemmgen.runtime.nvrtc.candidates", lambda _: iter(()))
    monkeypatch.setattr("gemmgen.runtime.ptxas.nvrtc", getattr(nvrtc, "__wrapped__"))  # noqa: B009
    with pytest.raises(
        DeviceError, match=r"no nvcc.* pip install \"nvidia-cuda-nvrtc\".*\[nvcc\].* leave out --strict"
    ):
        ptxas.refuse_spills(naive(), "sm_90")


@pytest.mark.parametrize(
    ("script", "part"),
    [
        ("#!/bin/sh\necho no licence >&2\nexit 3", "does not compile naive for sm_90 (exit code 3)"),
        ("#!/bin/sh\necho hello", "does not say what registers naive gets; its log:\nhello"),
        ("#!/no/such/shell", "can't be run (No such file or directory)"),
    ],
)
def test_a_broken_nvcc(script: str, part: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text(script)
    nvcc.chmod(0o755)
    # Off PATH it is found by the toolkit's own variable.
    monkeypatch.setenv("PATH", "/no/such/folder")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(DeviceError) as error:
        ptxas.refuse_spills(naive(), "sm_90")
    assert part in str(error.value) and str(nvcc) in str(error.value)


def test_emit(tmp_path: Path) -> None:
    tool("nvcc")
    good = "--backend", "cuda", "--preset", "smem_8x8"
    assert printed("emit", *good, "--strict") == printed("emit", *good)
    assert "spills" in refused("emit", *SPILLING, "--strict", "-o", tmp_path / "x.cu")
    assert not list(tmp_path.iterdir())
    assert SPILLING_NAME in printed("emit", *SPILLING)
    transpose = "emit", "--backend", "cuda", "--kernel", "transpose"
    assert printed(*transpose, "--strict") == printed(*transpose)


def test_strict_where_it_means_nothing() -> None:
    assert "--strict asks ptxas, which knows nothing of opencl" in refused("emit", "--tile", "8x4", "--strict")
    text = refused("emit", "--backend", "cuda", "--preset", "naive", "--strict", "--stop-after", "build")
    assert "--strict and --stop-after exclude" in text
