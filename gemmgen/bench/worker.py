"""The process that measures a library: PEER M N K BATCH DTYPE SEED [DEVICE].

A line in asks, a line of numbers out answers; what goes wrong is answered too, after the word `error`.
"""

from __future__ import annotations

import sys
import time

from gemmgen.bench.host import accuracy, random_matrices
from gemmgen.bench.libraries import product_of
from gemmgen.bench.measure import HOST_WARM_UP, launches
from gemmgen.bench.records import Size
from gemmgen.errors import UserError

#: Seconds until the next contender's turn: OpenMP's threads turn in circles for 0.2 s after their work.
REST = 0.25


def main() -> None:
    """Serve until standard input ends, or something goes wrong."""
    try:
        _serve(*sys.argv[1:])
    except UserError as error:
        _say("error " + "; ".join(error.problems))


def _serve(peer: str, m: str, n: str, k: str, batch: str, dtype: str, seed: str, device: str | None = None) -> None:
    a, b = random_matrices(Size(int(m), int(n), int(k), int(batch)), dtype, int(seed))
    product = product_of(peer, a, b, None if device is None else int(device))
    product.run(1)
    checked = accuracy(a, b, product.result())
    count = launches(product.run(1))
    for line in sys.stdin:
        if line.strip() == "check":
            _say(f"{checked.error!r} {checked.worst!r}")
            continue
        if line.strip() == "block":
            product.run(HOST_WARM_UP * count)
        seconds = product.run(count)
        time.sleep(REST)
        _say(repr(seconds))


def _say(answer: str) -> None:
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
