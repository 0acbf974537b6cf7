"""Launchers and whole projects: C headers for OpenCL, and folders that a compiler of the language builds."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from ctypes.util import find_library
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, C64, C128, F16, F32, F64, I8, I64
from gemmgen.project import project_files
from gemmgen.runtime.icd import intel_cpu_library
from gemmgen.spec import GemmSpec
from tests.support import hip
from tests.support.cli import gemmgen as command
from tests.support.golden import Golden
from tests.support.tools import ran, tool

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only")
#: Compilers, each with its standard and the ending of its files.
COMPILERS = {
    "gcc": ("gcc", "-std=c99", ".c"),
    "clang": ("clang", "-std=c99", ".c"),
    "g++": ("g++", "-std=c++17", ".cpp"),
    "clang++": ("clang", "-std=c++17", ".cpp"),
}
#: What headers differ by, with every kind of argument and of check.
SPECS = {
    "batched": GemmSpec(batched=True),
    "wide": GemmSpec(wide=True),
    "complex": GemmSpec(dtype=C64),
    "complex_folded": GemmSpec(dtype=C128, k=8),
    "half": GemmSpec(dtype=BF16, c_dtype=F32, a_order="col"),
    "epilogue": GemmSpec(epilogue=("bias", "row_scale", "residual", "gelu"), prologue_b="b * b_factor"),
    "folded": GemmSpec(m=128, n=128, k=64, alpha=2.0, beta=0),
    "assumed": GemmSpec(multiple_of=(4, 4, 8), ld_multiple=4, batched=True),
    "alpha_0": GemmSpec(alpha=0),
}


def opencl_headers() -> Path:
    """The folder of OpenCL's headers, the system's or what the wheel of DPC++'s runtime brings."""
    if Path("/usr/include/CL/cl.h").is_file():
        return Path("/usr/include")
    runtime = pytest.importorskip("gemmgen.runtime.sycl_library")
    try:
        return Path(runtime.library().parent.parent / "include")
    except runtime.DeviceError:
        pytest.skip("apt-get install opencl-c-headers")


@cache
def header(name: str, spec: GemmSpec | None = None, named: str | None = None) -> str:
    """A preset's C header."""
    preset = presets.load(name)
    return driver.emit(spec or preset.spec, replace(preset.schedule, name=named or name), form="header").text


def of_opencl() -> list[str]:
    """Presets that OpenCL C has."""
    found = ((name, presets.load(name)) for name in presets.names())
    return [name for name, preset in found if not driver.refusals(preset.spec, preset.schedule)]


def test_header(golden: Golden) -> None:
    """Of two kernels, with memory between them and sub-groups that not every device has."""
    path = golden.root / "tests" / "golden" / "projects" / "sg16_block_16x1_split4.h"
    golden.check(path, header("sg16_block_16x1_split4"))


def words(text: str) -> list[str]:
    """A text without its layout, and without guards: of a header's constants none is free."""
    text = re.sub(r"^ *#if (?!defined).*\n(?: *#error.*\n)+ *#endif$", "", text, flags=re.MULTILINE)
    return re.findall(r"\w+|[^\w\s]", text.replace("//", " "))


def test_a_header_holds_the_kernels_as_they_are() -> None:
    """But for where their lines break: what stands in quotes has less room."""
    for name in ("naive", "smem_8x8_double_packed"):
        preset = presets.load(name)
        kernel, lines = driver.emit(preset.spec, preset.schedule).text, header(name).splitlines()
        held = [line.removeprefix('"').removesuffix('\\n",') for line in lines if line.endswith('\\n",')]
        assert words("\n".join(line.replace('\\"', '"') for line in held)) == words(kernel)


def test_headers_have_short_lines() -> None:
    """But for the kernel's own, which have quotes around them."""
    for name in ("naive", "smem_8x8", "cpu_6x64", "dpas_32x2_1x8", "smem_8x8_double_packed"):
        for line in header(name).splitlines():
            assert len(line) <= 100 or line.startswith('"'), line


@pytest.mark.parametrize("compiler", COMPILERS)
def test_all_headers_in_one_translation_unit(compiler: str, tmp_path: Path) -> None:
    name, standard, suffix = COMPILERS[compiler]
    texts = [header(each) for each in of_opencl()]
    for what, spec in SPECS.items():
        texts += [header(each, spec, f"{each}_{what}") for each in ("naive", "smem_8x8")]
    texts += [header("smem_8x8_double_packed", SPECS["batched"], "packed_batched")]
    texts += [driver.emit_transpose(GemmSpec(), 16, form="header").text]
    # Twice the same is once.
    file = tmp_path / f"all{suffix}"
    file.write_text("\n".join([*texts, texts[0]]))
    included = tmp_path / f"main{suffix}"
    included.write_text(f'#include "{file}"\n')
    build = [tool(name), standard, *STRICT, "-isystem", str(opencl_headers()), str(included)]
    run(build)


# --- projects -------------------------------------------------------------------------------------

#: Presets and what they multiply, each with arguments beside the sizes, and what the program must find.
PRODUCTS: Mapping[str, tuple[str, GemmSpec, tuple[str, ...]]] = {
    "naive": ("naive", GemmSpec(), ("1.5", "-0.5")),
    "by groups": ("smem_8x8", GemmSpec(), ()),
    "by sub-groups": ("L3_SIMD_8x4_8x8", GemmSpec(), ("-1", "2")),
    "vectors": ("cpu_6x64", GemmSpec(), ("1", "1")),
    "split K": ("sg16_block_16x1_split4", GemmSpec(), ("2", "0.25")),
    "packed": ("smem_8x8_double_packed", GemmSpec(), ("1", "-1")),
    "packed by two kernels": ("dpas_32x2_1x16", presets.load("dpas_32x2_1x16").spec, ()),
    "a batch": ("smem_8x8", GemmSpec(batched=True), ("1", "0.5", "4")),
    "a packed batch": ("smem_8x8_double_packed", GemmSpec(batched=True), ()),
    "complex": ("smem_8x8", GemmSpec(dtype=C64, conj_a=True, b_order="col"), ("1,2", "0.5,-1")),
    "complex, folded": ("naive", GemmSpec(dtype=C128, alpha=1 + 2j, beta=0), ()),
    "float64": ("naive", GemmSpec(dtype=F64, a_order="col", b_order="col", c_order="col"), ("3", "-1")),
    "float16": ("smem_8x8", GemmSpec(dtype=F16), ("0.5", "2")),
    "bfloat16": ("naive", GemmSpec(dtype=BF16, c_dtype=F32), ("0.5", "2")),
    "int8": ("smem_8x8", GemmSpec(dtype=I8), ("3", "-2")),
    "int64": ("naive", GemmSpec(dtype=I64), ("3", "-2")),
    "mixed": ("naive", GemmSpec(a_dtype=I8), ("0.5", "0")),
    "assumptions": ("smem_8x8", GemmSpec(multiple_of=(4, 4, 8), ld_multiple=4, batched=True), ()),
    "folded": ("smem_8x8", GemmSpec(n=96, k=64, alpha=0.3, beta=0), ()),
    "wide": ("naive", GemmSpec(wide=True), ()),
    "an epilogue": (
        "smem_8x8",
        GemmSpec(epilogue=("bias", "row_scale", "residual", "gelu", "expr: acc + 0.5 * c - 0.01 * col")),
        ("1.5", "0"),
    ),
    "a gate": ("smem_8x8", GemmSpec(epilogue=("swiglu", "bias", "residual")), ("1.5", "0")),
    "a gate of a batch": (
        "tile_8x8",
        GemmSpec(b_order="col", batched=True, epilogue=("expr: acc * max(up, 0)",)),
        ("-2", "0", "2"),
    ),
    "an epilogue of a batch": ("naive", GemmSpec(dtype=F16, batched=True, epilogue=("scale", "clamp(0, 6)")), ()),
}
#: Sizes that no tile divides, and one element.
SIZES = (("100", "76", "56"), ("131", "1", "9"), ("1", "1", "1"))


def files_of(product: str, folder: Path, backend: str = "opencl") -> str:
    """Writes a project; the name of its kernel."""
    preset, spec, _ = PRODUCTS[product]
    files = project_files(spec, replace(presets.load(preset).schedule, name=preset), backend)
    for name, text in files.items():
        (folder / name).write_text(text)
    return preset


@cache
def opencl_library() -> str:
    """The loader's library; skips where a program can't be linked to it, or has no CPU to run on."""
    library = find_library("OpenCL")
    if library is None or intel_cpu_library() is None:
        pytest.skip("apt-get install ocl-icd-opencl-dev, and the extra cpu")
    return library


def built(folder: Path, gcc: str) -> Path:
    """The program of a project in C."""
    warnings = [flag for flag in STRICT if flag != "-fsyntax-only"]
    build = [gcc, "-std=c11", "-O2", *warnings, "-isystem", str(opencl_headers()), "main.c", "-o", "main"]
    run([*build, f"-l:{opencl_library()}", "-lm"], folder)
    return folder / "main"


def run(call: list[str], folder: Path | None = None) -> None:
    result = subprocess.run(call, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, (result.stdout + result.stderr)[:4000]


def executed(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OCL_ICD_VENDORS": str(intel_cpu_library())}
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True)


def test_cmake_file(golden: Golden) -> None:
    files = project_files(GemmSpec(), presets.load("naive").schedule)
    folder = golden.root / "tests" / "golden" / "projects" / "naive"
    for name in ("CMakeLists.txt", "main.c"):
        golden.check(folder / name, files[name])


@pytest.mark.parametrize("product", PRODUCTS)
def test_program_compiles_without_warnings(product: str, tmp_path: Path) -> None:
    files_of(product, tmp_path)
    run([tool("gcc"), "-std=c11", *STRICT, "-isystem", str(opencl_headers()), str(tmp_path / "main.c")])
    for line in (tmp_path / "main.c").read_text().splitlines():
        assert len(line) <= 100, line


@pytest.mark.parametrize("product", PRODUCTS)
def test_program_is_right(product: str, tmp_path: Path) -> None:
    """At its own sizes, and at others with other factors, where it takes them."""
    files_of(product, tmp_path)
    program, (_, spec, arguments) = built(tmp_path, tool("gcc")), PRODUCTS[product]
    fixed = spec.multiple_of != (1, 1, 1) or spec.k is not None
    for given in [(), *((*sizes, *arguments) for sizes in SIZES if not fixed)]:
        result = executed(program, *given)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "right, the largest error" in result.stdout and "GFLOP/s" in result.stdout
        assert ("right, bit for bit" in result.stdout) == (spec.alpha != 0.3 and not spec.epilogue)


def test_a_wrong_kernel_is_told(tmp_path: Path) -> None:
    """Where it leaves out the last step of K, and where it reads C though beta is zero."""
    name = files_of("naive", tmp_path)
    header_file = tmp_path / f"{name}.h"
    text = header_file.read_text()
    for right, wrong in (("< k;", "< k - 1;"), ("beta == 0.0f ?", "beta == 2.0f ?")):
        assert text.count(right) == 1
        header_file.write_text(text.replace(right, wrong))
        result = executed(built(tmp_path, tool("gcc")), "20", "30", "40")
        assert result.returncode == 1, result.stdout + result.stderr
        assert re.search(r"WRONG: \d+ of 600 elements, the first: C\[\d+\]\[\d+\] is ", result.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("20", "30"), "wrong number of arguments\nusage: naive [M N K [alpha beta]]"),
        (("20", "30", "x"), "sizes are whole numbers from 1 to"),
        (("20", "0", "1"), "sizes are whole numbers from 1 to"),
        (("20", "30", "40", "1", "b"), "alpha and beta are numbers, such as 1.5"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    files_of("naive", tmp_path)
    result = executed(built(tmp_path, tool("gcc")), *arguments)
    assert result.returncode == 2 and said in result.stderr


#: A caller that passes what can't be taken, and is told by the header's own names of errors.
CALLER = """
#include <stdio.h>
#include "naive.h"
#include "smem_8x8.h"

static void say(const char *what, cl_int error) { printf("%s %s\\n", what, naive_error_name(error)); }

int main(void)
{
    cl_platform_id platform;
    cl_device_id device;
    char log[1000];
    struct naive built;
    struct smem_8x8 other;
    clGetPlatformIDs(1, &platform, NULL);
    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    cl_command_queue queue =
        clCreateCommandQueue(context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, NULL);
    say("build", naive_build(&built, context, device, log, sizeof log));
    say("build", smem_8x8_build(&other, context, device, NULL, 0));
    cl_mem x = clCreateBuffer(context, CL_MEM_READ_WRITE, 4 * 100, NULL, NULL);
    cl_mem y = clCreateBuffer(context, CL_MEM_READ_WRITE, 4 * 100, NULL, NULL);
    cl_mem z = clCreateBuffer(context, CL_MEM_READ_WRITE, 4 * 100, NULL, NULL);
    cl_event first = NULL, done = NULL;
    say("right", naive_launch(&built, queue, 10, 10, 10, 1, x, 10, y, 10, 0, z, 10, 0, NULL, &first));
    say("after", smem_8x8_launch(&other, queue, 10, 10, 10, 1, x, 10, z, 10, 0, y, 10, 1, &first, &done));
    say("wait", clWaitForEvents(1, &done));
    say("nothing", naive_launch(&built, queue, 0, 10, 10, 1, x, 10, y, 10, 0, z, 10, 0, NULL, &done));
    say("overlap", naive_launch(&built, queue, 10, 10, 10, 1, x, 9, y, 10, 0, z, 10, 0, NULL, NULL));
    say("short", naive_launch(&built, queue, 10, 10, 10, 1, x, 11, y, 10, 0, z, 10, 0, NULL, NULL));
    say("unread", naive_launch(&built, queue, 10, 10, 10, 0, x, 11, y, 10, 0, z, 10, 0, NULL, NULL));
    say("far", naive_launch(&built, queue, 3, 10, 10, 1, x, 1 << 30, y, 10, 0, z, 10, 0, NULL, NULL));
    say("depth", naive_launch(&built, queue, 3, 10, -1, 1, x, 10, y, 10, 0, z, 10, 0, NULL, NULL));
    say("large", naive_launch(&built, queue, 1, 1, 0x7ffffc00, 1, x, 0x7ffffc00, y, 1, 0, z, 1, 0, NULL, NULL));
    say("none", naive_launch(&built, queue, 10, 10, 10, 1, NULL, 10, y, 10, 0, z, 10, 0, NULL, NULL));
    say("names", -59);
    say("names", -1234);
    clFinish(queue);
    naive_release(&built);
    smem_8x8_release(&other);
    return 0;
}
"""


def test_what_a_launcher_refuses(tmp_path: Path) -> None:
    for name in ("naive", "smem_8x8"):
        (tmp_path / f"{name}.h").write_text(header(name))
    (tmp_path / "main.c").write_text(CALLER)
    result = executed(built(tmp_path, tool("gcc")))
    assert result.stdout.splitlines() == [
        *("build CL_SUCCESS", "build CL_SUCCESS", "right CL_SUCCESS", "after CL_SUCCESS", "wait CL_SUCCESS"),
        *("nothing CL_SUCCESS", "overlap CL_INVALID_VALUE", "short CL_INVALID_BUFFER_SIZE", "unread CL_SUCCESS"),
        *("far CL_INVALID_VALUE", "depth CL_INVALID_VALUE", "large CL_INVALID_VALUE", "none CL_INVALID_MEM_OBJECT"),
        *("names CL_INVALID_OPERATION", "names unknown error of OpenCL"),
    ]


def test_cmake_builds_and_tests_it(tmp_path: Path) -> None:
    opencl_library()
    files_of("split K", tmp_path)
    cmake, build = tool("cmake"), tmp_path / "build"
    run([cmake, "-S", str(tmp_path), "-B", str(build), "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror"])
    run([cmake, "--build", str(build)])
    result = executed(build / "sg16_block_16x1_split4", "200", "100", "300")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("product", ["naive", "a packed batch", "complex", "float16", "an epilogue", "a gate"])
def test_cuda_project_compiles(product: str, tmp_path: Path) -> None:
    name = files_of(product, tmp_path, "cuda")
    warnings = ("-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Wconversion,-Wshadow,-Werror")
    quick = ("-Xptxas", "-O0", "-Xcicc", "-O0", "-arch=sm_80")
    nvcc = tool("nvcc")
    run([nvcc, "-std=c++17", *warnings, *quick, "main.cu", f"{name}.cu", "-o", "main"], tmp_path)
    assert "set(CMAKE_CUDA_ARCHITECTURES" in (tmp_path / "CMakeLists.txt").read_text()


@pytest.mark.parametrize("name", ["wgmma_128x256_s4", "mma_f8_8x16_16x8", "mbarrier_8x16_16x16_stream"])
def test_cuda_program_calls_the_launcher_as_it_is(name: str, tmp_path: Path) -> None:
    """With the types of its matrices, tensor maps behind it, and memory by the number of multiprocessors. The host's
    compiler warns of headers of CUDA 13.5.
    """
    preset = presets.load(name)
    files = project_files(preset.spec, preset.schedule, "cuda")
    (tmp_path / "main.cu").write_text(files["main.cu"])
    warnings = ("-Xcompiler", "-Wall,-Wextra,-Wconversion,-Wshadow")
    made = ran([tool("nvcc"), "-std=c++17", *warnings, "-c", "main.cu", "-o", "main.o"], cwd=tmp_path)
    assert not re.findall(r"main\.cu[:(]\d+.*(?:warning|error).*", made.stderr)


@pytest.mark.parametrize("product", ["naive", "a packed batch", "complex", "float16", "bfloat16", "int8", "a gate"])
def test_hip_project(product: str, tmp_path: Path) -> None:
    """Kernel and program compile, each by itself: no ROCm is here to link them, nor a GPU to run them."""
    preset, spec, _ = PRODUCTS[product]
    name = files_of(product, tmp_path, "hip")
    assert sorted(x.name for x in tmp_path.iterdir()) == ["CMakeLists.txt", "main.hip", f"{name}.hip"]
    clang = tool("clang")
    for file in ("main.hip", f"{name}.hip"):
        hip.host_checked(tmp_path, file, clang)
    source = hip.emitted(spec, replace(presets.load(preset).schedule, name=name), "gfx1100")
    assert (tmp_path / f"{name}.hip").read_text() == source.text
    assert "cuda" not in (tmp_path / "main.hip").read_text().lower()
    assert "set(CMAKE_HIP_ARCHITECTURES gfx1100)" in (tmp_path / "CMakeLists.txt").read_text()


# SYCL has no `dpas`.
@pytest.mark.parametrize("product", [name for name in PRODUCTS if name != "packed by two kernels"])
def test_sycl_project(product: str, tmp_path: Path) -> None:
    """The types of its host code; the tests of SYCL build what the run-time compiler takes of the kernels."""
    sycl = pytest.importorskip("tests.support.sycl")
    name = files_of(product, tmp_path, "sycl")
    assert {x.name for x in tmp_path.iterdir()} == {"CMakeLists.txt", f"{name}.hpp", "main.cpp"}
    assert "PRIVATE -fsycl -fp-model=precise" in (tmp_path / "CMakeLists.txt").read_text()
    # The part that checks is C, too.
    sycl.host_check(
        tmp_path / "main.cpp", "-Wno-old-style-cast", "-Wno-useless-cast", "-Wno-zero-as-null-pointer-constant"
    )
    for line in (tmp_path / "main.cpp").read_text().splitlines():
        assert len(line) <= 100, line


# --- the command ----------------------------------------------------------------------------------


def test_the_command_writes_a_new_folder_whole(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert command("emit", "--preset", "naive", "--project", str(folder)).returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == ["CMakeLists.txt", "main.c", "naive.h"]
    again = command("emit", "--preset", "naive", "--project", str(folder))
    assert again.returncode == 2 and f"--project {folder} is a folder that is not empty: name a new one" in again.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "x.h"), "--project and -o exclude one another: drop one"),
        (("--form", "header"), "--project and --form exclude one another: drop one"),
        (("--kernel", "transpose"), "--project makes programs that multiply: leave out --kernel transpose"),
        (("--prologue-a", "a * 2"), "checks plain products, not prologues (a * 2): emit the kernel and its launcher"),
        (("--alpha", "0"), "a project's program checks products, but alpha = 0 leaves none: emit the kernel"),
    ],
)
def test_the_command_refuses(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    result = command("emit", "--preset", "naive", "--project", str(folder), *options)
    assert result.returncode == 2 and said in result.stderr
    assert not list(tmp_path.iterdir())


def test_images_are_refused() -> None:
    preset = presets.load("block_read_4x1_1x8")
    with pytest.raises(ScheduleError, match="reads images: emit the kernel and its launcher alone, by --form header"):
        project_files(preset.spec, preset.schedule)
    assert "`a` is an image" in header("block_read_4x1_1x8")
