"""What an error message proposes is tried here, as a user would: the same command, with the option that it names."""

from __future__ import annotations

import contextlib
import io
import random
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer

import gemmgen
from gemmgen import presets
from gemmgen.backends import BACKENDS
from gemmgen.cli import application
from gemmgen.errors import SpecError, UserError
from gemmgen.ir.dtypes import MATRIX_DTYPES
from gemmgen.ir.target import TARGETS
from gemmgen.methods import METHODS
from tests.support.cli import gemmgen as command
from tests.support.cli import printed, refused
from tests.support.remedies import proposals

#: Two commands, since typer makes of one command another kind of program.
EMIT = typer.main.get_command(application(["emit", "presets"]))


def problems(text: str) -> list[str]:
    """The sentences of a refusal."""
    lines = [line for line in text.strip().splitlines() if not line.startswith("This works: ")]
    return [line.removeprefix("gemmgen: ").removeprefix("  - ") for line in (lines[1:] or lines)]


def tried(arguments: list[str], remedy: list[str]) -> list[str]:
    """The arguments with what a remedy says in the place of what they said of the same."""
    pairs = list(zip(arguments[::2], arguments[1::2], strict=True))
    if "--method" in remedy:
        pairs = [(o, v) for o, v in pairs if o != "--preset"]
    for option, value in zip(remedy[::2], remedy[1::2], strict=True):
        key = value.split("=")[0]
        same = f"--{key.replace('_', '-')}" if option == "--set" else option
        pairs = [(o, v) for o, v in pairs if o != same and not (o == option == "--set" and v.split("=")[0] == key)]
        # A backend that was given for a target is none.
        pairs = [(o, v) for o, v in pairs if not (option == "--backend" and o == "--target" and v == value)]
    return [word for pair in pairs for word in pair] + remedy


@pytest.mark.parametrize(
    ("arguments", "proposed"),
    [
        ("--preset wgmma_128x256_s4", "--backend cuda --target sm_90a"),
        ("--preset wgmma_128x256_s4 --target khr", "--backend cuda --target sm_90a"),
        ("--preset wgmma_128x256_s4 --stop-after build", "--backend cuda --target sm_90a"),
        ("--preset mma_8x16_16x8", "--backend cuda --target sm_80"),
        ("--preset mbarrier_8x16_16x16", "--backend cuda --target sm_90"),
        ("--preset dpas_32x2_1x8 --backend cuda", "--backend opencl --target intel"),
        ("--preset cpu_6x64 --backend cuda", "--backend opencl --target cpu"),
        ("--preset reduction_4x4_4x4", "--backend cuda --target sm_80"),
        ("--target sm_80 --backend opencl", "--backend cuda"),
        ("--target cuda", "--backend cuda"),
        ("--target skl", "--backend opencl --target intel"),
        ("--target pvc --sub-group 16 --group 1x16 --block-k 16", "--backend opencl --target xe_hpc"),
        ("--target gfx906 --method slm", "--backend opencl --target portable"),
        ("--block-k 7", "--set block_k=8"),
        ("--block-k 20", "--set block_k=16"),
        ("--block-k 8 --set a.width=2", "--set a.width=1"),
        ("--block-k 8 --set a.width=2", "--set block_k=16"),
        ("--set a.width=2 --block-k 7", "--set block_k=16"),
        ("--preset block_read_32x2_1x8 --block-k 7", "--set block_k=8"),
        ("--tile 32x4", "--tile 16x4"),
        ("--tile 64x2", "--tile 32x2"),
        ("--method naive --group 32x33", "--set group=32x16"),
        ("--backend cuda --method naive --group 64x64", "--set group=32x32"),
        (
            (
                "--backend cuda --preset mbarrier_8x8_4x8_slices8 --set sub_group=8 --set lane_arrangement=none"
                " --set lane_swizzle=false"
            ),
            "--set sub_group=none",
        ),
        ("--backend cuda --preset mbarrier_8x16_16x16 --set sub_group=16", "--set sub_group=none"),
        (
            "--backend cuda --preset mma_8x16_16x8 --group 16x16 --block-k 64 --set stages=3 --set sub_group=16",
            "--set sub_group=none",
        ),
    ],
)
def test_every_remedy_works(arguments: str, proposed: str) -> None:
    given = arguments.split()
    (problem,) = problems(refused("emit", *given))
    found = proposals(problem)
    assert proposed.split() in found, problem
    for remedy in found:
        result = command("emit", *tried(given, remedy))
        assert result.returncode == 0, (problem, remedy, result.stderr)


def refusal(arguments: list[str]) -> UserError | None:
    """What `emit` says against a command, in this process."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            EMIT.main(["emit", *arguments], standalone_mode=False)
    except UserError as error:
        return error
    return None


def all_followed(arguments: list[str], found: tuple[str, ...]) -> list[str]:
    """The arguments after the first thing that each problem proposes, all together."""
    for problem in found:
        arguments = tried(arguments, proposals(problem)[0])
    return arguments


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "intel", "cpu", "sycl", "gfx942"])
def test_all_remedies_together_lead_from_a_preset_to_a_kernel(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one step, whatever language the target speaks and whatever it lacks."""
    monkeypatch.setattr("gemmgen.cli.emit.nearest_accepted", lambda *_: None)  # the problems alone
    for name in presets.names():
        given = ["--preset", name, "--target", target, "--stop-after", "build"]
        if (error := refusal(given)) is not None:
            followed = all_followed(given, error.problems)
            assert refusal(followed) is None, (given, error.problems, followed)


#: Options that may be wrong beside one another, and how likely each is given.
FAMILY = {
    "--preset": (0.5, presets.names()),
    "--method": (0.5, METHODS),
    "--backend": (0.5, (*BACKENDS, "cud")),
    "--target": (0.5, tuple(TARGETS)),
    "--dtype": (0.5, (*MATRIX_DTYPES, "flaot32")),
    "--layout": (0.3, ("row,col", "col,row", "col,col", "row,row,col")),
    "--tile": (0.3, ("4x4", "3x5", "64x4", "1x1", "2x64", "8")),
    "--group": (0.2, ("1x8", "16x16", "64x32", "4x4")),
    "--block-k": (0.2, ("7", "8", "32")),
    "--sub-group": (0.1, ("8", "16", "32")),
    "--epilogue": (0.2, ("relu", "bias", "clamp(0, 6)")),
    "--set": (0.1, ("stages=3", "a.width=2", "persistent=true", "nothing=1")),
    "-o": (0.1, ("/dev/null",)),
}


def drawn(rng: random.Random) -> list[str]:
    """Options that hardly anybody has thought of together."""
    given: list[str] = []
    for option, (chance, values) in FAMILY.items():
        if rng.random() < chance and not (option == "--method" and given):
            given += [option, rng.choice(values)]
    return given


@pytest.mark.parametrize("seed", range(6))
def test_a_refusal_ends_with_a_command_that_works(seed: int) -> None:
    rng, found = random.Random(seed), 0
    while found < 4:
        given = drawn(rng)
        if (error := refusal(given)) is None:
            continue
        found += 1
        assert error.works is not None, (given, error.problems)
        begin, command, *works = shlex.split(error.works)
        assert (begin, command) == ("gemmgen", "emit")
        assert refusal(works) is None, (given, works)
        # What is computed, and by which preset, nobody gives up who need not.
        kept = [option for option in ("--preset", "--method", "-o") if option in given]
        assert [option for option in kept if option in works] == kept, (given, works)


@pytest.mark.parametrize(
    ("given", "works"),
    [
        ("--preset wgmma_128x256_s4 --target sm_80", "--backend cuda --preset wgmma_128x256_s4 --target sm_90a"),
        ("--block-k 20 -o /dev/null", "--block-k 16 -o /dev/null"),
        ("--method mma_s8", "--backend cuda --method mma_s8 --dtype int8"),
        ("--preset smem_8x9", "--preset smem_8x8"),
        ("--method mfma --dtype float16", "--method mfma --target gfx942 --dtype float16"),
    ],
)
def test_the_nearest_command_is_told(given: str, works: str) -> None:
    assert refused("emit", *given.split()).splitlines()[-1] == f"This works: gemmgen emit {works}"


def test_a_group_that_is_no_warpgroup_is_refused() -> None:
    """It was divided by, where local memory is short as well."""
    text = refused("emit", "--preset", "wgmma_f8_128x256_s4", "--set", "tile=2x36", "--set", "group=4x4")
    assert "group 4x4 is not made of warpgroups of 32x4" in text


def test_an_option_that_counts_once_is_not_dropped_in_silence() -> None:
    text = refused("emit", "--preset", "naive", "--preset=tile_8x8", "-M", "4", "--size1", "5")
    assert "--preset is given as naive and as tile_8x8: leave one out" in text
    assert "--size1 is given as 4 and as 5: leave one out" in text
    assert printed("emit", "--preset", "naive", "--preset", "naive") == printed("emit", "--preset", "naive")


def test_a_flag_is_not_set_both_ways() -> None:
    text = refused("emit", "--method", "slm", "--no-prefetch", "--prefetch")
    assert text == "gemmgen: --prefetch and --no-prefetch are both given: leave one out\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--grouped rows --listed --target sm_90a", "not of groups: leave out listed or grouped"),
        ("--preset cpu_6x64_copied --target cpu --dtype float16", "set split_k = 2, or use c_dtype float32"),
        ("--preset smem_8x8 --set sliced_k=8 --set group=8x16", "use sliced_k 1 instead of 8, or a smaller tile"),
        ("--preset smem_8x8 --set sliced_k=2", "use sliced_k 1 instead of 2, or a smaller tile"),
        (
            "--preset smem_8x8 --backend cuda --dtype float8_e5m2",
            "use --method mma_f8 or wgmma_f8 (no preset)",
        ),
        ("--preset smem_8x8 --set block_k=1 --set sliced_k=2", "sliced_k = 2 does not divide block_k = 1: use 1"),
    ],
)
def test_advice_leads_somewhere(arguments: str, told: str) -> None:
    error = refusal(arguments.split())
    assert error is not None and any(told in problem for problem in error.problems), error


def test_a_picture_in_no_folder_is_told_the_folder(tmp_path: Path) -> None:
    text = refused("explain", "--preset", "smem_8x8", "--svg", tmp_path / "none" / "x.svg")
    assert f"create it first (mkdir -p {tmp_path / 'none'})" in text


def test_a_block_of_one_row_is_not_to_have_one_row() -> None:
    error = refusal("--preset cpu_6x64_copied --target xe_hpc --set kc=1".split())
    assert error is not None and "b.memory = 'private'" in str(error) and "kc 1" not in str(error)


def test_near_names_are_names() -> None:
    text = refused("emit", "--preset", "smem")
    assert len(text) < 200 and "gemmgen presets lists all" in text
    for name in text.partition("did you mean ")[2].partition("?")[0].split(" or "):
        assert name in presets.names()
    assert refused("run", "-k", "nope").strip().endswith(f"gemmgen presets lists all {len(presets.names())}")
    assert "did you mean smem_8x8" in refused("emit", "--preset", "SMEM_8x8")


def test_explain_refuses_what_emit_refuses() -> None:
    for arguments in (
        ["--tile", "32x4"],
        ["--block-k", "7"],
        ["--target", "skl"],
        ["--method", "mma", "--dtype", "float16"],
    ):
        assert problems(refused("explain", *arguments)) == problems(refused("emit", *arguments))
    # What was made for another language is drawn for that one.
    assert "on sm_90a" in printed("explain", "--preset", "wgmma_128x256_s4")
    assert "on sm_80" in printed("explain", "--backend", "cuda", "--tile", "32x4")


def test_files_say_their_type(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    rng = np.random.default_rng(1)
    a, b = rng.random((5, 7)), rng.random((7, 3))
    for name, matrix in (("a", a), ("b", b), ("b32", b.astype(np.float32)), ("b16", np.ones((7, 3), np.int16))):
        np.save(tmp_path / f"{name}.npy", matrix)
    run = ["run", "-k", "naive", "-i", "1", "-v", "--a", str(tmp_path / "a.npy")]
    text = printed(*run, "--b", tmp_path / "b.npy", "-o", tmp_path / "c.npy")
    assert "validation passed" in text
    c = np.load(tmp_path / "c.npy")
    assert c.dtype == np.float64 and np.allclose(c, a @ b, rtol=1e-14, atol=0)
    # Two types are refused; what is proposed works.
    mixed = [*run, "--b", str(tmp_path / "b32.npy")]
    (problem,) = problems(refused(*mixed))
    assert "(float64)" in problem and "(float32)" in problem and "numpy.save(path, matrix.astype('float64'))" in problem
    (remedy,) = proposals(problem)
    assert remedy == ["--dtype", "float64", "--b-dtype", "float32"]
    assert "validation passed" in printed(*mixed, *remedy)
    (problem,) = problems(refused("run", "-k", "naive", "--dtype", "float32", "--a", tmp_path / "a.npy"))
    (remedy,) = proposals(problem)
    assert "validation passed" in printed(*run, *remedy)
    (problem,) = problems(refused("run", "-k", "naive", "--b", tmp_path / "b16.npy"))
    assert "int16, which no kernel multiplies" in problem


def test_a_vector_of_the_wrong_shape_is_told_the_right_one() -> None:
    pytest.importorskip("pyopencl")
    a, b = np.ones((4, 96), np.float32), np.ones((96, 5), np.int8)
    spec = gemmgen.GemmSpec(b_dtype="int8", prologue_b="b * b_scale")
    kernel = gemmgen.compile(spec, "lds_8x8_16x16_k8")
    with pytest.raises(SpecError, match=r"shape 4x96.*: pass an array with an element for each column of b, 5 in one"):
        kernel(a, b, b_scale=np.ones((4, 96), np.float32))
    one_row = np.arange(5, dtype=np.float32).reshape(1, 5)
    with pytest.raises(SpecError, match=r"pass b_scale\.ravel\(\)"):
        kernel(a, b, b_scale=one_row)
    assert np.array_equal(np.asarray(kernel(a, b, b_scale=one_row.ravel())), a @ (b * one_row))


def test_buffers_in_place_of_images_suit_the_target() -> None:
    """The preset's groups are of 8 lanes, which is no sub-group of the target."""
    remedy = "--method simd --tile 32x2 --group 1x16"
    assert remedy in refused("emit", "--preset", "block_read_32x2_1x8", "--target", "xe_hpc")
    assert "gemm_f32_simd_32x2" in printed("emit", "--target", "xe_hpc", *remedy.split())
