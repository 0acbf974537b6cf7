"""An epilogue by a formula: it becomes part of the kernel's text, and of the product's one pass over C."""

from __future__ import annotations

import numpy as np

import gemmgen
from gemmgen import presets

SWISH = "expr: acc / (1 + exp(-1.702 * acc))"


def main() -> None:
    """Computes it, and shows where it stands in the emitted file."""
    random = np.random.default_rng(0)
    x, w = random.standard_normal((300, 100), np.float32), random.standard_normal((100, 200), np.float32)
    bias = random.standard_normal(200, np.float32)

    y = gemmgen.gemm(x, w, epilogue=["bias", SWISH], bias=bias)
    sums = x.astype(np.float64) @ w + bias
    np.testing.assert_allclose(y, sums / (1 + np.exp(-1.702 * sums)), rtol=1e-3, atol=1e-4)

    spec = gemmgen.GemmSpec(epilogue=("bias", SWISH))
    source = gemmgen.emit(spec, presets.load("smem_8x8").schedule, "opencl")
    (line,) = (line.strip() for line in source.text.splitlines() if "exp(" in line and not line.startswith("//"))
    print(f"in the kernel: {line}")


if __name__ == "__main__":
    main()
