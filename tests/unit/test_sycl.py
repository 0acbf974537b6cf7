"""What SYCL's forms say, and what is refused; no device is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gemmgen import candidates, driver, presets
from gemmgen.backends import backend
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import TARGETS
from gemmgen.methods import change
from gemmgen.options import build_schedule
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec


def emitted(form: str, preset: str = "sg16_block_16x2", spec: GemmSpec | None = None) -> str:
    return driver.emit(spec or GemmSpec(), candidates.load(preset).schedule, "sycl", form=form).text


#: What launchers say of matrices that indices do not reach.
REACH = "!is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)"
BY_CONSTANT_K = (
    "(alpha != 0.0f && !is_in_reach(m, 16, lda)) || (alpha != 0.0f && !is_in_reach(16, n, ldb)) || "
    "!is_in_reach(m, n, ldc)"
)


def flat(text: str) -> str:
    """Without line breaks."""
    return " ".join(text.split())


def test_the_launcher() -> None:
    text = flat(emitted("header"))
    assert (
        "inline sycl::event sg16_block_16x2(sycl::queue &queue, int m, int n, int k, float alpha, const float *a, "
        "int lda, "
        "const float *b, int ldb, float beta, float *c, int ldc, const std::vector<sycl::event> &depends_on = {})"
    ) in text
    assert "[[sycl::reqd_work_group_size(1, 16)]] [[sycl::reqd_sub_group_size(16)]]" in text
    assert "handler.depends_on(depends_on);" in text
    assert "{ return queue.submit([&](sycl::handler &handler) { handler.depends_on(depends_on); }); }" in text
    assert "// Build icpx -fsycl" in text


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        (GemmSpec(), f"k < 0 || {REACH}"),
        (
            GemmSpec(ld_multiple=(4, 8, 1), multiple_of=(1, 32, 1)),
            f"k < 0 || n % 32 != 0 || lda % 4 != 0 || ldb % 8 != 0 || {REACH}",
        ),
        (
            GemmSpec(k=16, batched=True, ld_multiple=(4, 1, 1)),
            f"lda % 4 != 0 || stride_a % 4 != 0 || {BY_CONSTANT_K}",
        ),
        (GemmSpec(wide=True), f"k < 0 || {REACH.replace('is_in_reach', 'lie_apart')}"),
    ],
    ids=["any", "assumed", "batches", "wide"],
)
def test_what_the_launcher_refuses(spec: GemmSpec, refused: str) -> None:
    """In the words of CUDA's launchers: broken assumptions, and matrices that indices do not reach."""
    schedule = candidates.load("naive").schedule
    text, cuda = (flat(driver.emit(spec, schedule, language).text) for language in ("sycl", "cuda"))
    assert f"if ({refused}) {{ throw sycl::exception(sycl::make_error_code(sycl::errc::invalid)," in text
    assert f"if ({refused}) {{ return cudaErrorInvalidValue;" in cuda
    assert "constexpr long long TOO_MANY = (1LL << 31) - 1024;" in text


def test_the_launcher_knows_what_bytes_reach() -> None:
    """Block loads count bytes in A and B; what is summed by parts lies between two kernels."""
    text = flat(emitted("header", "sg16_block_16x1_split4"))
    assert "long long pitch, long long limit = 1LL << 31)" in text
    assert (
        "!is_in_reach(m, k, lda, 1LL << 29) || !is_in_reach(k, n, ldb, 1LL << 29) || !is_in_reach(m, n, ldc) || "
        "1LL * m * n * SPLIT_K >= 1LL << 31) { throw"
    ) in text


def test_256_registers_are_a_property_of_the_kernel_on_request() -> None:
    """Of the run-time compiler, for a GPU of Intel's: devices of other kinds refuse it, and so do older compilers."""
    known = presets.load("dpas_32x4_8x64_block_2d")
    header, kernel = (driver.emit(known.spec, known.schedule, "sycl", form=form) for form in ("header", "kernel"))
    asked = "#if defined(GEMMGEN_256_REGISTERS) && defined(SYCL_EXT_INTEL_GRF_SIZE) SYCL_EXT_ONEAPI_FUNCTION_PROPERTY"
    assert f"{asked}((sycl::ext::intel::experimental::grf_size<256>)) #endif" in flat(kernel.text)
    assert "GEMMGEN_256_REGISTERS" not in header.text
    assert kernel.options(True, True) == ("-DGEMMGEN_256_REGISTERS",)
    assert kernel.options(False, True) == ()
    assert "GEMMGEN_256_REGISTERS" not in emitted("kernel", "smem_8x8")


def test_folded_arguments_are_gone() -> None:
    spec = GemmSpec(m=64, n=64, k=64, alpha=1.0, beta=0.0)
    text = flat(emitted("header", spec=spec))
    assert "(sycl::queue &queue, const float *a, int lda, const float *b, int ldb, float *c, int ldc, const" in text
    assert "constexpr int BM = 16, BN = 32, BK = 16;" in text
    assert "const sycl::range<2> groups((BM + 63) / BM, (BN + 63) / BN);" in text
    assert "local range {1, 16}, global range {4, 32}" in text


def test_local_memory() -> None:
    header, kernel = emitted("header", "smem_8x8"), emitted("kernel", "smem_8x8")
    for text in (header, kernel):
        assert "constexpr int BM = 128, BN = 128, BK = 8;" in text
    assert "const sycl::local_accessor<float[BM][BK], 0> a_shared(handler);" in header
    assert "syclex::work_group_static<float[BM][BK]> a_shared;" in kernel
    assert "float (&a_shared)[BM][BK]" in flat(header)


def test_a_work_item_is_given_what_only_loads_of_tiles_read() -> None:
    """With a tile one step deep, A and B stand nowhere but in the function that loads tiles."""
    schedule = change(candidates.load("lds_8x8_16x16_k1").schedule, {"stages": 2})
    text = flat(driver.emit(GemmSpec(), schedule, "sycl", form="header").text)
    assert "const auto load_tiles = [&](int k_load, int load_stage)" in text
    assert "const float *__restrict a, int lda, const float *__restrict b, int ldb" in text


def test_a_vector_is_not_declared_with_a_number() -> None:
    """SYCL's vectors are made of numbers by an explicit constructor alone; OpenCL C has them as they are."""
    schedule = build_schedule(method="vector", tile="1x2", sets=["vector=2"])
    texts = [driver.emit(GemmSpec(), schedule, backend, TARGETS["cpu"]).text for backend in ("sycl", "opencl")]
    assert "sycl::float2 acc; acc = 0.0f;" in flat(texts[0]) and "float2 acc = 0.0f;" in flat(texts[1])


def test_the_run_time_form() -> None:
    text = emitted("kernel")
    for each in ("nd_range_kernel<2>", "work_group_size<1, 16>", "sub_group_size<16>"):
        assert f"SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::{each}))" in text
    assert "[[sycl::" not in text
    assert "sycl.hpp" not in text


def test_the_program_tells_rows_from_columns() -> None:
    text = emitted("main", "register_8x8_4x4")
    assert "check(queue, 509, 258, 131)" in text
    assert "check(queue, 512, 512, 512)" in text
    assert "const int lda = k;" in text


def test_the_program_keeps_what_the_spec_assumes() -> None:
    spec = GemmSpec(n=48, a_order="col", c_order="col", alpha=2.0, multiple_of=(16, 1, 8))
    text = emitted("main", spec=spec)
    assert "check(queue, 512, 48, 136)" in text
    assert "const int lda = m;" in text
    assert "a[p * lda + i]" in text
    assert "const double expected = 2.0 * sum + beta * before[j * ldc + i];" in text
    fixed = emitted("main", "naive", GemmSpec(m=8, n=8, k=8))
    assert fixed.count("good = check(queue, 8, 8, 8)") == 1


def test_the_sub_group_size_is_required_whatever_the_target() -> None:
    """SYCL has the attribute in its core: a device without that size refuses the kernel."""
    from gemmgen.ir.target import TARGETS

    text = driver.emit(GemmSpec(), candidates.load("L3_SIMD_8x4_1x8").schedule, "sycl", TARGETS["khr"]).text
    assert "[[sycl::reqd_sub_group_size(8)]]" in text
    assert "NAN" not in text
    assert "group_load" not in text
    assert "sycl::group_broadcast(sub_group, " in text
    with pytest.raises(ScheduleError, match="does not run sycl: use --backend opencl, or one of the targets sycl, xe"):
        driver.emit(GemmSpec(), Schedule(), "sycl", TARGETS["intel"])


def test_parts_of_k() -> None:
    """Both kernels in every form; the launcher takes the memory between them and has the second wait for the first."""
    header, kernel, program = (emitted(form, "sg16_block_16x1_split4") for form in ("header", "kernel", "main"))
    text = flat(header)
    assert "int ldb, float *workspace, float beta, float *c, int ldc, const std::vector<sycl::event> &depends" in text
    assert "const sycl::event product = queue.submit(" in text
    assert text.index("handler.depends_on(depends_on);") < text.index("handler.depends_on(product);")
    assert "handler.parallel_for<sg16_block_16x1_split4_detail::total_kernel>(" in text
    assert "a workspace of m * n * 4 elements" in text
    for name in ("sg16_block_16x1_split4", "sg16_block_16x1_split4_total"):
        assert f" void {name}(" in flat(kernel)
    assert kernel.count('extern "C"') == 2
    assert "Matrix workspace_memory(" in program
    assert "std::chrono::steady_clock" in program


def test_places_at_the_edge_are_unsigned() -> None:
    """And no helper stands there that nobody calls."""
    edge = emitted("header", "L3_SIMD_16x2_1x8")
    assert "constexpr int THREADS_N = 8;" in edge
    assert "load(b, (k0 + i) * ldb + std::min(col + j * THREADS_N, n - 1))" in flat(edge)
    whole = emitted("header", "L3_SIMD_16x2_1x8", GemmSpec(multiple_of=(16, 16, 32)))
    assert "inline const float *at(" in whole
    assert "load(const float *matrix" not in whole


def test_global_ids() -> None:
    text = emitted("header", "naive_16x16")
    assert "const int row = int(item.get_global_id(0));" in text
    assert "const int col = int(item.get_global_id(1));" in text
    assert "get_global_id" not in emitted("header", "smem_8x8")


def test_additions_in_one_step() -> None:
    """A first kernel gives C its share of itself; slices meet in local memory; what nobody needs has no name."""
    header, kernel = emitted("header", "reduction_4x4_4x4"), emitted("kernel", "reduction_4x4_4x4")
    assert "handler.depends_on(start);" in header
    assert "constexpr int BM = 16, BN = 16, BK = 32;" in header
    assert "constexpr int SPLIT_K = 4;" in header and "constexpr int SLICES = 8;" in header
    assert "const sycl::local_accessor<float[SLICES][BM][BN], 0> partial(handler);" in header
    assert "atomic_add(&c[c_row * ldc + first_col], total[i]);" in header
    assert "#include <sycl/atomic_ref.hpp>" in kernel
    assert "void reduction_4x4_4x4_start(int /* m */, int n, float beta, float *__restrict c," in flat(kernel)
    schedule = candidates.load("reduction_4x4_4x4").schedule
    with pytest.raises(ScheduleError, match="adds nothing in one step: drop it, and a second kernel adds up"):
        driver.emit(GemmSpec(), schedule)


def test_lines_are_short() -> None:
    for name in candidates.names():
        preset = candidates.load(name)
        if driver.refusals(preset.spec, preset.schedule, "sycl"):
            continue
        # A program that checks itself is written for single products of float32 alone.
        for form in backend("sycl").forms if preset.spec == GemmSpec() else ("kernel", "header"):
            long = [line for line in emitted(form, name, preset.spec).splitlines() if len(line) > 120]
            assert not long


def test_the_backend_is_a_table(root: Path) -> None:
    """One module has all that is SYCL's, half of it data and functions of element types. Programs that check
    themselves, joint_matrix and dpas have modules of their own.
    """
    module = root / "gemmgen" / "backends" / "sycl.py"
    assert len(module.read_text().splitlines()) < 600
    assert not [path for path in (root / "gemmgen" / "passes").glob("*.py") if "sycl" in path.read_text().lower()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--form", "mian"], "form 'mian' is none of backend sycl: did you mean main?"),
        (
            ["--backend", "opencl", "--form", "main"],
            "form 'main' is none of backend opencl: give one of kernel, header",
        ),
        (["--backend", "cuda", "--form", "main"], "backend cuda has one form only, so leave it out"),
        (["--form", "main", "--stop-after", "build"], "--form and --stop-after exclude one another"),
        (["--python"], "backend sycl has no Python modules: leave out --python"),
        (["--name", "2x"], "is no identifier"),
        (["--name", "syclex"], "is taken by"),
        (["--preset", "block_read_16x2_1x8"], "by --method simd --tile 16x2 --group 1x8"),
        (["--preset", "async_8x8_16x16"], "has none"),
        (
            ["--target", "intel"],
            "target 'intel' does not run sycl: use --backend opencl, or one of the targets sycl, xe",
        ),
        (["--sub-group", "4"], "sub_group = 4 is not a size of target 'sycl': use one of 8, 16, 32"),
    ],
)
def test_refused_on_the_command_line(options: list[str], message: str, tmp_path: Path) -> None:
    file = tmp_path / "kernel.hpp"
    backend = [] if "--backend" in options else ["--backend", "sycl"]
    command = [sys.executable, "-m", "gemmgen", "emit", *backend, *options, "-o", str(file)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())
