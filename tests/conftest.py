"""Fixtures for all tests, and the option that rewrites golden files."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from gemmgen.errors import DeviceError
from gemmgen.runtime import cache, require_pyopencl
from tests.support import skips, tiers
from tests.support.golden import Golden

# What a test finds wrong is to be this tree's doing, patched as the test has it, and not an answer of another run.
os.environ[cache.OFF] = "answers,tuned"
# The kernel that a test is about is to be the one that runs.
os.environ["GEMMGEN_COMPILE_ASIDE"] = "0"
os.environ["GEMMGEN_NUMPY"] = "0"
# A shell's job in the background ignores Ctrl-C, and so would every process that a test starts, those among them whose
# end by Ctrl-C is tested. A signal that has a handler here is an ordinary one there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Hundreds of tests start processes that import gemmgen. Where Python is told to leave no compiled files behind, each
# would compile it anew, which takes longer than most of what they do: they lie elsewhere until the tests end.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    _compiled = tempfile.TemporaryDirectory(prefix="gemmgen-tests-", ignore_cleanup_errors=True)
    os.environ["PYTHONPYCACHEPREFIX"] = _compiled.name


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
    parser.addoption(
        "--no-skips",
        action="store_true",
        help="fail where a test is skipped for want of anything but a GPU, icpx or torch",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests get their marker, before `-m` looks for it."""
    tests = Path(__file__).parent
    tiers.mark(items, tests)
    whole_files = not any("::" in argument for argument in config.args)
    if whole_files and (gone := tiers.gone(items, tests)):
        raise pytest.UsageError(f"tests/support/tiers.py names tests that are not there: {', '.join(gone)}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-skips"):
        config.pluginmanager.register(NoSkips())


class NoSkips:
    """Makes a test, or a file of tests, fail that was skipped though it could have been run."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if not hasattr(report, "wasxfail"):
            self._forbid(report)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        self._forbid(report)
        return report

    def _forbid(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped:
            return
        why = report.longrepr
        reason = str(why[2] if isinstance(why, tuple) else why).removeprefix("Skipped: ")
        if not reason.startswith(skips.ALLOWED):
            report.outcome = "failed"
            report.longrepr = f"skipped, though --no-skips forbids it: {reason}"


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
