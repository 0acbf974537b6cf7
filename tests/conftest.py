"""Fixtures for all tests, and the option that rewrites golden files."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from gemmgen.api import on_disk
from gemmgen.errors import DeviceError
from gemmgen.runtime import require_pyopencl
from tests.support.golden import Golden

# What a test finds wrong is to be this tree's doing, patched as the test has it, and not an answer of another run.
os.environ[on_disk.OFF] = "1"
# Hundreds of tests start processes that import gemmgen. Where Python is told to leave no compiled files behind, each
# would compile it anew, which takes longer than most of what they do: they lie elsewhere until the tests end.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    _compiled = tempfile.TemporaryDirectory(prefix="gemmgen-tests-", ignore_cleanup_errors=True)
    os.environ["PYTHONPYCACHEPREFIX"] = _compiled.name

#: Tool -> what brings it on Debian 12.
TOOLS = {
    "clang": "apt-get install clang-22",
    "iga64": "apt-get install libigc-tools",
    "ocloc": "apt-get install intel-opencl-icd",
    "nvcc": "the CUDA toolkit",
    "nvdisasm": "pip install nvidia-cuda-nvdisasm",
    "chromium-headless-shell": "apt-get install chromium-headless-shell",
    "oclgrind": "apt-get install oclgrind",
}
#: Names under which a tool is looked for, best first.
SPELLINGS = {"clang": ("clang-22", *(f"clang-{version}" for version in range(21, 13, -1)), "clang")}


class TestFile(pytest.Module):
    """A file of tests, which is skipped as a whole, and said to be, where it can't do without pyopencl, which is not
    installed. Files that have tests of other devices as well import it no sooner than a test needs it.
    """

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return list(super().collect())
        except (DeviceError, self.CollectError) as error:
            if "pyopencl" not in str(error) or (reason := why_no_opencl()) is None:
                raise
            pytest.skip(reason, allow_module_level=True)


def why_no_opencl() -> str | None:
    """The reason to skip, or None where pyopencl is installed."""
    try:
        require_pyopencl()
    except DeviceError as error:
        return str(error)
    return None


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> TestFile:
    return TestFile.from_parent(parent, path=module_path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing with them")


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay until the end: Python need not look for garbage in them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest, root: Path) -> Golden:
    return Golden(root, bool(request.config.getoption("--update-golden")))


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that depend on the test's name alone: the same in any order and in any process."""
    return np.random.default_rng(crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="session")
def needs_tool() -> Callable[[str], str]:
    """Gives a function from a tool's name to its path, which skips the test where it is missing."""

    def find(name: str) -> str:
        for spelling in SPELLINGS.get(name, (name,)):
            if path := shutil.which(spelling):
                return path
        pytest.skip(f"{name} is not on this machine: {TOOLS.get(name, 'see CONTRIBUTING.md')}")

    return find
