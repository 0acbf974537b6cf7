"""Products of NumPy's arrays: plain, in place, batched, transposed, and with a fused epilogue."""

from __future__ import annotations

import numpy as np

import gemmgen


def main() -> None:
    """Compares each with NumPy."""
    random = np.random.default_rng(0)
    x, w = random.random((500, 300), np.float32), random.random((300, 200), np.float32)
    bias = random.random(200, np.float32)

    y = gemmgen.gemm(x, w)
    np.testing.assert_allclose(y, x @ w, rtol=1e-4)

    kept = y.copy()
    gemmgen.gemm(x, w, y, alpha=2, beta=1)  # y = 2 x w + y, in place
    np.testing.assert_allclose(y, 2 * (x @ w) + kept, rtol=1e-4)

    stack = random.random((4, 30, 300), np.float32)
    np.testing.assert_allclose(gemmgen.gemm(stack, w), stack @ w, rtol=1e-4)
    np.testing.assert_allclose(gemmgen.gemm(w, x, transpose_a=True, transpose_b=True), w.T @ x.T, rtol=1e-4)

    fused = gemmgen.gemm(x, w, alpha=-0.01, epilogue=["bias", "relu"], bias=bias)
    np.testing.assert_allclose(fused, np.maximum(-0.01 * (x @ w) + bias, 0), rtol=1e-3, atol=1e-4)
    print("right")


if __name__ == "__main__":
    main()
