"""`gemmgen export`: its options, what it refuses, and the source that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.errors import ScheduleError, UserError
from gemmgen.export.blas import (
    CHOICES,
    ROUTINES,
    Choice,
    block_of,
    compiler_command,
    kernels_of,
    literal,
    shared_library,
)
from gemmgen.spec import GemmSpec
from tests.support.blas import source
from tests.support.cli import gemmgen, printed, refused
from tests.support.tools import ran, tool


def test_source_needs_no_compiler_and_is_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    (tmp_path / "folder").mkdir()
    assert printed("export", "--blas", "-o", f"{tmp_path}/folder/") == ""
    assert (tmp_path / "folder" / "gemmgen_blas.c").read_text() == source()
    head, *_ = printed("export", "--blas", "--source", "--dtype", "float64").split("\n", 1)
    assert head == "// gemmgen_blas: dgemm of the BLAS on an OpenCL device"


def test_every_line_fits_and_every_kernel_is_used() -> None:
    own = [line for line in source().splitlines() if not line.lstrip().startswith('"')]
    assert max(map(len, own)) <= 100
    for routine in ROUTINES:
        kernels, recipes = kernels_of(routine)
        used = {name for recipe in recipes for name in recipe.kernels if name}
        assert used == {kernel.name for kernel in kernels}
        # Each preset serves every pair of ops.
        assert len(recipes) == (9 if routine.complex else 4) * sum(routine.letter in c.letters for c in CHOICES)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    strict = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-Wno-overlength-strings")
    (tmp_path / "blas.c").write_text(source())
    command = [tool(compiler), *strict, "-fsyntax-only", str(tmp_path / "blas.c")]
    ran(command)


def test_says_everything_wrong_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    said = refused("export", "--dtype", "float32,float61,int8", "--preset", "smem,naive", "-o", "/nowhere/x.c")
    assert "gemmgen: 7 problems\n" in said
    for problem in (
        "nothing is said to export: --blas is what there is",
        "-o /nowhere/x.c: the folder /nowhere does not exist",
        "-o /nowhere/x.c is named like a source, and a library is built: add --source, or name a .so",
        "dtype 'float61' is not to be had",
        "dtype 'int8' is not to be had",
        "preset 'smem' is not to be had",
        "CC=no-such-compiler -O2 is not on this machine: name a C compiler, or take --source",
    ):
        assert problem in said
    assert "nothing is said about where to" in refused("export")
    assert "-o names no file" in refused("export", "--blas", "-o", "")


@pytest.mark.parametrize(
    ("preset", "reason"),
    [
        ("block_read_4x1_1x8", "reads images, and the library passes buffers"),
        ("sg16_block_16x1_split4", "runs several kernels, and the library launches one"),
        ("register_8x8_4x4", "cannot serve sgemm: b.width = 8 does not divide block_k = 1"),
        ("mbarrier_8x16_16x16", "cannot serve sgemm"),
    ],
)
def test_refuses_presets_that_it_cannot_launch(preset: str, reason: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        kernels_of(ROUTINES[0], (Choice(preset),))
    assert any(reason in problem for problem in caught.value.problems), caught.value.problems


def test_launches_are_groups_for_blocks_of_c() -> None:
    for choice in CHOICES:
        schedule = presets.load(choice.preset).schedule
        if schedule.vector > 1:
            continue
        kernels = [k for k in kernels_of(ROUTINES[0], (Choice(choice.preset),))[0] if k.name.endswith(choice.preset)]
        assert {(k.block, k.groups) for k in kernels} == {(schedule.block_tile, (1, 1))}
    in_line = driver.emit(GemmSpec(), presets.load("smem_8x8").schedule.but(threadblock_swizzle=8)).entry_points[0]
    with pytest.raises(ScheduleError, match="no number of groups for each block of C"):
        block_of(in_line, "mn", 0)


def test_presets_must_serve_every_type() -> None:
    said = refused("export", "--blas", "--source", "--preset", "sg16_block_16x2")
    assert "preset sg16_block_16x2 cannot serve cgemm: a.shuffle passes registers of real numbers" in said
    assert "or leave out complex128 by --dtype" in said


def test_presets_may_be_chosen() -> None:
    result = gemmgen("export", "--blas", "--source", "--preset", "naive,tile_8x8", "--dtype", "float32")
    assert result.returncode == 0, result.stderr
    order = [result.stdout.index(f"{{AS_IS, AS_IS, &sgemm_nn_{name}, NULL, NULL}}") for name in ("naive", "tile_8x8")]
    assert order == sorted(order)
    assert "sg16" not in result.stdout


def test_compilers_are_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"no C compiler found .* take --source"):
        compiler_command()
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho it is broken >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(UserError, match="it is broken"):
        shared_library("int x;\n", compiler_command())
    broken.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(UserError, match="the library, and ends with status 3: set CC to a C compiler"):
        shared_library("int x;\n", compiler_command())
    monkeypatch.setenv("CC", "'")
    with pytest.raises(UserError, match="can't be split into words"):
        compiler_command()


def test_literals() -> None:
    assert literal('printf("\\n??");') == r'"printf(\"\\n?" "?\");\n"'
