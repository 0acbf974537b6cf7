# ruff: noqa: E501
"""How emitted text is broken into lines. That clang-format does the same is tested on whole files, in tests/golden."""

from __future__ import annotations

import pytest

from gemmgen.backends.layout import LIMIT, lay_out

#: What is written in one line, and the lines that become of it.
STATEMENTS = [
    # An assignment goes on below where its value then fits.
    (
        "    const cudaError_t allowed = cudaFuncSetAttribute(kernel_of_this_file, MaxDynamicSharedMemorySize, 229440);",
        """\
    const cudaError_t allowed =
        cudaFuncSetAttribute(kernel_of_this_file, MaxDynamicSharedMemorySize, 229440);""",
    ),
    # Of several subscripts each has a line, where that keeps them whole.
    (
        "                        frag[j][i] = shared.b[0][lane % 4 * 4 + i / 4 * 16 + i % 4][(warp_col + lane / 4) / 8 * 16 + j % 2 * 8 + (warp_col + lane / 4) % 8];",
        """\
                        frag[j][i] = shared.b[0][lane % 4 * 4 + i / 4 * 16 + i % 4]
                                             [(warp_col + lane / 4) / 8 * 16 + j % 2 * 8 +
                                              (warp_col + lane / 4) % 8];""",
    ),
    # A function with a name of its own.
    (
        "    const auto run = [&] { return ::gemm_f32_6x16_of_a_long_name(queue, m, n, k, alpha, a, lda, b, ldb, c, ldc); };",
        """\
    const auto run = [&] {
        return ::gemm_f32_6x16_of_a_long_name(queue, m, n, k, alpha, a, lda, b, ldb, c, ldc);
    };""",
    ),
    # Arguments stand below each other.
    (
        "    copy_4_zfill(&shared.a[slot][a_k][a_row + i * 16], &a[min(row0 + a_row + i * 16, m - 1) * lda + a_k], a_in);",
        """\
    copy_4_zfill(&shared.a[slot][a_k][a_row + i * 16],
                 &a[min(row0 + a_row + i * 16, m - 1) * lda + a_k], a_in);""",
    ),
    # A choice has a line for each side.
    (
        "                c[c_row * ldc + col] = beta == 0.0f ? alpha * acc[i][j] : fmaf(beta, c[c_row * ldc + col], alpha * acc[i][j]);",
        """\
                c[c_row * ldc + col] = beta == 0.0f
                                           ? alpha * acc[i][j]
                                           : fmaf(beta, c[c_row * ldc + col], alpha * acc[i][j]);""",
    ),
    # One choice after another: a line each, where a statement takes several lines at all.
    (
        "                    const int b_inside = col0 + b_col + 4 <= n ? 4 : col0 + b_col < n ? n - (col0 + b_col) : 0;",
        """\
                    const int b_inside = col0 + b_col + 4 <= n ? 4
                                         : col0 + b_col < n    ? n - (col0 + b_col)
                                                               : 0;""",
    ),
    (
        "    if (k < 0 || lda % 8 != 0 || ldb % 8 != 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || m < 0) {",
        """\
    if (k < 0 || lda % 8 != 0 || ldb % 8 != 0 || !is_in_reach(m, k, lda) ||
        !is_in_reach(k, n, ldb) || m < 0) {""",
    ),
    # Assembly has a line for each of its lists.
    (
        '    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");',
        """\
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(address), "r"(bytes)
                 : "memory");""",
    ),
    # There is no room for the comment.
    (
        f"    alignas(16) float a[STAGES][BM][BK + 16]; // {'long ' * 11}words",
        f"    // Long {'long ' * 10}words.\n    alignas(16) float a[STAGES][BM][BK + 16];",
    ),
    # Attributes that take two lines have the function's name on the next.
    (
        "__attribute__((reqd_work_group_size(8, 1, 1)))\n__attribute__((intel_reqd_sub_group_size(8)))\n__kernel void f(int m)\n{",
        """\
__attribute__((reqd_work_group_size(8, 1, 1)))
__attribute__((intel_reqd_sub_group_size(8))) __kernel void
f(int m)
{""",
    ),
    (
        "// Sizes      any m, n, k; leading dimensions multiples of 8; every matrix spans less than 2^31 elements of its type",
        """\
// Sizes      any m, n, k; leading dimensions multiples of 8; every matrix spans less than 2^31
//            elements of its type""",
    ),
]
#: What stays as people have written it.
VERBATIM = [
    "    short(x);",
    "// clang-format off\nint table[] = {1,\n   2};\n// clang-format on",
    f"    return queue.submit([&](sycl::handler &handler) {{ {'x' * 80}; }});",
]


@pytest.mark.parametrize(("text", "lines"), STATEMENTS)
def test_breaks(text: str, lines: str) -> None:
    assert lay_out(text) == lines


@pytest.mark.parametrize("text", [lines for _, lines in STATEMENTS])
def test_what_is_laid_out_stays(text: str) -> None:
    assert lay_out(text) == text


@pytest.mark.parametrize("text", VERBATIM)
def test_what_is_left_alone(text: str) -> None:
    assert lay_out(text) == text


def test_another_limit() -> None:
    text = "x = first_function(argument, another, third);"
    assert lay_out(text, 30) == "x = first_function(\n    argument, another, third);"
    assert lay_out(text, LIMIT) == text
