"""Compile one kernel in a separate process:
`python -m gemmgen.runtime.sycl_worker HELPER DEVICE NAME FORMAT [OPTION...] < source`.

If the run-time compiler crashes, it ends its process, which must not be the user's. HELPER is the descriptor of the
helper's code, which the starting process has loaded. SYCLBIN goes to standard output, the compiler's log to standard
error. Exit code 3 if the compiler refuses the source.
"""

from __future__ import annotations

import os
import sys
from io import FileIO

from gemmgen.errors import DeviceError
from gemmgen.runtime.sycl_library import started

REFUSED, UNUSABLE = 3, 4


def main() -> int:
    """The exit code."""
    code, device, name, kind, *options = sys.argv[1:]
    # The runtime's own output must not mix with the bytes.
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        helper = started(FileIO(int(code)))
        content, log = helper.compile(int(device), sys.stdin.read(), name, kind == "object", options)
    except DeviceError as error:
        sys.stderr.write(str(error))
        return UNUSABLE
    sys.stderr.write(log)
    if content is None:
        return REFUSED
    with os.fdopen(out, "wb") as file:
        file.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
