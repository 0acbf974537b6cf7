"""The command line from outside: exit codes, streams and files."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gemmgen import presets
from gemmgen.cli import app
from gemmgen.cli.matrices import Check, Matrices
from gemmgen.errors import UserError
from gemmgen.options import build_schedule, schedule_to_toml
from gemmgen.spec import GemmSpec

COMMAND = [sys.executable, "-m", "gemmgen.cli"]


def gemmgen(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, encoding="utf-8", cwd=cwd or root, env=environment
    )


def printed(*arguments: str | Path) -> str:
    result = gemmgen(*arguments)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def refused(*arguments: str | Path) -> str:
    result = gemmgen(*arguments)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    return result.stderr


# --- emit -----------------------------------------------------------------------------------------


def test_emit() -> None:
    text = printed("emit", "--backend", "opencl", "--tile", "32x2")
    assert "__kernel void simd_32x2_1x8(" in text
    assert "1x8" in text.partition("\n\n")[0]


def test_emit_a_preset() -> None:
    text = printed("emit", "--preset", "naive", "--alpha", "1", "--beta", "0", "--name", "mine")
    assert "__kernel void mine(" in text
    assert "alpha" not in text
    assert "beta" not in text


def test_a_changed_preset_gets_another_name() -> None:
    assert "void simd_8x4_1x8(" in printed("emit", "--preset", "L3_SIMD_32x2_1x8", "--tile", "8x4")


def test_emit_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(schedule_to_toml(build_schedule("slm", tile="4x4")))
    assert "void slm_4x4_8x16(" in printed("emit", "--schedule", path)


@pytest.mark.parametrize("name", ["build", "pipeline", "expand", "predicate", "simplify"])
def test_stop_after(name: str) -> None:
    assert printed("emit", "--tile", "8x2", "--stop-after", name).startswith("kernel simd_8x2_1x8")


def test_transpose() -> None:
    assert "__kernel" in printed("emit", "--kernel", "transpose", "--sub-group", "8")
    assert "shuffle" in printed("emit", "--kernel", "transpose", "--stop-after", "build")
    text = refused("emit", "--kernel", "transpose", "--tile", "3x3", "--set", "stages=2", "--name", "1x", "-o", "/")
    for part in ("--tile", "--set", "'1x'", "folder"):
        assert part in text


def test_transpose_takes_no_option_that_would_change_nothing() -> None:
    given = "-M 3 -N 4 -K 5 --layout col --multiple-of 16 --alpha 2 --tile 4x4".split()
    problems = refused("emit", "--kernel", "transpose", *given, "--sub-group", "１６")
    for option in ("-M", "-N", "-K", "--layout", "--multiple-of", "--alpha", "--tile"):
        assert f"{option} means nothing to --kernel transpose" in problems
    assert "'１６' is no number of lanes" in problems


def test_python_module() -> None:
    text = printed("emit", "--preset", "naive", "--python")
    compile(text, "naive.py", "exec")
    assert "import gemmgen" not in text
    assert "from gemmgen" not in text


def test_a_cuda_module_knows_the_limits_of_a_grid() -> None:
    text = printed("emit", "--backend", "cuda", "--preset", "naive", "--python")
    lines = [line.strip() for line in text.partition('"""\n\nMODULE')[2].splitlines()]
    assert "across, down = (n + 7) // 8, (m + 7) // 8" in lines
    assert "if across > 2147483647 or down > 65535:" in lines
    assert "kernel((across, down), (8, 8), arguments, shared_mem=SHARED_BYTES)" in lines


def test_every_problem_at_once(tmp_path: Path) -> None:
    text = refused(
        *("emit", "--backend", "opncl", "--method", "smid", "--tile", "32x", "--group", "0x8", "--k-step", "no"),
        *("--sub-group", "-8", "--set", "stagez=2", "--dtype", "float31", "--layout", "up", "--alpha", "x", "-M", "0"),
        *("--multiple-of", "1,2", "--target", "inlet", "--name", "while", "--stop-after", "bild", "-o", tmp_path),
    )
    parts = ("opencl", "simd", "'32x'", "rows = 0", "'no'", "-8", "stages", "float31", "'up'", "alpha", "M = '0'")
    for part in (*parts, "1,2", "intel", "while", "build", "is a folder"):
        assert part in text, part


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--tile", "100000x100000"], "256"),
        (["--tile", "256x256"], "registers"),
        (["--preset", "L3_SIMD_32x2"], "did you mean L3_SIMD_32x2_1x8"),
        (["--preset", "naive", "--schedule", "x.toml"], "exclude"),
        (["--schedule", "missing.toml"], "can't be read"),
        (["--schedule", "/"], "can't be read"),
        (["--target", "portable"], "sub-group"),
        (["--python", "--stop-after", "build"], "exclude"),
        (
            "--backend cuda --preset async_8x8_16x16 --set stages=8 --target sm_86".split(),
            "local memory 266,240 B > 101,376 B on this target: use 7 stages instead of 8",
        ),
        ("--backend cuda --preset async_8x8_16x16 --target sm_75".split(), "use sm_80 or later"),
        (["-o", "/no/such/folder/x.cl"], "mkdir -p"),
    ],
)
def test_refusals(arguments: list[str], part: str) -> None:
    assert part in refused("emit", *arguments)


def test_files_that_are_no_schedules(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refused("emit", "--schedule", path)
    path.write_text("tille = '3x2'\nstages = 'x'\n")
    text = refused("emit", "--schedule", path)
    assert "tile" in text
    assert "'x'" in text


def test_output_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "k.cl"
    assert printed("emit", "-o", path) == ""
    assert path.read_text() == printed("emit")
    path.chmod(0o640)
    refused("emit", "--tile", "256x256", "-o", path)
    assert path.read_text() == printed("emit")
    printed("emit", "--tile", "8x4", "-o", path)
    assert "8x4" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["k.cl"]


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    printed("emit", "-o", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert "__kernel" in (tmp_path / "real").read_text()
    printed("emit", "-o", "/dev/null")
    assert Path("/dev/null").is_char_device()


def test_a_full_disk_is_told() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    script = f"{sys.executable} -m gemmgen.cli emit > /dev/full"
    result = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert result.returncode == 2
    assert "No space left" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="closes streams in a POSIX shell")
@pytest.mark.parametrize("arguments", ["emit", "presets", "presets --names", "explain"])
def test_a_closed_stream_is_told(arguments: str) -> None:
    command = [*COMMAND, *arguments.split()]
    result = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, encoding="utf-8")
    assert result.returncode == 2
    assert result.stderr == "gemmgen: standard output is closed: open it, or send it to /dev/null\n"
    assert subprocess.run(["sh", "-c", '"$@" >&- 2>&-', "sh", *command]).returncode == 2


def test_a_file_needs_no_standard_output(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cl"
    command = [*COMMAND, "emit", "-o", str(path)]
    assert subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True).returncode == 0
    assert path.read_text() == printed("emit")


@pytest.mark.parametrize("arguments", ["emit", "presets", "presets --names", "explain", "--help", "emit --help"])
def test_a_broken_pipe_is_silent(arguments: str) -> None:
    script = f"set -o pipefail; {sys.executable} -m gemmgen.cli {arguments} | true"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert result.returncode in (0, 141)
    assert result.stderr == ""


def test_output_does_not_depend_on_hash_seeds() -> None:
    outputs = {
        subprocess.run(
            [*COMMAND, "emit", "--preset", "naive"], capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1


# --- the rest -------------------------------------------------------------------------------------


def test_a_terminal_without_box_characters() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run([*COMMAND, "explain"], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr


def test_explain() -> None:
    assert "flops per byte" in printed("explain", "--preset", "L3_SLM_8x8_8x16")
    assert "'32x'" in refused("explain", "--tile", "32x")


def test_presets() -> None:
    assert printed("presets", "--names").splitlines()[0] == "naive"
    lines = printed("presets").splitlines()
    assert len(lines) == len(presets.names())
    for line, name in zip(lines, presets.names(), strict=True):
        assert line.split(None, 1) == [name, presets.load(name).summary]


def test_version() -> None:
    import gemmgen as package

    assert printed("--version") == f"gemmgen {package.__version__}\n"


@pytest.mark.parametrize("command", ["emit", "explain", "run", "bench", "presets", "devices"])
def test_help_teaches_by_example(command: str) -> None:
    text = printed(command, "--help")
    assert "Examples" in text
    assert f"gemmgen {command}" in text


def test_usage_errors_are_told_without_traceback() -> None:
    assert "--tle" in refused("emit", "--tle", "3x3")
    assert "emti" in refused("emti")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gemmgen emit --preset block_read_32", "block_read_32x2_1x8"),
        ("gemmgen emit --method s", "slm"),
        ("gemmgen emit --stop-after b", "build"),
        ("gemmgen emit --backend o", "opencl"),
        ("gemmgen emit --target i", "intel"),
        ("gemmgen emit --set a.w", "a.width="),
        ("gemmgen emit --kernel t", "transpose"),
        ("gemmgen run -k a", "all"),
    ],
)
def test_completion(line: str, expected: str) -> None:
    words = line.split()
    environment = {
        **os.environ,
        "_GEMMGEN_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    script = "import sys; sys.argv[0] = 'gemmgen'; from gemmgen.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert expected in result.stdout.split(), result.stderr


@pytest.mark.parametrize(("arguments", "limit"), [(["--help"], 0.4), (["emit", "--tile", "32x2"], 0.5)])
def test_starts_quickly(arguments: list[str], limit: float) -> None:
    def once() -> float:
        start = time.perf_counter()
        subprocess.run([*COMMAND, *arguments], capture_output=True, check=True)
        return time.perf_counter() - start

    assert min(once() for _ in range(5)) < limit


def test_errors_are_ours_in_process() -> None:
    from typer.testing import CliRunner

    result = CliRunner().invoke(app, ["emit", "--tile", "32x"])
    assert isinstance(result.exception, UserError)


# --- run ------------------------------------------------------------------------------------------


def test_bad_runs(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    np.save(tmp_path / "a.npy", np.ones((3, 4), np.float32))
    np.save(tmp_path / "b.npy", np.ones((5, 2), np.float64))
    (tmp_path / "c.npy").write_bytes(b"no array")
    text = refused(
        *("run", "-k", "nave", "-i", "-1", "--seed", "x", "-o", tmp_path, "--target", "intel", "--tile", "0x1"),
    )
    for part in (
        "did you mean naive",
        "iterations '-1'",
        "seed 'x'",
        f"such as {tmp_path}/C.npy",
        "--target",
        "rows = 0",
    ):
        assert part in text, part
    assert "-i 0" not in text
    text = refused("run", "-k", "naive", "--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy", "-M", "7")
    for part in ("float64", "astype('float32')", "7 by -M", "3 by the rows of --a"):
        assert part in text, part
    assert "no .npy file" in refused("run", "-k", "naive", "--a", tmp_path / "c.npy")
    assert "can't be read" in refused("run", "-k", "naive", "--a", tmp_path / "d.npy")
    np.save(tmp_path / "o.npy", np.array([[object()]]), allow_pickle=True)
    assert "no .npy file" in refused("run", "-k", "naive", "--a", tmp_path / "o.npy")


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


def test_run_real_matrices(tmp_path: Path) -> None:
    cl = pytest.importorskip("pyopencl")
    assert cl is not None
    devices = gemmgen("devices")
    if devices.returncode:
        pytest.skip(devices.stderr)
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (33, 17)).astype(np.float32), rng.uniform(-1, 1, (17, 21)).astype(np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    files = ("--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy", "-o", tmp_path / "c.npy")
    text = printed("run", "-k", "naive", "-i", "2", "-v", *files)
    assert "validation passed" in text
    assert text.count("GFLOP/s") == 3
    np.testing.assert_allclose(np.load(tmp_path / "c.npy"), a @ b, rtol=1e-4, atol=1e-5)
    text = printed("run", "-k", "naive", "-M", "20", "-N", "30", "-K", "40", "--beta", "2", "--layout", "col", "-v")
    assert "20 x 30 x 40" in text
    assert "validation passed" in text
    assert "built" in printed("run", "-k", "naive", "-i", "0")


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
        *("--plot", tmp_path / "no" / "x.pdf", "--rounds", "0", "--json", tmp_path),
    )
    for part in ("'sycl'", "did you mean naive", "'12y'", "'blis'", "float16 can't be measured", "--rounds 0"):
        assert part in text, part
    assert "ends in .png or .svg" in text
    assert f"--plot {tmp_path}/no/x.pdf: the folder {tmp_path}/no does not exist" in text
    assert f"--json {tmp_path} is a folder" in text
    text = refused("bench", "--backend", "opencl", "--preset", "naive", "--strict", "--ld-multiple", "x", "--vs", "")
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
    promised = gemmgen("bench", *options, "--ld-multiple", "4")
    assert promised.returncode == 0, promised.stderr
    assert "any ld" not in promised.stdout and promised.stdout.count("ld % 4 = 0") == 2
