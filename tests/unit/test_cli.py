"""The command line from outside: exit codes, streams and files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gemmgen import presets
from gemmgen.cli import application
from gemmgen.errors import UserError
from gemmgen.options import build_schedule, schedule_to_toml
from tests.support.cli import COMMAND, printed, refused
from tests.support.tools import ran

# --- emit -----------------------------------------------------------------------------------------


def test_emit() -> None:
    text = printed("emit", "--backend", "opencl", "--tile", "32x2")
    assert "__kernel void\ngemm_f32_simd_32x2(" in text
    assert "1x8" in text.partition("\n\n")[0]


def test_emit_a_preset() -> None:
    text = printed("emit", "--preset", "naive", "--alpha", "1", "--beta", "0", "--name", "mine")
    assert "\nmine(" in text
    assert "alpha" not in text
    assert "beta" not in text
    text = printed(*"emit --backend cuda --preset naive --batched --listed --a-dtype float16".split())
    assert "const __half *const *__restrict__ a_list, int lda," in text


def test_a_changed_preset_gets_another_name() -> None:
    assert "gemm_f32_simd_8x4(int m" in printed("emit", "--preset", "L3_SIMD_32x2_1x8", "--tile", "8x4")


def test_emit_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(schedule_to_toml(build_schedule("slm", tile="4x4")))
    assert "gemm_f32_slm_32x64(int m" in printed("emit", "--schedule", path)


def test_a_named_target_is_as_its_language_has_it() -> None:
    """OpenCL C has no local memory that two arrays share: neither the IR nor `explain` says otherwise."""
    sliced = "--method slm --tile 4x4 --group 8x8 --block-k 16 --set sliced_k=2".split()
    sliced += "--set a.memory=local --set b.memory=local --target gfx942".split()
    assert "12,288 bytes of local memory" in printed("emit", *sliced)
    assert "local memory per group: 12,288 of" in printed("explain", *sliced)
    assert "in place of the tiles" not in printed("emit", *sliced, "--stop-after", "build")


@pytest.mark.parametrize("name", ["build", "pipeline", "expand", "predicate", "simplify"])
def test_stop_after(name: str) -> None:
    assert printed("emit", "--tile", "8x2", "--stop-after", name).startswith("kernel gemm_f32_simd_8x2")


def test_transpose() -> None:
    assert "__kernel" in printed("emit", "--kernel", "transpose", "--sub-group", "8")
    assert "shuffle" in printed("emit", "--kernel", "transpose", "--stop-after", "build")
    text = refused("emit", "--kernel", "transpose", "--tile", "3x3", "--set", "stages=2", "--name", "1x", "-o", "/")
    for part in ("--tile", "--set", "'1x'", "folder"):
        assert part in text


def test_transpose_takes_no_option_that_would_change_nothing() -> None:
    given = "-M 3 -N 4 -K 5 --layout col --multiple-of 16 --alpha 2 --tile 4x4 --conj a --batched --wide".split()
    problems = refused("emit", "--kernel", "transpose", *given, "--sub-group", "１６")
    for option in ("-M", "-N", "-K", "--layout", "--multiple-of", "--alpha", "--tile", "--conj", "--batched", "--wide"):
        assert f"{option} means nothing to --kernel transpose" in problems
    assert "'１６' is no number of lanes" in problems


def test_python_module() -> None:
    text = printed("emit", "--preset", "naive", "--python")
    compile(text, "naive.py", "exec")
    assert "import gemmgen" not in text
    assert "from gemmgen" not in text


def test_a_cuda_module_knows_the_limits_of_a_grid() -> None:
    text = printed("emit", "--backend", "cuda", "--preset", "async_8x8_16x16", "--ld-multiple", "8,4,1", "--python")
    assert all(f"pitch({matrix}, 0, {unit})" in text for matrix, unit in (("a", 8), ("b", 4), ("out", 1)))
    text = printed("emit", "--backend", "cuda", "--preset", "naive", "--python")
    lines = [line.strip() for line in text.partition('"""\n\nMODULE')[2].splitlines()]
    assert "across, down = (n + 7) // 8, (m + 7) // 8" in lines
    assert "if across > 2147483647 or down > 65535:" in lines
    assert "kernel((across, down), (8, 8), arguments, shared_mem=SHARED_BYTES)" in lines


def test_every_problem_at_once(tmp_path: Path) -> None:
    text = refused(
        *("emit", "--backend", "opncl", "--method", "smid", "--tile", "32x", "--group", "0x8", "--block-k", "no"),
        *("--sub-group", "-8", "--set", "stagez=2", "--dtype", "float31", "--layout", "up", "--alpha", "x", "-M", "0"),
        *("--multiple-of", "1,2", "--target", "inlet", "--name", "while", "--stop-after", "bild", "-o", tmp_path),
    )
    parts = ("opencl", "simd", "'32x'", "rows = 0", "'no'", "-8", "stages", "float31", "'up'", "alpha", "M = 0")
    for part in (*parts, "1,2", "intel", "while", "build", "is a folder"):
        assert part in text, part


def test_what_is_wrong_with_one_option_hides_nothing_of_the_others() -> None:
    text = refused(
        *("emit", "--backend", "cuda", "--target", "sm_86", "--preset", "async_8x8_16x16", "--set", "stages=8"),
        *("--epilogue", "gello", "--prologue-a", "b * 2", "--prologue-b", "b *", "-M", "70", "--multiple-of", "32"),
    )
    for part in ("no function 'gello'", "prologue_a 'b * 2'", "prologue_b 'b *'", "not the multiple of 32", "3 stages"):
        assert part in text, part
    text = refused("emit", "--dtype", "float31", "--c-dtype", "float33", "--b-dtype", "float9", "--target", "")
    assert "target '' does not exist: give one of intel" in text
    assert [f"{key} '" in text for key in ("dtype", "c_dtype", "b_dtype")] == [True] * 3
    # Types that may go together are not said to do so or not.
    assert "no type of C" not in refused("emit", "--dtype", "float31", "--c-dtype", "float64")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--tile", "100000x100000"], "256"),
        (["--tile", "256x256"], "registers"),
        (["--preset", "L3_SIMD_32x2"], "did you mean L3_SIMD_32x2_1x8"),
        (["--preset", "naive", "--schedule", "x.toml"], "exclude"),
        (["--schedule", "missing.toml"], "can't be read"),
        (["--schedule", "/"], "can't be read"),
        (["--schedule", "/dev/zero"], "larger than 1 MiB: name a TOML file"),
        (["--multiple-of", "4,4"], "three whole numbers, or one for all"),
        (["--alpha", "1e-60"], "alpha = 1e-60 cannot be folded, as it is below float32's 1.18e-38"),
        (["--epilogue", "clamp("], "'(' was never closed: write one as gelu or clamp(0, 6)"),
        (["--target", "portable", "--method", "simd"], "sub-group"),
        (["--python", "--stop-after", "build"], "exclude"),
        (
            "--backend cuda --preset async_8x8_16x16 --set stages=8 --target sm_86".split(),
            "local memory 266,240 B > 101,376 B on this target: use 3 stages instead of 8",
        ),
        ("--backend cuda --preset async_8x8_16x16 --target sm_75".split(), "use sm_80 or later"),
        (["-o", "/no/such/folder/x.cl"], "mkdir -p"),
        (
            ["--preset", "naive", "--set", "setmaxnreg=160x40"],
            "setmaxnreg = 160x40 means nothing to mainloop Direct",
        ),
    ],
)
def test_refusals(arguments: list[str], part: str) -> None:
    assert part in refused("emit", *arguments)


def test_one_remedy_for_a_sub_group_that_a_device_lacks() -> None:
    text = refused("inspect", "--method", "naive", "--sub-group", "8", "--target", "pvc")
    assert text == "gemmgen: sub_group = 8 is not a size of target 'xe_hpc': use one of 16, 32\n"
    other = refused("inspect", "--method", "naive", "--sub-group", "8", "--group", "16x4", "--target", "pvc")
    assert "a group's row of 4 work-items is not one sub-group of 16: use group 16x16\n" in other
    odd = refused("emit", "--group", "7x9")
    assert (
        "sub_group = 9 is not a size of target 'intel': use one of 8, 16, 32, and a group as wide, such as 7x8\n"
    ) in odd
    assert odd.endswith("This works: gemmgen emit --group 7x8\n")


def test_one_problem_where_a_type_has_no_vectors_or_a_size_no_sub_group() -> None:
    """Widths and registers of a type that can't be are no matter, nor is a number that no target's sub-group has."""
    typed = refused("emit", "--method", "vector", "--target", "cpu", "--dtype", "complex128")
    assert typed.startswith("gemmgen: vectors hold no complex128: use dtype float32, or method slm\nThis works: ")
    transposed = refused("emit", "--kernel", "transpose", "--sub-group", "7")
    assert transposed == "gemmgen: sub-group size 7 is not one of target 'intel': use one of 8, 16, 32\n"


def test_files_that_are_no_schedules(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refused("emit", "--schedule", path)
    path.write_text("tille = '3x2'\nstages = 'x'\n", encoding="utf-8-sig")  # behind a mark, as some editors write
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
    assert "__kernel void" in printed("emit", "-o", "/dev/stdout")
    assert "/dev/stdout" in refused("emit", "-o", "-")
    assert Path("/dev/null").is_char_device()


def test_a_full_disk_is_told() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    script = f"{sys.executable} -m gemmgen emit > /dev/full"
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
    script = f"set -o pipefail; {sys.executable} -m gemmgen {arguments} | true"
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


# --- requests of two kernels ----------------------------------------------------------------------

RING = "emit --backend cuda --tile 4x8 --group 8x8 --block-k 8 --method slm".split()
RING += "--set thread_vector=4x4 --set b.memory=local".split()
RING += "--set a.async_copy=true --set b.async_copy=true --set stages=6 --set mbarrier=2".split()


@pytest.mark.parametrize("name", ["build", "pipeline", "expand", "predicate", "simplify"])
def test_stop_after_shows_every_kernel(name: str) -> None:
    text = printed(*RING, "--set", "split_k=4", "--name", "parts", "--stop-after", name)
    heads = [line for line in text.splitlines() if line.startswith("kernel ")]
    assert heads == ["kernel parts", "kernel parts_total"]
    assert printed(*RING, "--name", "parts", "--stop-after", name).count("kernel parts") == 1
    assert "mbarrier" in text


def test_emit_of_two_kernels() -> None:
    text = printed(*RING, "--set", "split_k=4", "--name", "parts")
    assert text.count("__global__") == 2
    assert "parts_total(" in text


def test_a_module_of_two_kernels_is_refused() -> None:
    text = refused(*RING, "--set", "split_k=4", "--python")
    assert "split, packed and dpas need more: use gemmgen.compile" in " ".join(text.split())
    compile(printed(*RING, "--python"), "ring.py", "exec")


def test_rings_need_a_device_that_has_them() -> None:
    text = " ".join(refused(*RING, "--target", "sm_80").split())
    assert "mbarrier = 2, but target 'sm_80' has none: use sm_90 or later, or 0" in text
    assert "sm_90" in printed(*RING).partition("\n\n")[0], "the head comment says what it needs"


# --- the rest -------------------------------------------------------------------------------------


def test_a_terminal_without_box_characters() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran([*COMMAND, "explain"], env=environment)


def test_a_terminal_that_does_not_know_its_width() -> None:
    assert "Usage:" in ran([*COMMAND, "--help"], env={**os.environ, "COLUMNS": "0"}).stdout


def test_explain() -> None:
    assert "flops per byte" in printed("explain", "--preset", "L3_SLM_8x8_8x16")
    # No target is named: the first that can take it.
    sets = ("group=8x8", "stages=8", "mbarrier=2", "split_k=128", "lane_arrangement=4x8")
    sliced = printed("explain", "--preset", "mbarrier_8x8_2x16_split8", *(x for text in sets for x in ("--set", text)))
    assert "135,168 of 232,448 bytes" in sliced
    assert "the last where the others were" in sliced
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


@pytest.mark.parametrize("arguments", [["--help"], ["emit", "--tile", "32x2"], ["explain", "--tile", "32x2"]])
def test_starts_quickly(arguments: list[str]) -> None:
    """Each of these takes as long to import as a kernel takes to emit, or longer, and none of them is needed."""
    heavy = ("numpy", "ml_dtypes", "pydantic", "pyopencl", "cupy", "matplotlib", "hypothesis", "torch")
    script = f"""
import sys
from gemmgen.cli import main
sys.argv[1:] = {arguments!r}
try:
    main()
except SystemExit as end:
    assert not end.code
print("imported:", *(name for name in {heavy!r} if name in sys.modules))
"""
    result = ran([sys.executable, "-c", script])
    assert result.stdout.splitlines()[-1].split() == ["imported:"]


def test_assumptions_are_kept_where_something_else_is_wrong() -> None:
    command = "emit --backend cuda --method mma_direct --dtype bfloat16 --layout row,col --set a.width=4".split()
    assert "pass --ld-multiple 4" in refused(*command, "-N", "0")
    text = refused(*command, "-N", "0", "--ld-multiple", "4")
    assert "N = 0" in text
    assert "pass --ld-multiple" not in text


def test_errors_are_ours_in_process() -> None:
    from typer.testing import CliRunner

    result = CliRunner().invoke(application(), ["emit", "--tile", "32x"])
    assert isinstance(result.exception, UserError)


def test_the_module_is_the_command() -> None:
    """For those whose environment is not on the path."""
    command = [sys.executable, "-m", "gemmgen", "presets", "--no-such-option"]
    result = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert result.returncode == 2
    assert "No such option" in result.stderr
