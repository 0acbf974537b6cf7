"""`gemmgen inspect` against the compilers' own reports, against hand counts, and on sources that are wrong."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gemmgen.errors import ToolError
from gemmgen.inspect import toolchain
from gemmgen.inspect.code import Kind
from gemmgen.inspect.machine import machines
from gemmgen.inspect.show import listing
from gemmgen.inspect.toolchain import Language
from gemmgen.tools import find
from tests.support import sycl
from tests.support.cli import gemmgen, printed, refused
from tests.support.inspect import compiled, reported
from tests.support.tools import tool

#: Vendor -> the tools that its tests need.
TOOLS = {"intel": ("ocloc", "ocloc-legacy", "iga64"), "nvidia": ("nvcc", "nvdisasm"), "amd": ("clang",)}

#: A loop that a person counts in a moment: 16 multiply-adds of one load each.
DOT = """
__attribute__((reqd_work_group_size(64, 1, 1)))
__kernel void dot16(__global const float *restrict a, __global float *restrict c, int n)
{
    float acc[16];
    #pragma unroll
    for (int i = 0; i < 16; ++i) acc[i] = 0.0f;
    #pragma unroll 1
    for (int k = 0; k < n; ++k) {
        const float x = a[k * 64 + get_local_id(0)];
        #pragma unroll
        for (int i = 0; i < 16; ++i) acc[i] = fma(x, acc[i], 1.5f + i);
    }
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < 16; ++i) sum += acc[i];
    c[get_global_id(0)] = sum;
}
"""
CUDA_DOT = """
extern "C" __global__ void __launch_bounds__(64) dot16(const float *__restrict__ a, float *__restrict__ c, int n)
{
    float acc[16] = {};
    #pragma unroll 1
    for (int k = 0; k < n; ++k) {
        const float x = a[k * 64 + threadIdx.x];
        #pragma unroll
        for (int i = 0; i < 16; ++i) acc[i] = fmaf(x, acc[i], 1.5f + i);
    }
    float sum = 0.0f;
    for (int i = 0; i < 16; ++i) sum += acc[i];
    c[threadIdx.x] = sum;
}
"""
TWO_LOOPS = """
__kernel void twice(__global const float *a, __global float *c, int n)
{
    float x = 0.0f, y = 0.0f;
    #pragma unroll 1
    for (int k = 0; k < n; ++k) x = fma(a[k], x, 1.5f);
    #pragma unroll 1
    for (int k = 0; k < n; ++k) y = fma(a[2 * k], y, 2.5f);
    c[get_global_id(0)] = x + y;
}
"""


@pytest.fixture
def needs() -> Callable[[str], None]:
    """Skips where a vendor's tools are missing."""

    def check(vendor: str) -> None:
        for name in TOOLS[vendor]:
            tool(name)

    return check


# --- counts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["bdw", "skl", "tgllp", "dg2-g10", "pvc", "gfx906", "gfx942", "gfx1030", "gfx1100"])
def test_a_loop_counted_by_hand(target: str, needs: Callable[[str], None]) -> None:
    needs(machines()[target].vendor)
    found = compiled(DOT, target)
    lanes = found.compiled.resources.lanes
    assert found.loop is not None and lanes is not None
    assert found.loop.fmas == 16 * lanes
    assert found.loop.flops_per_byte("global") == pytest.approx(2 * 16 / 4)
    assert found.compiled.resources.group == 64
    assert found.compiled.resources.scratch == 0


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100"])
def test_a_cuda_loop_counted_by_hand(target: str, needs: Callable[[str], None]) -> None:
    needs("nvidia")
    found = compiled(CUDA_DOT, target, "dot16", "CUDA C++")
    assert found.loop is not None
    assert found.loop.fmas == 16 * 32
    assert found.loop.loads == {("global", "LDG", False): 1}
    assert found.compiled.resources.group == 64
    line = CUDA_DOT.splitlines().index("        const float x = a[k * 64 + threadIdx.x];") + 1
    assert next(x.line for x in found.listing if " LDG" in f" {x.text}") == line


@pytest.mark.parametrize("target", ["skl", "gfx906"])
def test_two_equal_loops_are_told_of(target: str, needs: Callable[[str], None]) -> None:
    needs(machines()[target].vendor)
    found = compiled(TWO_LOOPS, target)
    assert found.loop is not None
    assert any(note.startswith("2 loops have") for note in found.notes)


@pytest.mark.parametrize("target", ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100"])
@pytest.mark.parametrize("preset", ["lds_8x8_16x16_k8", "naive_16x16"])
def test_occupancy_is_what_clang_says(preset: str, target: str, needs: Callable[[str], None]) -> None:
    needs("amd")
    found = reported(preset, target)
    assert found.occupancy is not None
    assert found.occupancy.threads == found.compiled.resources.occupancy
    assert found.occupancy.limit != "as clang says"


def test_registers_and_spills_are_what_ptxas_says(needs: Callable[[str], None], tmp_path: Path) -> None:
    needs("nvidia")
    spilling = CUDA_DOT.replace("__launch_bounds__(64)", "__launch_bounds__(1024, 2)").replace("16", "64")
    found = compiled(spilling, "sm_80", "dot64", "CUDA C++")
    file = tmp_path / "k.cu"
    file.write_text(spilling)
    command = [find("nvcc"), "-std=c++17", "-arch=sm_80", "-cubin", "-Xptxas", "-v", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stderr
    registers, stores = re.search(r"Used (\d+)", said), re.search(r"(\d+) bytes spill stores", said)
    assert registers and stores and int(stores[1]) > 0
    assert found.compiled.resources.registers == int(registers[1])
    assert f"{stores[1]} bytes stored" in found.compiled.resources.spills


# --- bad input ------------------------------------------------------------------------------------


def test_a_kernel_without_a_loop(needs: Callable[[str], None]) -> None:
    needs("intel")
    found = compiled("__kernel void k(__global float *c) { c[get_global_id(0)] = 1.0f; }", "skl")
    assert found.loop is None and found.notes == ("no loop",) and not found.doubts
    assert "no hot loop" in listing(found)


def test_a_loop_without_a_multiply_add(needs: Callable[[str], None]) -> None:
    needs("intel")
    text = "__kernel void k(__global int *c, int n) { for (int i = 0; i < n; ++i) c[i * n] = c[i] ^ i; }"
    found = compiled(text, "skl")
    assert found.loop is None and "none of which multiplies" in found.notes[0]


@pytest.mark.parametrize(("target", "text"), [("skl", "int f(int x) { return x; }"), ("gfx906", "int x;")])
def test_no_kernel(target: str, text: str, needs: Callable[[str], None]) -> None:
    needs(machines()[target].vendor)
    with pytest.raises(ToolError, match="no kernel"):
        compiled(text, target)


def test_an_empty_file(needs: Callable[[str], None]) -> None:
    needs("intel")
    with pytest.raises(ToolError, match="is the file empty"):
        compiled("", "skl")


@pytest.mark.parametrize("target", ["skl", "gfx906"])
def test_several_kernels(target: str, needs: Callable[[str], None]) -> None:
    needs(machines()[target].vendor)
    both = DOT + DOT.replace("dot16", "other")
    with pytest.raises(ToolError, match="2 kernels: name one by --kernel: dot16, other"):
        compiled(both, target)
    with pytest.raises(ToolError, match="did you mean other"):
        compiled(both, target, "othe")
    assert compiled(both, target, "other").compiled.kernel == "other"


@pytest.mark.parametrize("target", ["skl", "gfx906", "sm_80"])
def test_a_compiler_error_is_told_with_its_line(target: str, needs: Callable[[str], None]) -> None:
    needs(machines()[target].vendor)
    language: Language = "CUDA C++" if target == "sm_80" else "OpenCL C"
    text = (CUDA_DOT if target == "sm_80" else DOT).replace("float sum = 0.0f;", "float sum = nothing;")
    line = text.splitlines().index("    float sum = nothing;") + 1
    with pytest.raises(ToolError, match=rf"{line}(?s:.*)nothing") as caught:
        compiled(text, target, language=language)
    assert "error" in str(caught.value)


def test_a_built_in_that_the_device_lacks(needs: Callable[[str], None]) -> None:
    """ocloc calls this a success."""
    needs("intel")
    text = """
    __attribute__((overloadable)) float8 intel_sub_group_f16_f16_matrix_mad_k16(int8 a, int8 b, float8 c);
    __attribute__((intel_reqd_sub_group_size(8)))
    __kernel void k(__global const uint *a, __global float8 *c)
    {
        const int8 x = as_int8(intel_sub_group_block_read8(a));
        c[get_global_id(0)] = intel_sub_group_f16_f16_matrix_mad_k16(x, x, c[0]);
    }
    """
    with pytest.raises(ToolError, match="skl"):
        compiled(text, "skl")
    assert any(x.kind is Kind.MATRIX for x in compiled(text, "dg2-g10").compiled.listing.instructions)


def test_a_missing_tool_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="apt-get install intel-opencl-icd"):
        find("ocloc-legacy")


def test_a_program_that_can_not_be_run(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("no program")
    program.chmod(0o755)
    with pytest.raises(ToolError, match="can't be run"):
        toolchain.run([str(program)], tmp_path)


# --- the command ----------------------------------------------------------------------------------


class Page(HTMLParser):
    """Tags that load something, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        elsewhere = [value for name, value in attrs if name in ("src", "href") and not (value or "").startswith("#")]
        self.loads += [tag] if elsewhere or tag in ("script", "link") else []

    def handle_data(self, data: str) -> None:
        self.text += data


def test_everything_it_writes(needs: Callable[[str], None], tmp_path: Path) -> None:
    needs("intel")
    files = {name: tmp_path / f"out.{name}" for name in ("json", "html", "svg")}
    text = printed(
        *("inspect", "--preset", "block_read_32x1_1x8", "--target", "skl,bdw,sm_80", "--asm"),
        *("--json", files["json"], "--html", files["html"], "--plot", files["svg"]),
    )
    assert re.search(r"skl +8 +128 +0 +0 +7 of 7 +\d+ +512 +0\.9\d\d", text)
    assert re.search(r"skl: loads and stores: \d+ \w.*\n(    .*\n)*skl: moves and shuffles \d+, index \d+", text)
    assert max(map(len, text.partition("the hot loop,")[0].splitlines()[:-1])) <= 100
    assert "sm_80: not to be had: a.memory = 'image'" in text
    assert "nothing was run" in text and "* mad (8|M0)" in text and "* multiply-add" in text
    reports = json.loads(files["json"].read_text())["reports"]
    assert [r["target"] for r in reports] == ["skl", "bdw", "sm_80"]
    assert reports[0]["hot_loop"]["multiply_adds"] == 512
    assert reports[0]["hot_loop"]["counts"]["multiply-add"] == 512
    assert 0.9 < reports[0]["static_bound"]["share"] <= 1
    assert "problems" in reports[2]
    page = Page()
    page.feed(files["html"].read_text())
    assert not page.loads
    assert "mad (8|M0)" in page.text and "acc[i] = fma(a_value, b_frag[p], acc[i]);" in page.text
    picture = ET.fromstring(files["svg"].read_text())
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}circle"))) == 2  # a ceiling on each of two devices
    assert sorted(tmp_path.iterdir()) == sorted(files.values())


def test_every_preset_that_is_named_is_inspected(needs: Callable[[str], None]) -> None:
    needs("intel")
    given = ("--preset", "naive", "--preset", "vec4_4x4,naive", "--preset", "tile_*")
    text = printed("inspect", *given, "--target", "skl")
    titles = [line.split()[0] for line in text.splitlines() if re.match(r"(naive|vec4|tile)", line)]
    assert titles == ["naive", "vec4_4x4", "tile_8x8"]


def test_a_loop_that_waits_for_scratch_memory_is_given_no_bound_of_1(needs: Callable[[str], None]) -> None:
    needs("intel")
    text = printed("inspect", "--preset", "smem_8x8_double", "--target", "skl")
    (row,) = (line for line in text.splitlines() if line.startswith("skl "))
    assert int(row.split()[3])
    assert "1.000" not in row
    assert re.search(r"skl: \d+ of the loop's \d+ loads and stores are of scratch memory", " ".join(text.split()))


def test_the_page_in_a_browser(needs: Callable[[str], None], tmp_path: Path) -> None:
    """At 1,200 pixels nothing scrolls sideways; the loop is beside its source; other instructions are folded away."""
    needs("intel")
    browser = shutil.which("chromium") or tool("chromium-headless-shell")
    page = tmp_path / "page.html"
    presets = "block_read_4x1_1x8,smem_8x8_double"
    printed("inspect", "--preset", presets, "--target", "skl,sm_80", "--html", page)
    script = """<script>
const all = [...document.querySelectorAll("details")], closed = all.filter(x => !x.open).map(x => x.innerText);
all.forEach(x => x.open = true);
const over = [...document.querySelectorAll("*")].filter(x => x.getBoundingClientRect().right > innerWidth + 1);
document.title = JSON.stringify({
    width: innerWidth, scroll: document.documentElement.scrollWidth, over: over.map(x => x.outerHTML.slice(0, 80)),
    sources: [...document.querySelectorAll("td.source")].map(x => x.offsetWidth), closed,
    rows: document.querySelectorAll(".summary tbody tr").length, roofs: document.querySelectorAll("svg.gemmgen").length,
    bad: [...document.querySelectorAll(".summary .bad")].map(x => x.innerText),
});</script>"""
    page.write_text(page.read_text().replace("</body>", script + "</body>"))
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom"]
    command += ["--window-size=1200,900", page.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    title = re.search(r"<title>([^<]*)", result.stdout)
    assert title, result.stderr
    found = json.loads(html.unescape(title[1]))
    assert found["width"] == 1200
    assert found["scroll"] <= 1200 and found["over"] == []
    assert found["sources"] and min(found["sources"]) > 100
    assert found["rows"] == 4 and found["roofs"] >= 1
    assert found["bad"] and any("Loads, stores" in text for text in found["closed"])


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--preset", "naive", "--target", "skll"], ["'skll'", "did you mean skl"]),
        (["--preset", "niave", "--target", "skl"], ["did you mean naive"]),
        (["--preset", "naive", "--target", ""], ["no target"]),
        (["--preset", "naive", "--target", "hsw"], ["hsw: no compiler"]),
        (["--preset", "block_read_4x1_1x8", "--target", "sm_80,sm_90"], ["no image block reads"]),
        (["--kernel", "x"], ["name the file"]),
        (
            ["--preset", " , ", "--target", "skl", "--html", "-"],
            ["--preset names none", "--html -: a page goes to a file"],
        ),
        (["missing.cl"], ["missing.cl can't be read"]),
        (["README.md"], [".cl (OpenCL C)", ".cu (CUDA C++)"]),
        (["kernel.hpp"], ["kernel.hpp can't be read"]),
        (["x.cl", "--preset", "naive", "--tile", "8x8"], ["leave out"]),
        (["--tile", "8x8", "--plot", "x.bmp", "--html", "/no/such/x.html"], [".svg", "mkdir -p /no/such"]),
        (["--tile", "0x8", "--target", "nothing"], ["rows = 0", "'nothing'"]),
    ],
)
def test_refusals(arguments: list[str], parts: list[str]) -> None:
    text = refused("inspect", *arguments)
    assert all(part in text for part in parts), text


@sycl.needs_device
def test_a_sycl_header(needs: Callable[[str], None], tmp_path: Path) -> None:
    needs("intel")
    file = tmp_path / "mine.hpp"
    file.write_text(sycl.emit("naive", "kernel").text)
    text = printed("inspect", file, "--kernel", "naive", "--target", "skl,sm_80")
    assert re.search(r"skl +\d+ +128 ", text) and "sm_80 takes no SYCL here: CUDA C++" in text
    assert "did you mean __sycl_kernel_naive?" in refused("inspect", file, "--kernel", "naiv", "--target", "skl")
    file.write_text("#include <sycl/sycl.hpp>\nint f() { return nothing; }\n")
    refusal = refused("inspect", file, "--target", "skl")
    assert "mine.hpp:2:" in refusal and "nothing" in refusal


def test_of_several_kernels_the_one_that_multiplies_is_meant(needs: Callable[[str], None]) -> None:
    """C is scaled by another one before parts of K are added to it. The launch's memory counts. The loop of the ring
    has both of the ways to copy, for lines of vectors and for any.
    """
    needs("nvidia")
    found = reported("mbarrier_8x8_2x16_atomic8", "sm_90a")
    assert found.compiled.kernel == "mbarrier_8x8_2x16_atomic8"
    # A step of a warp of a slice: 8x8 sums of each lane, 8 of K.
    assert found.loop is not None and (found.loop.fmas, found.loop.share > 0.59) == (32 * 8 * 8 * 8, True)
    assert found.compiled.resources.local_bytes == 75840
    assert found.occupancy is not None and (found.occupancy.threads, found.occupancy.limit) == (12, "local memory")


@pytest.mark.parametrize("target", ["skl", "gfx906", "sm_80"])
def test_local_memory_that_the_launch_decides_on_is_unknown(target: str, needs: Callable[[str], None]) -> None:
    needs(machines()[target].vendor)
    cl = DOT.replace("int n)", "int n, __local float *t)").replace("sum = 0.0f", "sum = t[n]")
    cuda = CUDA_DOT.replace("float acc[16]", "extern __shared__ float t[]; float acc[16]").replace("0.0f;", "t[n];")
    is_cuda = target == "sm_80"
    found = compiled(cuda if is_cuda else cl, target, language="CUDA C++" if is_cuda else "OpenCL C")
    assert found.compiled.resources.local_bytes is None and found.occupancy is None
    assert any("the launch decides" in note for note in found.notes)


def test_a_user_s_file(needs: Callable[[str], None], tmp_path: Path) -> None:
    needs("intel")
    file = tmp_path / "mine.cl"
    file.write_text(DOT)
    assert re.search(r"skl +\d+ +128 ", printed("inspect", file, "--kernel", "dot16", "--target", "skl,sm_80"))
    file.write_text(DOT.replace("fma(", "fme("))
    result = gemmgen("inspect", file, "--target", "skl")
    assert result.returncode == 2
    assert "mine.cl" in result.stderr and "fme" in result.stderr and ":12:" in result.stderr


def test_an_answer_is_kept_by_content(tmp_path: Path) -> None:
    made: list[int] = []

    def make(folder: Path) -> dict[str, str]:
        made.append(1)
        assert folder.is_dir() and not list(folder.iterdir())
        return {"text": "é"}

    key = str(tmp_path)
    assert toolchain.cached((), (key,), make) == toolchain.cached((), (key,), make) == {"text": "é"}
    assert len(made) == 1
    toolchain.cached((), (key, "other"), make)
    assert len(made) == 2


def test_local_memory_on_gfx906(needs: Callable[[str], None]) -> None:
    """Aligned vectors from local memory, a step of 8 at a time: two waves fit, nothing spills."""
    needs("amd")
    found = reported("lds_8x8_16x16_k16_double", "gfx906")
    assert found.loop is not None and found.occupancy is not None
    assert found.loop.share >= 0.90
    assert found.compiled.resources.scratch == 0
    assert found.occupancy.threads >= 2
