"""What a CUDA file asks for before anything runs: of the compiler an architecture, of a launcher's caller matrices that
the kernels can take, by the conditions of `Source`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from gemmgen.backends.clike import CLike
from gemmgen.backends.expressions import PRECEDENCE
from gemmgen.backends.lines import wrapped
from gemmgen.epilogue import OPERANDS
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.dtypes import I32, I64
from gemmgen.ir.expr import Var
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.sizes import GROUPS
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import walk_expr
from gemmgen.ir.workspace import REACHED, Workspace
from gemmgen.launch import span

#: What 64-bit places reach.
FAR = 2**63
#: Features that older architectures lack, by the instructions that they stand for.
INSTRUCTIONS = {
    "async_copy": "cp.async",
    "mma": "mma.sync",
    "fp8": "mma.sync of 8-bit floats",
    "tall_f64": "mma.sync of float64 with 16 rows",
    "mbarrier": "mbarrier.try_wait",
    "atomic_vectors": "red of vectors",
    "dependent_launch": "griddepcontrol",
    "tensor_maps": "tensor maps (TMA)",
    "wgmma": "instructions of warpgroups (wgmma, setmaxnreg)",
}


@dataclass(frozen=True, slots=True)
class Checks:
    """Statements of a launcher.

    Attributes:
        lines: they return an error where something can't be taken.
        functions: sections of the launcher's functions that they call.
    """

    lines: list[str]
    functions: frozenset[str]


def launch_checks(file: CLike, kernels: Sequence[Kernel], workspaces: Sequence[Workspace]) -> Checks:
    """The checks of a file's launcher.

    Args:
        file: prints all kernels as one.
        workspaces: the memory between the kernels.
    """
    odd = [f"!is_aligned({name}, {size})" for name, size in _addresses(file)]
    wrong = [*_promises(file), *_spans(file, min(map(span, kernels))), *_memory(file, workspaces)]
    text = " ".join(wrong)
    called = {"aligned": odd, "reach": "is_in_reach(" in text, "apart": "lie_apart(" in text}
    lines = [*_refused(odd, "cudaErrorMisalignedAddress"), *_refused(wrong, "cudaErrorInvalidValue")]
    return Checks(lines, frozenset(key for key, holds in called.items() if holds))


def _refused(problems: Sequence[str], error: str) -> list[str]:
    """The statement that returns an error where one of the problems is there."""
    if not problems:
        return []
    lines = wrapped("    if (", problems, between=" || ", closing=") {")
    return [*lines, f"        return {error};", "    }"]


def _addresses(file: CLike) -> Iterator[tuple[str, int]]:
    """Matrices, and what they begin on multiples of. What an epilogue takes is read element by element; of lists of
    addresses the host sees nothing.
    """
    for p in file.kernel.launcher_params:
        if isinstance(p, Buffer):
            size = 8 if p.addresses is not None else p.dtype.size
            alone = p.addresses is not None or p.name in OPERANDS
            if (bytes_ := max(size, 1 if alone else file.beginning(p.name))) > 1:
                yield p.name, bytes_


def _promises(file: CLike) -> Iterator[str]:
    """What the spec says of sizes, of leading dimensions and of how matrices of a batch lie apart."""
    names = [p.name for p in file.kernel.launcher_params if isinstance(p, Var) and p.dtype in (I32, I64)]
    if "k" in names:
        yield "k < 0"
    units = dict(zip("mnk", file.spec.multiple_of, strict=True))
    units |= {f"{what}{x}": file.spec.ld_multiple for what in ("ld", "stride_") for x in "abc"}
    yield from (f"{name} % {units[name]} != 0" for name in names if units.get(name, 1) > 1)


def _spans(file: CLike, most: int) -> Iterator[str]:
    """How far matrices reach; `most` is what they must span less than."""
    if most not in (REACHED, FAR):
        raise LoweringError(f"no launcher checks that matrices span less than {most} elements")
    read = file.reads_operands()
    for p in file.kernel.matrices:
        shape = p.shape[-2:]
        if p.packed or len(shape) < 2 or p.name == "workspace":
            continue
        (lines, length), pitch = map(file.expr, shape), file.expr(p.layout.strides[-2])
        there = f"{'lie_apart' if most >= FAR else 'is_in_reach'}({lines}, {length}, {pitch})"
        # Without K there are no elements, which the function sees for itself.
        alone = p.name in "ab" and read is not None and read != "k > 0"
        yield f"({read} && !{there})" if alone else f"!{there}"


def _memory(file: CLike, workspaces: Sequence[Workspace]) -> Iterator[str]:
    """How much memory between kernels is reached."""
    for x in workspaces:
        if x.reach < FAR and GROUPS not in walk_expr(x.elements):
            # From the left on, all factors are 64 bits wide.
            product = file.expr(x.elements, PRECEDENCE["*"])
            yield f"1LL * {product} >= 1LL << 31"


# --- architectures --------------------------------------------------------------------------------


def guard(name: str, features: frozenset[str], targets: Collection[str]) -> list[str]:
    """The lines that stop the compiler where an architecture lacks instructions of the file `name`, in words; none
    where all `targets` have what it needs.
    """
    known = sorted(targets, key=_number)
    least = next(target for target in known if features <= TARGETS[target].features)
    if least == known[0]:
        return []
    below = frozenset[str]().union(*(TARGETS[target].features for target in known[: known.index(least)]))
    words = " and ".join(word for feature, word in INSTRUCTIONS.items() if feature in features - below)
    number, specific = _number(least)
    lacks = f"!defined(__CUDA_ARCH_FEAT_SM{number}_ALL)" if specific else f"__CUDA_ARCH__ < {number}0"
    since = "alone" if specific else "or later"
    return [
        f"#if defined(__CUDA_ARCH__) && {lacks}",
        f'#error "{name} needs {least} {since}, for {words}"',
        "#endif",
        "",
    ]


def _number(arch: str) -> tuple[int, bool]:
    """Of an architecture such as sm_90a, and whether it has what no later one need have."""
    return int(arch.removeprefix("sm_").rstrip("a")), arch.endswith("a")
