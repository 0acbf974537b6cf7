"""`gemmgen run` and `gemmgen bench` from outside: exit codes, streams and files."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gemmgen import compile as compiled
from gemmgen.cli.matrices import Check, Matrices
from gemmgen.errors import UserError
from gemmgen.ir.dtypes import I8
from gemmgen.spec import GemmSpec
from tests.support.cli import COMMAND, gemmgen, printed, refused

# --- run ------------------------------------------------------------------------------------------


def test_bad_runs(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    np.save(tmp_path / "a.npy", np.ones((3, 4), np.float32))
    np.save(tmp_path / "b.npy", np.ones((5, 2), np.float64))
    (tmp_path / "c.npy").write_bytes(b"no array")
    text = refused(
        *(
            "run",
            "-k",
            "nave",
            "-i",
            "-1",
            "--seed",
            "x",
            "-o",
            tmp_path,
            "--target",
            "intel",
            "--tile",
            "0x1",
            "-M",
            "x",
        ),
    )
    for part in (
        "did you mean naive",
        "iterations '-1'",
        "seed 'x'",
        f"such as {tmp_path}/C.npy",
        "--target",
        "rows = 0",
        "M = 'x'",
    ):
        assert part in text, part
    assert "-i 0" not in text
    text = refused("run", "-k", "naive", "-M", "2000000", "-K", "2000000")
    assert "Unable to allocate" in text and "give smaller sizes" in text
    text = refused("run", "-k", "naive", "--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy", "-M", "7")
    for part in (
        "float64",
        "--dtype float64 --a-dtype float32",
        "astype('float64')",
        "7 by -M",
        "3 by the rows of --a",
    ):
        assert part in text, part
    assert "no .npy file" in refused("run", "-k", "naive", "--a", tmp_path / "c.npy")
    assert "can't be read" in refused("run", "-k", "naive", "--a", tmp_path / "d.npy")
    np.save(tmp_path / "o.npy", np.array([[object()]]), allow_pickle=True)
    assert "no .npy file" in refused("run", "-k", "naive", "--a", tmp_path / "o.npy")
    np.save(tmp_path / "s.npy", np.array([["1", "2"]]))
    assert "which is no number" in refused("run", "-k", "naive", "--a", tmp_path / "s.npy")


def test_files_of_bfloat16_and_batches_of_one_matrix_are_told_what_to_do(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name, shape in (("a", (5, 4)), ("b", (4, 6))):
        np.save(tmp_path / f"{name}.npy", np.ones(shape, np.float32))
        np.save(tmp_path / f"{name}16.npy", np.ones(shape, ml_dtypes.bfloat16))
    plain = ["run", "-k", "naive", "--a", str(tmp_path / "a.npy"), "--b", str(tmp_path / "b.npy")]
    assert "matrix.astype('bfloat16')), after import ml_dtypes" in refused(*plain, "--dtype", "bfloat16")
    assert "--batch 3, but --a and --b hold one matrix each: name a file of 3" in refused(*plain, "--batch", "3")
    text = refused("run", "-k", "naive", "--a", tmp_path / "a16.npy", "--b", tmp_path / "b16.npy")
    assert "use --a-dtype bfloat16, or --dtype bfloat16 if A and B both hold it" in text


def test_run_strict_where_it_means_nothing() -> None:
    pytest.importorskip("pyopencl")
    assert "--strict asks ptxas, which knows nothing of opencl" in refused("run", "-k", "naive", "--strict")


def test_matrices_that_do_not_fit(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    np.save(tmp_path / "a.npy", np.ones((3, 4), np.float32))
    np.save(tmp_path / "b.npy", np.ones((5, 2), np.float32))
    text = refused("run", "-k", "naive", "--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy")
    assert "K is 4 by the columns of --a, 5 by the rows of --b" in text
    np.save(tmp_path / "a.npy", np.ones((3,), np.float32))
    np.save(tmp_path / "b.npy", np.ones((0, 3), np.float32))
    text = refused("run", "-k", "naive", "--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy", "-v")
    assert "1 dimension" in text
    assert "empty" in text


def test_nothing_to_time() -> None:
    pytest.importorskip("pyopencl")
    text = refused("run", "-k", "naive", "-M", "0", "-K", "0")
    assert "-M 0 leaves nothing to time: give 1 or more" in text
    assert "-K 0 leaves nothing" in text


def test_the_bound() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (9, 50)).astype(np.float32), rng.uniform(-1, 1, (50, 7)).astype(np.float32)
    data, spec = Matrices(a, b, None), GemmSpec()
    good = a @ b
    assert Check.of(data, spec, good).passed
    wrong = good.copy()
    wrong[8, 6] += np.float32(1e-3)
    assert not Check.of(data, spec, wrong).passed
    wrong[8, 6] = np.nan
    assert not Check.of(data, spec, wrong).passed
    assert "FAILED" in str(Check.of(data, spec, wrong))


def test_elements_without_an_answer_are_told_from_wrong_ones() -> None:
    """Where a formula leaves its functions' domain, the verdict was an infinite error."""
    one = np.array([[1.0, -1.0]], np.float32)
    data = Matrices(np.ones((1, 1), np.float32), one, None)
    spec = GemmSpec(epilogue=("expr: log(acc)",))
    with np.errstate(invalid="ignore"):
        check = Check.of(data, spec, np.log(one))
    assert not check.passed and check.worst <= 1
    said = (
        "validation FAILED: 1 of 2 elements, the first at (0, 1), have no number for an answer, since expr: log(acc) "
    )
    assert str(check).startswith(said + "leaves where its functions have values: keep it there, as max(acc, 0.001)")
    assert "give others" in str(Check.of(Matrices(np.full((1, 1), np.nan, np.float32), one, None), GemmSpec(), one))
    # A NaN of ours, where there is an answer, is as far off as can be.
    wrong = Check.of(data, GemmSpec(), np.array([[np.nan, -1]], np.float32))
    assert not wrong.passed and not wrong.unknown and wrong.worst == np.inf


def test_whole_numbers_allow_no_error() -> None:
    a, b = np.arange(6, dtype=np.int8).reshape(2, 3), np.arange(12, dtype=np.int8).reshape(3, 4)
    data, spec = Matrices(a, b, None), GemmSpec(dtype=I8)
    good = a.astype(np.int32) @ b.astype(np.int32)
    assert Check.of(data, spec, good).passed
    assert not Check.of(data, spec, good + 1).passed


def test_run_real_matrices(tmp_path: Path) -> None:
    cl = pytest.importorskip("pyopencl")
    assert cl is not None
    devices = gemmgen("devices")
    if devices.returncode:
        pytest.skip(devices.stderr)
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (33, 17)).astype(np.float32), rng.uniform(-1, 1, (17, 21)).astype(np.float32)
    np.save(tmp_path / "a.npy", a.astype(">f4"))  # as some machines write
    np.save(tmp_path / "b.npy", b)
    files = ("--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy", "-o", tmp_path / "c.npy")
    text = printed("run", "-k", "naive", "-i", "2", "-v", *files)
    assert "validation passed" in text
    assert text.count("GFLOP/s") == 3
    np.testing.assert_allclose(np.load(tmp_path / "c.npy"), a @ b, rtol=1e-4, atol=1e-5)
    text = printed(
        "run", "-k", "naive", "-M", "20", "-N", "30", "-K", "40", "--beta", "2", "--layout", "col", "--batch", "3", "-v"
    )
    assert "20 x 30 x 40, 3 of them" in text
    assert "validation passed" in text
    assert "built" in printed("run", "-k", "naive", "-i", "0")


@pytest.mark.parametrize("batch", [(), ("--batch", "3", "--epilogue", "residual")])
@pytest.mark.parametrize("preset", ["smem_8x8", "tile_8x8"])
def test_run_a_gate(preset: str, batch: tuple[str, ...]) -> None:
    """B has twice as many columns as C; run took it to have as many."""
    pytest.importorskip("pyopencl")
    if (devices := gemmgen("devices")).returncode:
        pytest.skip(devices.stderr)
    sizes = "-M 37 -N 41 -K 43".split()
    text = printed("run", "-k", preset, *sizes, "-i", "1", "-v", "--epilogue", "swiglu", *batch)
    assert "37 x 41 x 43" in text
    assert "validation passed" in text


def test_run_a_gate_of_files(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    if (devices := gemmgen("devices")).returncode:
        pytest.skip(devices.stderr)
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (33, 17)).astype(np.float32), rng.uniform(-1, 1, (17, 42)).astype(np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    np.save(tmp_path / "odd.npy", b[:, 1:])
    line = ("run", "-k", "smem_8x8", "--epilogue", "swiglu", "-i", "1", "-v", "--a", tmp_path / "a.npy", "--b")
    (told,) = json.loads(printed(*line, tmp_path / "b.npy", "-o", tmp_path / "c.npy", "--json"))["kernels"]
    assert (told["m"], told["n"], told["k"]) == (33, 21, 17)
    assert told["gflops"] * told["best_milliseconds"] * 1e6 == pytest.approx(2 * 33 * 42 * 17)
    acc, up = np.hsplit(a.astype(np.float64) @ b, 2)
    np.testing.assert_allclose(np.load(tmp_path / "c.npy"), acc / (1 + np.exp(-acc)) * up, rtol=1e-3, atol=1e-4)
    text = refused(*line, tmp_path / "odd.npy", "-N", "41")
    assert "odd.npy: swiglu takes two halves of b's columns, but b has 41: pass an even number" in text
    assert "N is 41 by -N, 20 by half the columns of --b" in text


def test_a_time_is_that_of_all_kernels() -> None:
    """Of split-K the kernel that multiplies takes most of it, and runs before the one that adds up."""
    pytest.importorskip("pyopencl")
    if (devices := gemmgen("devices")).returncode:
        pytest.skip(devices.stderr)
    name, size = "sg16_block_16x1_split4", 384
    sizes = [word for axis in "MNK" for word in (f"-{axis}", str(size))]
    (told,) = json.loads(printed("run", "-k", name, *sizes, "-i", "5", "--json"))["kernels"]
    a = np.ones((size, size), np.float32)
    times = compiled(schedule=name).time(a, a, np.empty_like(a), iterations=5)
    assert 0.2 < told["best_milliseconds"] / (min(times) * 1e3) < 5


def test_saving_is_whole_or_not_there(tmp_path: Path) -> None:
    from gemmgen.cli.output import write

    def fail(file: io.BufferedIOBase) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match="No space left"):
        write(tmp_path / "x", fail)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


# --- bench ----------------------------------------------------------------------------------------


def test_bad_benches(tmp_path: Path) -> None:
    text = refused(
        *("bench", "--backend", "sycl", "--preset", "nave", "--sizes", "12y", "--vs", "blis", "--dtype", "float16"),
        *("--plot", tmp_path / "no" / "x.pdf", "--rounds", str(10**12), "--json", tmp_path),
    )
    for part in (
        "'sycl'",
        "did you mean naive",
        "'12y'",
        "'blis'",
        "float16 can't be measured",
        "--rounds 1000000000000: give 1 to 100000",
    ):
        assert part in text, part
    assert "ends in .png or .svg" in text
    assert f"--plot {tmp_path}/no/x.pdf: the folder {tmp_path}/no does not exist" in text
    assert f"--json {tmp_path} is a folder" in text
    file = tmp_path / "x"
    text = refused(
        *("bench", "--backend", "opencl", "--preset", "naive", "--strict", "--ld-multiple", "x", "--vs", ""),
        *("--sizes", "99999999999,100000", "--json", file, "--csv", file),
    )
    assert "size 99999999999: give whole numbers from 1 to 2147482623" in text
    assert text.count("size 100000 has a matrix of 100000 x 100000 >= 2^31 elements") == 1
    assert f"--json and --csv both go to {file}: name two files" in text
    assert "--strict asks ptxas, which knows nothing of opencl" in text
    assert text.count("'x'") == 1


def test_bench_on_a_cpu(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    pytest.importorskip("matplotlib")
    devices = gemmgen("devices")
    if devices.returncode:
        pytest.skip(devices.stderr)
    options = "--backend opencl --preset naive --sizes 32,48x40x56 --vs numpy --rounds 2".split()
    files = [tmp_path / name for name in ("b.svg", "b.csv", "b.json")]
    result = gemmgen("bench", *options, "--plot", files[0], "--csv", files[1], "--json", files[2])
    assert result.returncode == 0, result.stderr
    assert "48x40x56" in result.stdout
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert "naive" in files[0].read_text()
    assert len(files[1].read_text().splitlines()) == 3
    assert "any ld" in result.stdout
    usual = gemmgen("bench", "--backend", "opencl", "--sizes", "32", "--rounds", "1")
    assert usual.returncode == 0, usual.stderr
    assert "numpy" in usual.stdout, "what a CPU is compared with where nothing is named"
    assert "6 rounds or more give an interval: --rounds 9" in usual.stderr
    assert usual.stderr.startswith("[1/5] 32: reference, after 0 s"), "progress, where there is no terminal"
    assumed = gemmgen("bench", *options, "--ld-multiple", "4", "--best")
    assert assumed.returncode == 0, assumed.stderr
    assert "any ld" not in assumed.stdout and assumed.stdout.count("ld % 4 = 0") == 2


def test_bench_takes_the_device_that_is_there() -> None:
    """A GPU of CUDA, else what OpenCL has, and the kernel that `gemmgen.gemm` takes: nothing need be named."""
    pytest.importorskip("pyopencl")
    if (devices := gemmgen("devices")).returncode:
        pytest.skip(devices.stderr)
    result = gemmgen("bench", "--sizes", "48", "--rounds", "6", "--vs", "numpy")
    assert result.returncode == 0, result.stderr
    assert ("(CUDA, " in result.stdout) == ("--backend cuda" in devices.stdout)
    assert re.search(r"^ *[0-9.]+( \?)? +[0-9.]+ to [0-9.]+ +48 ", result.stdout, re.MULTILINE), "ratio and interval"


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    """As a terminal sends it: to all processes of the group."""
    pytest.importorskip("pyopencl")
    if (devices := gemmgen("devices")).returncode:
        pytest.skip(devices.stderr)
    file = tmp_path / "kept.json"
    options = f"--backend opencl --preset naive --sizes 16,32 --vs numpy --rounds 100000 --json {file}".split()
    pipe = subprocess.PIPE
    command = [*COMMAND, "bench", *options]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        while "rounds" not in (said := process.stderr.readline()):
            assert said, "it ended before it was told to"
        os.killpg(process.pid, signal.SIGINT)
        shown, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    ended = re.search(r"ended by Ctrl-C: 1 of 2 sizes were measured by then, the last one in (\d+) of 100000", told)
    assert ended is not None, told
    assert "naive" in shown
    kept = json.loads(file.read_text())
    assert kept["about"]["ended_early_by"] == "Ctrl-C"
    assert [(row["size"], len(row["ours_rounds_us"])) for row in kept["rows"]] == [("16", int(ended[1]))]


def test_a_size_that_fails_keeps_those_before_it(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    if (devices := gemmgen("devices")).returncode:
        pytest.skip(devices.stderr)
    schedule, file = tmp_path / "by_columns.toml", tmp_path / "kept.json"
    schedule.write_text('method = "naive"\n[spec]\na_order = "col"\n')
    options: list[str | Path] = ["--backend", "opencl", "--schedule", schedule, "--vs", "", "--json", file]
    result = gemmgen("bench", *options, "--sizes", "16,2:16")
    assert result.returncode == 2 and "batches of column-major matrices are not measured" in result.stderr
    assert [row["size"] for row in json.loads(file.read_text())["rows"]] == ["16"]
    file.unlink()
    assert "preset '' does not exist" in refused("bench", *options, "--preset", "naive,")
    text = refused("bench", *options, "--sizes", "2:16")
    assert "column-major" in text and not file.exists()


def test_what_bench_takes_for_no_type_and_no_assumption() -> None:
    text = refused("bench", "--backend", "opencl", "--ld-multiple", "0")
    assert "multiple = 0 is no size" in text and "--ld-multiple is for --preset, --schedule and --best" in text
    assert "float16 can't be measured on opencl" in refused("bench", "--backend", "opencl", "--dtype", "half")
    text = refused("bench", "--backend", "opencl", "--dtype", "foo")
    assert "dtype 'foo' is not one of" in text and "foo can't be measured" not in text
