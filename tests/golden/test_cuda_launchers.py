"""What CUDA files say before anything runs: to the compiler, of architectures that lack what they need, and to callers,
of matrices that their kernels can't take. No GPU is needed: such a launch never begins.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgen import candidates, driver
from gemmgen.backends import backend
from gemmgen.ir.dtypes import F64
from gemmgen.ir.target import TARGETS
from gemmgen.spec import GemmSpec
from tests.golden.test_presets import CUDA_NAMES
from tests.support.tools import ran, tool

#: One of each set of instructions that a file may need, with the architecture that has them and one that does not.
GUARDED = {
    "async_8x8_16x16": ("sm_80", "sm_75", "cp.async"),
    "mma_f8_8x16_16x8": ("sm_89", "sm_80", "8-bit floats"),
    "mbarrier_8x16_16x16": ("sm_90", "sm_80", "mbarrier"),
    "mbarrier_8x16_16x16_boxes_packed": ("sm_90a", "sm_90", "TMA"),
    "wgmma_128x256_s4": ("sm_90a", "sm_100", "wgmma"),
}
GUARD = re.compile(
    r"^#if defined\(__CUDA_ARCH__\) && .*\n// It has .+\n"
    r'#error "(\w+) needs (sm_\w+) (?:or later|alone \(-gencode arch=compute_90a,code=\2\))"$',
    re.MULTILINE,
)


@pytest.mark.parametrize("name", GUARDED)
def test_an_architecture_that_lacks_something_is_named_with_what(name: str, root: Path, tmp_path: Path) -> None:
    needed, lacking, word = GUARDED[name]
    file = root / "generated" / "cuda" / f"{name}.cu"
    command = [tool("nvcc"), "-std=c++17", f"-arch={lacking}", "-cubin", str(file), "-o", str(tmp_path / "x")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode != 0
    assert f"{'it' if needed.endswith('a') else name} needs {needed}" in result.stderr
    assert word in (root / "generated" / "cuda" / f"{name}.cu").read_text("utf-8")
    assert "ptxas" not in result.stderr and "asm" not in result.stderr


@pytest.mark.parametrize("name", CUDA_NAMES)
def test_files_that_the_oldest_architecture_cannot_take_say_so(name: str, root: Path) -> None:
    """And those that it can are not stopped there."""
    preset = candidates.load(name)
    source = driver.emit(preset.spec, preset.schedule, "cuda")
    oldest = min(backend("cuda").targets, key=lambda arch: int(arch[3:].rstrip("a")))
    found = GUARD.search((root / "generated" / "cuda" / f"{name}.cu").read_text("utf-8"))
    assert (found is None) == (source.requires <= TARGETS[oldest].features)
    if found is not None:
        assert found[1] in (name, "it") and source.requires <= TARGETS[found[2]].features


def test_instructions_of_a_target_that_no_feature_of_the_request_asks_for() -> None:
    """Those of float64 are taller where there are such."""
    preset = candidates.load("mma_f64_4x8_16x8")
    source = driver.emit(preset.spec, preset.schedule, "cuda", TARGETS["sm_90"])
    assert preset.spec.dtype == F64 and "tall_f64" in source.requires
    assert "needs sm_90 or later" in source.text and "needs sm_80" not in source.text


#: Name -> its launcher's source: vectors, packed matrices, assumptions, a batch, alpha folded and K.
LAUNCHED = {
    "plain": (GemmSpec(), "naive"),
    "vectors": (GemmSpec(), "async_8x8_16x16"),
    "packed": (GemmSpec(), "smem_8x8_double_packed"),
    "assumed": (GemmSpec(ld_multiple=4, multiple_of=(1, 32, 1)), "naive"),
    "batches": (GemmSpec(batched=True, ld_multiple=4), "naive"),
    "folded": (GemmSpec(k=16), "naive"),
    "wide": (GemmSpec(wide=True), "naive"),
    "grouped": (GemmSpec(grouped="rows"), "naive"),
}
MISALIGNED, INVALID = "cudaErrorMisalignedAddress", "cudaErrorInvalidValue"
P = "address(1 << 20)"
#: Calls that are refused, and why.
CALLS = {
    f"plain_launch(8, 8, 8, 1.0f, address(2), 8, {P}, 8, 0.0f, {P}, 8, nullptr)": MISALIGNED,
    f"plain_launch(8, 8, 8, 1.0f, {P}, 7, {P}, 8, 0.0f, {P}, 8, nullptr)": INVALID,
    f"plain_launch(8, 8, 8, 1.0f, {P}, 8, {P}, 8, 0.0f, {P}, 7, nullptr)": INVALID,
    f"plain_launch(65536, 8, 32768, 1.0f, {P}, 32768, {P}, 8, 0.0f, {P}, 8, nullptr)": INVALID,
    f"plain_launch(8, 8, 3, 1.0f, {P}, 8, {P}, 1 << 30, 0.0f, {P}, 8, nullptr)": INVALID,
    f"plain_launch(65536, 32768, 8, 1.0f, {P}, 8, {P}, 32768, 0.0f, {P}, 32768, nullptr)": INVALID,
    f"plain_launch(8, 8, -1, 1.0f, {P}, 8, {P}, 8, 0.0f, {P}, 8, nullptr)": INVALID,
    f"plain_launch(1, 1, 0x7ffffc00, 1.0f, {P}, 0x7ffffc00, {P}, 1, 0.0f, {P}, 1, nullptr)": INVALID,
    f"plain_launch(0x7ffffc00, 1, 1, 1.0f, {P}, 1, {P}, 1, 0.0f, {P}, 1, nullptr)": INVALID,
    f"wide_launch(1, 1, 0x7ffffc00, 1.0f, {P}, 0x7ffffc00, {P}, 1, 0.0f, {P}, 1, nullptr)": INVALID,
    f"vectors_launch(8, 8, 8, 1.0f, {P}, 8, address((1 << 20) + 4), 8, 0.0f, {P}, 8, nullptr)": MISALIGNED,
    f"vectors_launch(8, 8, 8, 1.0f, {P}, 8, {P}, 8, 0.0f, address((1 << 20) + 8), 8, nullptr)": MISALIGNED,
    f"packed_launch(8, 8, 8, 1.0f, {P}, 8, {P}, 8, address(4), {P}, 0.0f, {P}, 8, nullptr)": MISALIGNED,
    f"packed_launch(1 << 24, 8, 129, 1.0f, {P}, 129, {P}, 8, {P}, {P}, 0.0f, {P}, 8, nullptr)": INVALID,
    f"assumed_launch(8, 64, 8, 1.0f, {P}, 9, {P}, 64, 0.0f, {P}, 64, nullptr)": INVALID,
    f"assumed_launch(8, 63, 8, 1.0f, {P}, 8, {P}, 64, 0.0f, {P}, 64, nullptr)": INVALID,
    f"batches_launch(8, 8, 8, 1.0f, {P}, 8, 63, {P}, 8, 64, 0.0f, {P}, 8, 64, 2, nullptr)": INVALID,
    f"folded_launch(8, 8, 1.0f, {P}, 15, {P}, 8, 0.0f, {P}, 8, nullptr)": INVALID,
    f"wide_launch(8, 8, 8, 1.0f, {P}, 7, {P}, 8, 0.0f, {P}, 8, nullptr)": INVALID,
    f"grouped_launch(8, 8, 8, 65537, nullptr, 1.0f, {P}, 8, {P}, 8, 64, 0.0f, {P}, 8, nullptr)": INVALID,
    # Nothing to do; and what is not read may be anything.
    "plain_launch(0, 8, 8, 1.0f, address(2), 0, nullptr, 0, 0.0f, nullptr, 0, nullptr)": "cudaSuccess",
}
#: Calls that reach CUDA, whatever it says then.
TAKEN = [
    f"plain_launch(8, 8, 8, 1.0f, {P}, 8, {P}, 8, 0.0f, {P}, 8, nullptr)",
    f"plain_launch(1, 8, 8, 1.0f, {P}, 0, {P}, 8, 0.0f, {P}, 0, nullptr)",
    f"plain_launch(8, 8, 8, 0.0f, {P}, 0, {P}, 0, 0.0f, {P}, 8, nullptr)",
    f"grouped_launch(8, 8, 8, 65536, nullptr, 1.0f, {P}, 8, {P}, 8, 64, 0.0f, {P}, 8, nullptr)",
    f"folded_launch(8, 8, 0.0f, {P}, 0, {P}, 0, 0.0f, {P}, 8, nullptr)",
    f"wide_launch(8, 8, 8, 1.0f, {P}, 1LL << 40, {P}, 8, 0.0f, {P}, 8, nullptr)",
]


def test_launchers_refuse_what_kernels_cannot_take(tmp_path: Path) -> None:
    """Every refusal, in one program that is run."""
    for name, (spec, preset) in LAUNCHED.items():
        schedule = replace(candidates.load(preset).schedule, name=name)
        (tmp_path / f"{name}.cu").write_text(driver.emit(spec, schedule, "cuda").text)
    lines = [*(f'#include "{name}.cu"' for name in LAUNCHED), "#include <cstdio>"]
    lines += ["static float *address(long long place) { return reinterpret_cast<float *>(place); }", "int main() {"]
    lines += [f'    printf("%s\\n", cudaGetErrorName({call}));' for call in (*CALLS, *TAKEN)]
    file, program = tmp_path / "main.cu", tmp_path / "main"
    file.write_text("\n".join([*lines, "}"]) + "\n")
    build = [tool("nvcc"), "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", str(file), "-o", str(program)]
    ran(build)
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip(CALLS, said, strict=False)) == CALLS
    assert len(said) == len(CALLS) + len(TAKEN)
    refused = {MISALIGNED, INVALID}
    assert not {call for call, error in zip(TAKEN, said[len(CALLS) :], strict=True) if error in refused}
