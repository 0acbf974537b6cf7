"""The exported BLAS as programs see it: called through ctypes, from C, and by the reference BLAS' own tests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from gemmgen.export.blas import ROUTINES, Choice, blas_source, compiler_command, shared_library
from gemmgen.runtime.icd import intel_cpu_library
from tests.support.blas import call, reference_program, run, source, why_no_compiler

pytestmark = pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))

INTEL = intel_cpu_library()
POCL = Path("/etc/OpenCL/vendors/pocl.icd")
STRICT = ("-Werror", "-Wpedantic", "-Wno-overlength-strings")
needs_intel = pytest.mark.skipif(INTEL is None, reason="no intel-opencl-rt in this environment: pip install .[cpu]")
needs_pocl = pytest.mark.skipif(
    not POCL.exists(), reason="PoCL is not on this machine: apt-get install pocl-opencl-icd"
)
#: Of the reference BLAS' tests: the program, the routine, and its line of input.
PROGRAMS = (
    ("xblat3s", "SGEMM ", "sgemm"),
    ("xblat3d", "DGEMM ", "dgemm"),
    ("xscblat3", "cblas_sgemm ", "sgemm"),
    ("xdcblat3", "cblas_dgemm ", "dgemm"),
    ("xblat3c", "CGEMM ", "cgemm"),
    ("xblat3z", "ZGEMM ", "zgemm"),
    ("xccblat3", "cblas_cgemm ", "cgemm"),
    ("xzcblat3", "cblas_zgemm ", "zgemm"),
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("blas") / "libgemmgen_blas.so"
    path.write_bytes(shared_library(source(), [*compiler_command(), *STRICT]))
    return path


@pytest.fixture(scope="module", autouse=True)
def _shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels are built once for all tests here, and not kept for later runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def on_cpu(**more: str) -> dict[str, str]:
    """Settings that lead to Intel's CPU device, and have it told."""
    assert INTEL is not None
    return {"GEMMGEN_BLAS_OPENCL": str(INTEL), "GEMMGEN_BLAS_VERBOSE": "1", **more}


@needs_intel
def test_every_kind_of_call_where_matrices_lie(library: Path) -> None:
    said = call("everything", library, **on_cpu())
    assert "used where they are" in said
    for kernel in ("sgemm_nn", "sgemm_tn", "dgemm_nn", "dgemm_tn"):
        assert re.search(rf"(built|loaded) {kernel}", said), said
    assert "loops" not in said


@needs_intel
def test_matrices_are_turned_for_kernels_that_take_them_one_way(tmp_path: Path) -> None:
    path = tmp_path / "transposed.so"
    path.write_bytes(shared_library(blas_source(ROUTINES[:1], (Choice("L3_SIMD_8x4_1x8"),)), compiler_command()))
    said = call("real", path, **on_cpu())
    assert "sgemm_nn_L3_SIMD_8x4_1x8" in said and "stranspose" in said and "loops" not in said


@needs_intel
def test_a_kernel_compiled_for_other_sub_groups_is_not_used(tmp_path: Path) -> None:
    text = blas_source(ROUTINES[:1], (Choice("L3_SIMD_8x4_1x8"),))
    name, required = "sgemm_nn_L3_SIMD_8x4_1x8", "intel_reqd_sub_group_size({})"
    assert f'.name = "{name}"' in text and required.format(8) in text
    path = tmp_path / "other.so"
    path.write_bytes(shared_library(text.replace(required.format(8), required.format(16)), compiler_command()))
    said = call("real", path, **on_cpu())
    assert f"{name} is written for sub-groups of 8, but this device compiled it for 16" in said


@needs_intel
def test_every_kind_of_call_with_complex_numbers(library: Path) -> None:
    said = call("complex_numbers", library, **on_cpu())
    for ops in map("".join, product("ntc", repeat=2)):
        assert re.search(rf"(built|loaded) cgemm_{ops}_", said), said
    assert "loops" not in said


@needs_pocl
def test_calls_with_copies(library: Path) -> None:
    settings = {"OCL_ICD_VENDORS": str(POCL), "GEMMGEN_BLAS_VERBOSE": "1"}
    said = call("pair", library, GEMMGEN_BLAS_OPENCL="libOpenCL.so.1", **settings)
    assert "matrices copied" in said, said
    assert "sgemm_nn" in said and "sgemm_tt" in said
    assert "loops" not in said


def test_without_a_device_loops_are_right_and_said_once(library: Path) -> None:
    said = call("everything", library, GEMMGEN_BLAS_OPENCL="/nowhere.so")
    assert said.count("plain loops") == 1
    assert "GEMMGEN_BLAS_OPENCL=/nowhere.so is no OpenCL library" in said
    assert "plain loops" in call("few", library, GEMMGEN_BLAS_DEVICE="no device is called so")


def test_products_called_small_need_no_device(library: Path) -> None:
    assert call("few", library, GEMMGEN_BLAS_SMALL="1e6", GEMMGEN_BLAS_OPENCL="/nowhere.so") == ""
    said = call("few", library, GEMMGEN_BLAS_SMALL="many", GEMMGEN_BLAS_OPENCL="/nowhere.so")
    assert "GEMMGEN_BLAS_SMALL=many is no number" in said


@needs_intel
def test_matrices_that_reach_too_far_are_multiplied_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "parts.so"
    narrow = source().replace("#define GEMMGEN_BLAS_SPAN ", "#define GEMMGEN_BLAS_SPAN 300 // ")
    assert narrow != source()
    path.write_bytes(shared_library(narrow, [*compiler_command(), "-O0"]))
    said = call("few", path, **on_cpu())
    assert "sgemm_nn" in said and "loops" not in said


@needs_intel
def test_a_forked_child_computes_by_loops(library: Path) -> None:
    assert call("fork", library, **on_cpu()).count("plain loops") == 1


@needs_intel
def test_threads_write_columns_of_one_matrix(library: Path) -> None:
    assert "dgemm_nn" in call("threads", library, **on_cpu())


@needs_intel
def test_kernels_are_built_once(tmp_path: Path) -> None:
    library = tmp_path / "quick.so"
    quick = blas_source(ROUTINES[1:2], (Choice("vec4_4x4"),))
    library.write_bytes(shared_library(quick, [*compiler_command(), "-O0"]))
    kept = {"GEMMGEN_BLAS_CACHE": str(tmp_path / "kept")}
    assert "built dgemm_nn_vec4_4x4" in call("threads", library, **on_cpu(**kept))
    (file,) = (tmp_path / "kept").iterdir()
    content = file.read_bytes()
    assert "loaded dgemm_nn" in call("threads", library, **on_cpu(**kept))
    for broken in (content[:-1], content[:100] + b"?" + content[101:]):
        file.write_bytes(broken)
        assert "built dgemm_nn" in call("threads", library, **on_cpu(**kept))
    assert file.read_bytes() == content and list(file.parent.iterdir()) == [file]
    assert "built dgemm_nn" in call("threads", library, **on_cpu(GEMMGEN_BLAS_CACHE=str(file)))


@needs_intel
def test_native_code_is_loaded_from_our_own_files_alone(tmp_path: Path) -> None:
    """A link to a file that would do, a pipe, a file that others may write to, or that is another user's, and a folder
    that others may write to. Whatever a draft's name leads to is left alone.
    """
    library = tmp_path / "quick.so"
    quick = blas_source(ROUTINES[1:2], (Choice("vec4_4x4"),))
    library.write_bytes(shared_library(quick, [*compiler_command(), "-O0"]))
    folder = tmp_path / "above" / "kept"
    kept = {"GEMMGEN_BLAS_CACHE": str(folder)}
    assert "built dgemm_nn" in call("threads", library, **on_cpu(**kept))
    assert folder.stat().st_mode & 0o777 == 0o700
    (file,) = folder.iterdir()
    content, elsewhere = file.read_bytes(), tmp_path / "elsewhere"

    def put_link() -> None:
        elsewhere.write_bytes(content)
        file.unlink()
        file.symlink_to(elsewhere)

    def put_pipe() -> None:
        file.unlink()
        os.mkfifo(file)

    def give_away() -> None:
        if os.geteuid() == 0:
            os.chown(file, 4321, 4321)
        else:  # a file that only root can give away, then; others may write to it
            file.chmod(0o622)

    for plant in (put_link, put_pipe, lambda: file.chmod(0o666), give_away):
        plant()
        assert "built dgemm_nn" in call("threads", library, **on_cpu(**kept))
        assert file.is_file() and not file.is_symlink() and file.stat().st_mode & 0o777 == 0o600
        assert "loaded dgemm_nn" in call("threads", library, **on_cpu(**kept))
    assert elsewhere.read_bytes() == content
    folder.chmod(0o777)
    said = call("threads", library, **on_cpu(**kept))
    assert "built dgemm_nn" in said and "loaded dgemm_nn" not in said
    assert said.count("kernels are not kept") == 1 and "others may write to it" in said


@needs_intel
def test_where_nothing_can_be_kept_it_is_said_once(tmp_path: Path, library: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    said = call("everything", library, **on_cpu(GEMMGEN_BLAS_CACHE=str(file / "kept")))
    assert said.count("kernels are not kept") == 1 and "Not a directory" in said
    assert "kernels are not kept" not in call("threads", library, **on_cpu(GEMMGEN_BLAS_CACHE=""))


def test_wrong_parameters_are_told_in_order_and_return(library: Path) -> None:
    told = [re.sub(" has an illegal value.*", "", line) for line in call("wrong", library).splitlines()]
    assert told == [
        "gemmgen_blas: parameter 1 of cblas_sgemm",
        "gemmgen_blas: parameter 4 of cblas_sgemm",
        "gemmgen_blas: parameter 5 of cblas_sgemm",
        "gemmgen_blas: parameter 6 of cblas_sgemm",
        "gemmgen_blas: parameter 1 of SGEMM ",
        "gemmgen_blas: parameter 2 of SGEMM ",
        "gemmgen_blas: parameter 9 of cblas_sgemm",
        "gemmgen_blas: parameter 11 of cblas_sgemm",
        "gemmgen_blas: parameter 14 of cblas_sgemm",
    ]


def test_nonsense_is_told_and_returns(library: Path) -> None:
    """Sizes below 0, lines too short, enums of nothing, no addresses: no device is needed to say so."""
    said = call("nonsense", library).splitlines()
    assert len(said) > 1000
    assert all(re.match(r"gemmgen_blas: parameter \d+ of cblas_[sdcz]gemm has an illegal value", line) for line in said)


def test_addresses_of_nothing_are_told_by_their_parameter(library: Path) -> None:
    told = re.findall(r"parameter (\d+) of (\w+)", call("nulls", library, GEMMGEN_BLAS_SMALL="1e9"))
    assert told == [*((n, "cblas_dgemm") for n in ("8", "10", "13")), *((str(n), "DGEMM") for n in range(1, 14))]


@needs_intel
@pytest.mark.parametrize("device", [True, False], ids=["device", "loops"])
def test_lines_that_lie_far_apart(library: Path, device: bool) -> None:
    said = call("far_lines", library, **on_cpu(**({} if device else {"GEMMGEN_BLAS_OPENCL": "/nowhere.so"})))
    assert ("loops" in said) != device


@needs_intel
def test_wrong_calls_and_right_ones_at_once(library: Path) -> None:
    said = call("nonsense_in_threads", library, **on_cpu())
    assert said.count("illegal value") == 2 * 16 and "loops" not in said


@needs_intel
def test_forks_before_the_first_product_and_amid_others(library: Path) -> None:
    """A child from before the device was opened has one of its own; one that comes later computes by loops."""
    assert "loops" not in call("fork_first", library, **on_cpu())
    assert "dgemm_nn" in call("fork_amid_threads", library, **on_cpu())


RACING = """
#include <pthread.h>
#include <stdio.h>
enum { THREADS = 4, N = 16, LD = N * THREADS };
extern void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *,
                        int, double, double *, int);
static double a[N * N], b[N * LD], c[N * LD];
static int wrong[THREADS];
static void *work(void *argument)
{
    const int number = (int)(long)argument;
    for (int round = 1; round <= 2000; ++round) {
        /* Small integers: every sum is exact. */
        cblas_dgemm(101, 111, 111, N, N, N, round, a, N, b + number * N, LD, 0, c + number * N, LD);
        for (int i = 0; i < N; ++i) {
            for (int j = 0; j < N; ++j) {
                wrong[number] += c[i * LD + number * N + j] != (double)round * (i + 1) * N * (number + 1);
            }
        }
    }
    return NULL;
}
int main(void)
{
    pthread_t threads[THREADS];
    int sum = 0;
    for (int i = 0; i < N; ++i) {
        for (int j = 0; j < N; ++j) {
            a[i * N + j] = i + 1;
        }
        for (int j = 0; j < LD; ++j) {
            b[i * LD + j] = j / N + 1;
        }
    }
    for (long t = 0; t < THREADS; ++t) {
        pthread_create(&threads[t], NULL, work, (void *)t);
    }
    for (int t = 0; t < THREADS; ++t) {
        pthread_join(threads[t], NULL);
        sum += wrong[t];
    }
    printf("%d wrong\\n", sum);
    return 0;
}
"""


OWN_XERBLA = """
#include <stdio.h>
#include <string.h>
extern void sgemm_(const char *, const char *, const int *, const int *, const int *, const float *,
                   const float *, const int *, const float *, const int *, const float *, float *,
                   const int *, size_t, size_t);
void xerbla_(const char *name, const int *info, size_t length)
{
    printf("mine: %.*s %d\\n", (int)length, name, *info);
}
int main(void)
{
    const int n = 2, ld = 1;
    const float x[4] = {1, 2, 3, 4}, one = 1;
    float c[4];
    sgemm_("N", "T", &n, &n, &n, &one, x, &ld, x, &n, &one, c, &n, 1, 1);
    return 0;
}
"""


def built(library: Path, folder: Path, text: str) -> Path:
    """A program in C that is linked with the library."""
    (folder / "program.c").write_text(text)
    linked = [f"-L{library.parent}", "-lgemmgen_blas", f"-Wl,-rpath,{library.parent}", "-lpthread"]
    result = run([*compiler_command(), "-O1", "-o", folder / "program", folder / "program.c", *linked], {})
    assert result.returncode == 0, result.stderr
    return folder / "program"


def test_a_linked_program_has_its_own_xerbla(library: Path, tmp_path: Path) -> None:
    result = run([built(library, tmp_path, OWN_XERBLA)], {})
    assert (result.returncode, result.stdout, result.stderr) == (0, "mine: SGEMM  8\n", "")


@needs_intel
def test_threads_race_for_the_device(library: Path, tmp_path: Path) -> None:
    result = run([built(library, tmp_path, RACING)], on_cpu())
    assert (result.returncode, result.stdout) == (0, "0 wrong\n"), result.stdout + result.stderr
    assert "loops" not in result.stderr


@needs_intel
@pytest.mark.parametrize(("program", "routine", "kernel"), PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_the_reference_blas_own_test(library: Path, tmp_path: Path, program: str, routine: str, kernel: str) -> None:
    path = reference_program(program)
    if path is None:
        pytest.skip(f"{program} is not on this machine: apt-get install libblas-test")
    letter = kernel[0]
    given = path.with_name(f"{letter}in3" if program.endswith("cblat3") else f"{letter}blat3.in").read_text()
    lines = [f"{line[: len(routine)]} T" if line.startswith(routine) else line for line in given.splitlines()]
    lines = [re.sub(r"^(\w+ +)T PUT", r"\1F PUT", line) for line in lines]
    preloaded = on_cpu(LD_PRELOAD=str(library))
    result = run([path], preloaded, "\n".join(lines) + "\n", tmp_path)
    summary = tmp_path / f"{letter}blat3.out"
    told = result.stdout + (summary.read_text() if summary.exists() else "")
    assert re.search(rf"(built|loaded) {kernel}", result.stderr), result.stderr + told
    assert "PASSED THE TESTS OF ERROR-EXITS" in told
    assert len(re.findall(rf"{routine.strip()} +PASSED THE .*COMPUTATIONAL TESTS", told)) == (
        2 if program.endswith("cblat3") else 1
    )
    assert "FAIL" not in told and "*****" not in told, told
