"""The meaning of a program: its kernels launched one after the other on one stream."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

import numpy as np

from gemmgen.ir.arguments import Argument
from gemmgen.ir.interp import run
from gemmgen.ir.kernel import Kernel, Program, awaits_others
from gemmgen.ir.lanes import Floats
from gemmgen.ir.launches import Stream
from gemmgen.ir.numeric import numpy_dtype


def run_program(
    program: Program,
    arguments: Mapping[str, Argument],
    resident: int = 2,
    early: Collection[str] | None = None,
) -> None:
    """Run the kernels of a program.

    Args:
        arguments: by parameter name, those of all kernels and the workspaces; the rest as `interp.run` takes them.
        resident: how many groups there are at most of a persistent kernel.
        early: the names of the kernels that are launched before those in front of them are complete; None for those
            that wait, which is what launchers do.

    Raises: KernelFault, LoweringError, ValueError as `interp.run` does.
    """
    if early is None:
        early = [kernel.name for kernel in program.kernels if awaits_others(kernel)]
    stream = Stream() if early else None
    for kernel in program.kernels:
        run(kernel, _own(kernel, program, arguments), resident, stream=stream, early=kernel.name in early)


def _own(kernel: Kernel, program: Program, arguments: Mapping[str, Argument]) -> dict[str, Argument]:
    """A kernel's arguments. What one kernel writes element by element another may read in words."""
    workspaces = {workspace.name for workspace in program.workspaces}
    own = {p.name: arguments[p.name] for p in kernel.launch_params}
    for p in kernel.matrices:
        if p.name in workspaces:
            own[p.name] = cast(Floats, np.asarray(own[p.name]).view(numpy_dtype(p.dtype)))
    return own
