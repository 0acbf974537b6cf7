"""The process that measures numpy: M N K DTYPE SEED as arguments; a line in asks, a line of numbers out answers."""

from __future__ import annotations

import sys
import time

import numpy as np

from gemmgen.bench.host import accuracy, random_matrices
from gemmgen.bench.measure import launches
from gemmgen.bench.records import Size


def main() -> None:
    """Serve until standard input ends."""
    m, n, k, dtype, seed = sys.argv[1:]
    a, b = random_matrices(Size(int(m), int(n), int(k)), dtype, int(seed))
    c = np.full((a.shape[0], b.shape[1]), np.nan, dtype)

    def product(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            np.matmul(a, b, out=c)
        return (time.perf_counter() - begin) / count

    product(1)
    checked = accuracy(a, b, c)
    count = launches(product(1))
    for line in sys.stdin:
        if line.strip() == "check":
            answer = f"{checked.error!r} {checked.worst!r}"
        else:
            if line.strip() == "block":
                product(count)
            answer = repr(product(count))
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
