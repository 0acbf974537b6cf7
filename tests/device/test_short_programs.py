"""The programs of `examples`: short, and right. CUDA's and SYCL's are only compiled: see the tests' names."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gemmgen import driver, presets
from tests.support import skips, sycl
from tests.support.docs import ROOT
from tests.support.tools import tool

EXAMPLES = ROOT / "examples"
NAMES = ("cpp_cuda", "cpp_opencl", "cpp_sycl", "custom_epilogue", "ladder", "numpy_matmul", "torch_linear")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def run(command: list[str], folder: Path, **settings: str) -> str:
    """What a command prints that must succeed."""
    environment = {**ENVIRONMENT, **settings}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_they_are_short() -> None:
    assert {folder.name for folder in EXAMPLES.iterdir() if folder.is_dir()} == set(NAMES)
    for file in EXAMPLES.glob("*/*"):
        assert len(file.read_text("utf-8").splitlines()) < 60, file


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [("numpy_matmul", [], "right"), ("custom_epilogue", [], "exp(-1.702f"), ("ladder", ["64"], "GFLOP/s")],
    ids=["numpy_matmul", "custom_epilogue", "ladder"],
)
def test_python(name: str, arguments: list[str], says: str, tmp_path: Path) -> None:
    assert says in run([sys.executable, "-W", "error", str(EXAMPLES / name / "main.py"), *arguments], tmp_path)


def test_torch(tmp_path: Path) -> None:
    if find_spec("torch") is None:
        pytest.skip(skips.TORCH)
    assert "loss after 20 steps" in run([sys.executable, str(EXAMPLES / "torch_linear" / "main.py")], tmp_path)


def test_opencl_builds_by_cmake_and_runs(tmp_path: Path) -> None:
    icd = pytest.importorskip("gemmgen.runtime.icd")
    tool("g++")
    if not Path("/usr/include/CL/cl.h").is_file():
        pytest.skip("apt-get install ocl-icd-opencl-dev")
    configure = ["-S", str(EXAMPLES / "cpp_opencl"), "-B", ".", f"-DGEMMGEN={sys.executable};-m;gemmgen"]
    flags = "-Wall -Wextra -Werror"
    run([tool("cmake"), *configure, f"-DCMAKE_CXX_FLAGS={flags}"], tmp_path)
    run([tool("cmake"), "--build", "."], tmp_path)
    library = icd.intel_cpu_library()
    if library is None:
        pytest.skip("the extra cpu")
    assert "CL_SUCCESS: right" in run(["./example"], tmp_path, OCL_ICD_VENDORS=str(library))


def test_cuda_compiles(tmp_path: Path) -> None:
    """It needs a GPU to run."""
    preset = presets.load("async_8x8_16x16")
    kernel = tmp_path / "async_8x8_16x16.cu"
    kernel.write_text(driver.emit(preset.spec, preset.schedule, "cuda").text)
    options = ["-std=c++17", "-arch=sm_80", "-Werror", "all-warnings", "-c"]
    for file in (EXAMPLES / "cpp_cuda" / "main.cu", kernel):
        run([tool("nvcc"), *options, str(file), "-o", str(tmp_path / f"{file.stem}.o")], tmp_path)


@sycl.needs_device
def test_types_of_sycl(tmp_path: Path) -> None:
    """By g++: icpx builds it, which needs Intel's repository."""
    (tmp_path / "tile_8x8.hpp").write_text(sycl.emit("tile_8x8", "header").text)
    sycl.host_check(EXAMPLES / "cpp_sycl" / "main.cpp", "-I", str(tmp_path))


def test_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(EXAMPLES / "first_look.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "keep it without outputs"
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    ran = client.execute()
    said = [str(output) for cell in ran.cells for output in cell.get("outputs", ())]
    assert "True" in said[0] and "True" in said[1] and any("128x128 of C by 16x16" in text for text in said)
    assert any("image/svg+xml" in text for text in said)
