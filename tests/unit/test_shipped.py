"""`gemmgen.generated` where what runs its kernels is not installed: the text is there, a call says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.docs import ROOT

#: Has packages look as if they were not installed; SYCL's runtime is found by its distribution and its folder.
SCRIPT = """
import importlib, sys
from importlib import metadata
for package in {missing!r}:
    sys.modules[package] = None
import numpy as np
if {language!r} == "sycl":
    def files(name):
        raise metadata.PackageNotFoundError(name)
    metadata.files, sys.prefix = files, "/nowhere"
from gemmgen.errors import DeviceError, SpecError
module = importlib.import_module("gemmgen.generated.{language}")
kernel = getattr(module, {name!r})
print(kernel.source.text.splitlines()[0])
print(kernel)
assert not hasattr(kernel, "__wrapped__")
try:
    kernel(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
except (DeviceError, SpecError) as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("language", "name", "missing", "remedy"),
    [
        ("opencl", "L3_SIMD_32x2_1x8", ["pyopencl"], 'pip install "gemmgen[cpu]"'),
        ("cuda", "smem_8x8", ["cupy"], 'pip install "gemmgen[cuda]"'),
        ("sycl", "sg16_block_16x2", ["dpctl"], 'pip install "gemmgen[sycl]"'),
    ],
)
def test_the_source_needs_nothing_and_a_call_says_what_it_needs(
    language: str, name: str, missing: list[str], remedy: str
) -> None:
    script = SCRIPT.format(language=language, name=name, missing=missing)
    kept = {name: value for name, value in os.environ.items() if "LIBRARY_PATH" not in name}
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**kept, "PYTHONPATH": str(ROOT)}
    )
    assert result.returncode == 0, result.stderr
    head, shown, *said = result.stdout.splitlines()
    assert head.startswith(f"// {name}: C = alpha * A * B + beta * C")
    assert shown.startswith(f"<gemmgen kernel {name}")
    assert all(remedy in line for line in said) and said
