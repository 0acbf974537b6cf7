"""Compiles one kernel in a process of its own:
`python -m gemmgen.runtime.sycl_worker HELPER DEVICE NAME FORMAT < source`.

HELPER is the descriptor of the helper's code, which the process that starts this one has loaded. The run-time compiler
ends the process that it crashes in; that one shall not be the user's. Writes SYCLBIN to standard output and the
compiler's log to standard error; exit code 3 where the compiler refuses.
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
    code, device, name, kind = sys.argv[1:]
    # What the runtime prints by itself must not come between the bytes.
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        helper = started(FileIO(int(code)))
        content, log = helper.compile(int(device), sys.stdin.read(), name, kind == "object")
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
