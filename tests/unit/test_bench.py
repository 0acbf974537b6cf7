"""`gemmgen bench` as far as it goes without a GPU: options, turns, figures, files."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import gemmgen
from gemmgen.bench import libraries, plot
from gemmgen.bench.libraries import PeerProcess, accuracy, random_matrices
from gemmgen.bench.records import (
    CONFIDENCE,
    MOST_LAUNCHES,
    ROUNDS,
    WIDE,
    Accuracy,
    Interval,
    Row,
    Size,
    Timing,
    check_dtypes,
    launches,
    median_interval,
    parse_peers,
    parse_sizes,
    three_digits,
    to_csv,
    to_json,
    variant,
)
from gemmgen.bench.session import Plan, Stopped, candidates, measure
from gemmgen.cli.bench import _show as show_table
from gemmgen.cli.bench import _uncertain as uncertain
from gemmgen.errors import DeviceError, SpecError, UserError
from gemmgen.ir.dtypes import BF16, F8_E4M3, F32, F64, I8
from gemmgen.ir.target import TARGETS
from gemmgen.progress import lines
from gemmgen.spec import GemmSpec

GOOD = Accuracy(1e-7, 0.01)


class Fake:
    """A contender that is slower in its first block, and notes when it is asked."""

    def __init__(self, name: str, seconds: float, log: list[str]) -> None:
        self.name, self.variant, self.accuracy, self._seconds, self._log = name, "any ld", GOOD, seconds, log

    def block(self) -> float:
        self._log.append(self.name)
        return self._seconds * (1.5 if self._log.count(self.name) == 1 else 1.0)

    def close(self) -> None:
        self._log.append(f"{self.name} closed")


def test_sizes() -> None:
    assert parse_sizes("512, 128x14336x4096,512") == (Size(512, 512, 512), Size(128, 14336, 4096))
    assert [str(size) for size in parse_sizes("512,128x14336x4096")] == ["512", "128x14336x4096"]
    with pytest.raises(SpecError) as error:
        parse_sizes("12y,0,1x2,65536")
    assert len(error.value.problems) == 4
    assert "2^31" in error.value.problems[-1]


def test_peers() -> None:
    assert parse_peers("cublas, numpy,cublas") == ("cublas", "numpy")
    assert parse_peers("") == ()
    assert parse_peers("MKL,clblast") == ("mkl", "clblast")
    with pytest.raises(
        UserError, match="'fastblas' does not exist: give some of cublas, cublas_tf32, clblast, mkl, numpy"
    ):
        parse_peers("mkl,fastblas")


def test_a_missing_peer_is_told_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    monkeypatch.setattr(libraries, "find_library", lambda _: None)
    with pytest.raises(DeviceError) as error:
        libraries.require(("mkl", "numpy", "clblast"))
    assert [problem.split(": ", 1)[1].split(",")[0] for problem in error.value.problems] == [
        'pip install "gemmgen[mkl]"',
        "apt-get install libclblast-dev",
    ]


def test_a_broken_library_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "libmkl_rt.so.3"
    broken.write_bytes(b"no library")
    with pytest.raises(DeviceError, match=r"libmkl_rt\.so\.3 can't be loaded .* install it again"):
        libraries.load(str(broken), libraries.INSTALL_MKL)


def test_a_library_that_leaves_vectors_unused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no peer to boast of."""
    narrow, wide = "Intel(R) Architecture processors", "Intel(R) AVX-512 enabled processors"
    both = ("numpy", "mkl")

    def said(processors: str, has_avx512: bool, core: str, peers: tuple[str, ...] = both) -> list[str]:
        monkeypatch.setattr(libraries, "has_avx512", lambda: has_avx512)
        monkeypatch.setattr(libraries, "openblas_core", lambda: core)
        monkeypatch.setattr(libraries, "mkl_processors", lambda: processors)
        return libraries.cautions(peers)

    warnings = said(narrow, True, "Haswell")
    assert [line.split(", though")[0] for line in warnings] == [
        "NumPy's OpenBLAS runs its kernels for Haswell",
        f"MKL runs its kernels for {narrow}",
    ]
    assert "OPENBLAS_CORETYPE=SKYLAKEX" in warnings[0]
    assert said(wide, True, "SkylakeX") == []
    assert said(narrow, False, "Haswell") == []
    assert said(narrow, True, "Haswell", ("clblast",)) == []


@pytest.mark.skipif(libraries.openblas() is None, reason="NumPy is linked to another library than OpenBLAS")
def test_openblas_says_whose_kernels_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own word, in a process of its own: the choice is made when it is loaded."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    code = "from gemmgen.bench import libraries; print(libraries.openblas_core(), libraries.numpy_build())"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert answer.startswith(f"Nehalem {np.__version__}, OpenBLAS ")
    assert "kernels for Nehalem, " in answer


def test_other_types_are_refused_with_the_reason() -> None:
    check_dtypes(["float32"], ["cublas", "cublas_tf32", "numpy"], "opencl")
    check_dtypes(["bfloat16", "bfloat16"], ["cublas"], "cuda")
    check_dtypes(["float64"], ["numpy", "mkl", "clblast"], "opencl")
    with pytest.raises(SpecError) as error:
        check_dtypes(["float16", "complex64"], ["cublas", "mkl"], "cuda")
    assert [problem.split(":")[0] for problem in error.value.problems] == [
        "kernels of float16 and complex64 are no comparison",
        "mkl multiply other types here, not float16",
        "complex64 can't be measured on cuda",
        "mkl multiply other types here, not complex64",
    ]
    with pytest.raises(SpecError, match="float16 can't be measured on opencl: use float32, float64, or time kernels"):
        check_dtypes(["float16"], [], "opencl")


def test_turns_are_shuffled_and_medians_forgive_one_slow_round() -> None:
    log: list[str] = []
    ticks: list[None] = []
    fast, slow = measure([Fake("a", 1e-3, log), Fake("b", 2e-3, log)], 5, tick=lambda: ticks.append(None))
    assert log.count("a") == log.count("b") == len(ticks) == 5
    assert log != ["a", "b"] * 5
    assert all({*log[i : i + 2]} == {"a", "b"} for i in range(0, 10, 2))
    assert (fast.seconds, slow.seconds) == (1e-3, 2e-3)
    assert fast.spread == pytest.approx(0.5)
    row = Row(Size(100, 100, 100), fast, slow)
    assert row.ratio == pytest.approx(2.0)
    assert fast.rate(row.size) == pytest.approx(2e6 / 1e-3 / 1e12)


def test_ctrl_c_keeps_the_rounds_that_all_had_finished() -> None:
    class Interrupted(Fake):
        def block(self) -> float:
            seconds = super().block()
            if self._log.count(self.name) == 4:
                raise KeyboardInterrupt
            return seconds

    log: list[str] = []
    with pytest.raises(Stopped) as stop:
        measure([Fake("a", 1e-3, log), Interrupted("b", 2e-3, log)], 9)
    assert [(timing.name, len(timing.rounds)) for timing in stop.value.timings] == [("a", 3), ("b", 3)]
    with pytest.raises(Stopped) as stop:
        measure([Interrupted("c", 1e-3, ["c"] * 3)], 9)
    assert stop.value.timings == []


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    """A machine that is slow for a round or two is so for both."""
    ours = Timing("mine", (1e-6, 4e-6, 4e-6), GOOD)
    assert Row(Size(8, 8, 8), ours, Timing("numpy", (2e-6, 2e-6, 8e-6), GOOD)).ratio == pytest.approx(2.0)


def pair(ours: list[float], theirs: list[float], n: int = 512) -> Row:
    return Row(Size(n, n, n), Timing("mine", tuple(ours), GOOD), Timing("numpy", tuple(theirs), GOOD))


def test_an_interval_holds_the_true_median_as_often_as_it_says() -> None:
    """Of 500 measurements of nine rounds whose true median is known: 95 % within three standard errors."""
    rng = np.random.default_rng(7)
    found = [median_interval(tuple(rng.lognormal(0.0, 0.2, ROUNDS))) for _ in range(500)]
    held = sum(interval is not None and interval.low <= 1 <= interval.high for interval in found)
    assert held / 500 == pytest.approx(CONFIDENCE, abs=3 * (0.05 * 0.95 / 500) ** 0.5)


def test_an_interval_of_known_samples() -> None:
    assert median_interval((2.0,) * 9) == Interval(2.0, 2.0)
    ordered = tuple(float(n) for n in range(1, 10))
    interval = median_interval(ordered)
    assert interval == Interval(2.0, 8.0), "of nine, the second and the eighth"
    assert interval == median_interval(ordered), "the same rounds, the same interval"
    assert median_interval(ordered[:5]) is None, "five rounds lie on one side of the median in 1 of 16 measurements"


def test_an_interval_narrows_with_the_rounds_that_its_remedy_names() -> None:
    rng = np.random.default_rng(3)
    theirs = rng.lognormal(0.0, 0.08, 101) * 1e-3
    row = pair([1e-3] * 9, list(theirs[:9]))
    assert row.interval is not None and row.ratio is not None and row.interval.width(row.ratio) > WIDE
    (named,) = re.findall(r"^more rounds narrow the interval: --rounds (\d+)$", row.remedy)
    more = pair([1e-3] * int(named), list(theirs[: int(named)]))
    assert more.interval is not None and more.interval.width(1.0) < 0.6 * row.interval.width(1.0)


@pytest.mark.parametrize(
    ("ours", "theirs", "remedy"),
    [
        ([1e-3] * 9, [2e-3] * 9, ""),
        ([1e-3] * 5, [2e-3] * 5, "6 rounds or more give an interval: --rounds 9"),
        ([1e-3] * 9, [2e-3, 2.3e-3] * 4 + [2.15e-3], "more rounds narrow"),
        ([1e-3] * 9, [1e-2, 1e-3, 3e-3] * 3, "something else uses this machine (rounds differ by 300%)"),
        ([1e-5] * 9, [1e-4, 1e-5, 3e-5] * 3, "measure a larger size, or a batch"),
    ],
)
def test_a_wide_interval_has_a_remedy(ours: list[float], theirs: list[float], remedy: str) -> None:
    row = pair(ours, theirs)
    assert (remedy in row.remedy) if remedy else (row.remedy == "")


@pytest.mark.parametrize(
    ("value", "text"),
    [(234.511, "235"), (1.0, "1.00"), (0.99961, "1.00"), (0.0123456, "0.0123"), (12345.6, "12300"), (0.0, "0")],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert three_digits(value) == text


def test_no_uncertain_ratio_is_shown_as_if_it_were_certain(capsys: pytest.CaptureFixture[str]) -> None:
    """Rounds that differ by 900 %, of which the figure 234.511 once came."""
    row = pair([1e-3] * 9, [0.234511] * 5 + [2.11, 2.2, 0.01, 0.05])
    show_table(Plan("opencl", (), (row.size,), ("numpy",)), [row])
    shown = capsys.readouterr().out
    assert "235 ? " in shown and "234.5" not in shown
    assert "to 2" in shown, "its interval"
    (warning,) = uncertain([row])
    assert "mine at 512 beside numpy" in warning and "measure while it is idle" in warning
    assert uncertain([pair([1e-3] * 9, [2e-3] * 9)]) == []


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    times = iter([0.0, 0.0, 1.0, 4.9, 5.0, 9.0, 30.0])
    file = io.StringIO()
    show = lines(6, file, lambda: next(times))
    for step in range(6):
        show(step + 1, f"step {step}")
    assert file.getvalue().splitlines() == [
        "[1/6] step 0, after 0 s",
        "[4/6] step 3, after 5 s",
        "[6/6] step 5, after 30 s",
    ]


def test_half_a_block() -> None:
    assert launches(1.0) == 1
    assert launches(0.001) == 25
    assert launches(0.0) == MOST_LAUNCHES


def test_files() -> None:
    mine = Timing("mine", (1e-6, 2e-6, 3e-6), GOOD, variant=variant(GemmSpec(ld_multiple=4)))
    row = Row(Size(8, 8, 8), mine, Timing("cublas", (4e-6,) * 3, GOOD))
    alone = Row(Size(8, 8, 8), Timing("mine", (1e-6,), GOOD))
    content = json.loads(to_json([row, alone], {"device": "none"}))
    assert content["about"] == {"device": "none"}
    assert content["rows"][0]["ratio"] == pytest.approx(2.0)
    assert content["rows"][0]["ours_rounds_us"] == pytest.approx([1, 2, 3])
    assert content["rows"][1]["peer"] is None
    assert content["rows"][0]["ratio_low"] is None, "three rounds have no interval"
    many = Row(row.size, Timing("mine", (1e-6,) * 9, GOOD), Timing("cublas", (4e-6,) * 9, GOOD))
    assert json.loads(to_json([many], {}))["rows"][0]["ratio_high"] == pytest.approx(4.0)
    lines = list(csv.DictReader(io.StringIO(to_csv([row, alone]))))
    assert [line["preset"] for line in lines] == ["mine", "mine"]
    assert lines[1]["ratio"] == ""
    assert [lines[0]["variant"], content["rows"][1]["variant"]] == ["ld % 4 = 0", ""]


def some_rows() -> list[Row]:
    sizes = [Size(n, n, n) for n in (1024, 512)]
    return [
        Row(size, Timing(name, (1e-4, 2e-4, 3e-4), GOOD), Timing("cublas", (3e-4,) * 3, GOOD))
        for size in sizes
        for name in ("mine", "other")
    ]


@pytest.mark.parametrize(("best", "ours"), [(False, ["mine", "other"]), (True, [plot.BEST])])
def test_lines_of_a_picture(best: bool, ours: list[str]) -> None:
    found = plot.lines(some_rows(), best)
    assert [(name, is_ours, len(points)) for (name, is_ours), points in found.items()] == [
        *((name, True, 2) for name in ours),
        ("cublas", False, 2),
    ]


def test_pictures() -> None:
    pytest.importorskip("matplotlib")
    image = io.BytesIO()
    plot.draw(some_rows(), False, 66.9, "a device", image, "png")
    assert image.getvalue().startswith(b"\x89PNG")
    twice = [io.BytesIO(), io.BytesIO()]
    for file in twice:
        plot.draw(some_rows(), False, 66.9, "a device", file, "svg")
    text = twice[0].getvalue().decode()
    assert text == twice[1].getvalue().decode()
    for part in ("mine", "other", "cublas", "66.9 TFLOP/s", "a device", ">1024<", ">512<", "M = N = K"):
        assert part in text, part
    skinny = Row(Size(128, 8, 8), Timing("mine", (1e-6,), GOOD))
    plot.draw([*some_rows(), skinny], True, None, "", twice[0], "svg")
    text = twice[0].getvalue().decode()
    assert "128x8x8" in text
    plot.draw([skinny], True, None, "", alone := io.BytesIO(), "svg")
    assert "roof" not in alone.getvalue().decode()


def test_axes_of_a_picture() -> None:
    """Rates that differ by more than ten times are on a logarithmic axis; two sizes never stand at one place."""
    pytest.importorskip("matplotlib")
    one_size = [row for row in some_rows() if row.size.n == 512]
    (axes,) = plot.figure(one_size, False, None, "").axes
    assert axes.get_yscale() == "linear" and axes.get_ylim()[0] == 0
    small = Row(Size(64, 64, 64), Timing("mine", (1e-4,), GOOD))
    (axes,) = plot.figure([*some_rows(), small], False, None, "").axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    batch = Row(Size(512, 512, 512, 8), Timing("mine", (1e-3,), GOOD))
    (axes,) = plot.figure([*some_rows(), batch], False, None, "").axes
    assert len(axes.get_xticks()) == 3 == len(set(axes.get_xticks()))


def test_why_no_picture_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    plot.check(None)
    monkeypatch.setattr(plot, "find_spec", lambda _: None)
    with pytest.raises(UserError) as error:
        plot.check(Path("x.pdf"))
    assert "ends in .png or .svg" in error.value.problems[0]
    assert 'pip install "gemmgen[plot]"' in error.value.problems[1]


def test_accuracy_sees_a_wrong_element_and_one_not_written() -> None:
    a, b = random_matrices(Size(30, 20, 10), "float32", 0)
    c = a @ b
    assert accuracy(a, b, c).passed
    wrong = c.copy()
    wrong[-1, -1] += 1e-3
    assert not accuracy(a, b, wrong).passed
    wrong[-1, -1] = np.nan
    assert accuracy(a, b, wrong).worst == float("inf")


@pytest.fixture(params=["numpy", "mkl", "clblast"])
def peer(request: pytest.FixtureRequest) -> Iterator[PeerProcess]:
    """A library in a process of its own; CLBlast on the last OpenCL device, as compilers differ much in speed."""
    name = str(request.param)
    try:
        libraries.require([name])
        device = len(gemmgen.devices()) - 1 if name == "clblast" else None
    except DeviceError as error:
        pytest.skip(str(error))
    # No extent fits another, so that a wrong order or leading dimension is seen.
    process = PeerProcess(name, Size(64, 48, 33), "float32", 0, device)
    yield process
    process.close()


def test_a_library_in_a_process_of_its_own(peer: PeerProcess) -> None:
    assert peer.accuracy.passed
    assert 0 < peer.block() < 1
    # A terminal sends its Ctrl-C to a process group: to that of gemmgen, which ends its libraries itself.
    assert os.getpgid(peer._process.pid) == peer._process.pid


def test_what_goes_wrong_in_that_process_is_told() -> None:
    pytest.importorskip("pyopencl")
    with pytest.raises(DeviceError, match="clblast: no device matches device 99"):
        PeerProcess("clblast", Size(8, 8, 8), "float32", 0, 99)


def test_a_long_name_never_costs_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    row = Row(Size(8, 8, 8), Timing("m" * 150, (1e-6,) * 3, GOOD), Timing("cublas", (4e-6,) * 3, GOOD))
    show_table(Plan("cuda", (), (row.size,), ("cublas",)), [row])
    shown = capsys.readouterr().out
    assert "4.00 " in shown
    assert "…" not in shown
    assert shown.count("m") >= 150


def test_the_best_is_of_the_types_and_of_the_target() -> None:
    """Of bfloat16 it weighed float32's `fma` presets alone."""
    found = {dtype: candidates(dtype, TARGETS["sm_90a"]) for dtype in (F32, F64, BF16, I8)}
    assert {"wgmma_128x256_s4", "wgmma_64x64_s8", "wgmma_128x256_s4_packed", "mma_8x16_16x8"} <= {*found[BF16]}
    assert all(name.startswith(("mma_", "wgmma_", "gemv_")) for dtype in (F64, BF16, I8) for name in found[dtype])
    assert {"async_8x8_8x16", "mbarrier_8x16_16x16"} <= {*found[F32]}
    assert not any("tf32" in name or "atomic" in name for name in found[F32])
    of_warps = ("mma_8x16_16x8", "mma_8x8_16x16_prefetch", "mma_direct_8x16", "mma_4x8_16x8", "mma_8x16_16x16")
    assert candidates(BF16, TARGETS["sm_80"]) == of_warps
    assert "wgmma_128x256_s4" not in candidates(BF16, TARGETS["sm_90a"], ld_multiple=1)
    assert "L3_SIMD_32x2_1x8" in candidates(F32, TARGETS["intel"])
    assert not candidates(F8_E4M3, TARGETS["sm_80"])
