"""`gemmgen.gemm` of lists of matrices: one launch if kernels take arrays of addresses, or else one for each product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from gemmgen.api.extras import Extra
from gemmgen.api.gemm_problems import FLAGS, flag_problems, is_set
from gemmgen.api.kernels import Wanted, kernel_for
from gemmgen.api.libraries import Library, library_of
from gemmgen.api.matmul import Operand
from gemmgen.api.request import spec_of
from gemmgen.backends import BACKENDS
from gemmgen.backends import backend as find_backend
from gemmgen.epilogue import OPERANDS
from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import MATRIX_DTYPES, RESULTS
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.records import dataclass
from gemmgen.runtime.lists import MOST_TOLD, collisions, labelled
from gemmgen.spec import GemmSpec

if TYPE_CHECKING:
    from gemmgen.schedule import Schedule

#: Options that a kernel of a listed spec supports. With other options each product is a separate call.
_KNOWN = {
    *("alpha", "beta", "conjugate_a", "conjugate_b", "epilogue", "emulate", "allow_tf32"),
    *("schedule", "backend", "device", "out"),
}


def is_of_lists(a: object, b: object, c: object, options: Mapping[str, object]) -> bool:
    """Whether a call is one of lists (or tuples) of matrices. A list of NumPy arrays is one stack, as NumPy converts
    it, unless its rows matter.
    """
    given = {"a": a, "b": b, "c": c, "out": options.get("out")}
    lists = {name: value for name, value in given.items() if _is_list(value)}
    return bool(lists) and not (_are_stacks(lists) and not (any(lists.values()) and _of_rows(options)))


def _are_stacks(lists: Mapping[str, object]) -> bool:
    return not lists.keys() & {"c", "out"} and all(_is_numpys(value) for value in lists.values())


def _of_rows(options: Mapping[str, object]) -> bool:
    """Whether a formula depends on the rows of a single product, since stacks may be folded into one matrix."""
    texts = options.get("prologue_a"), options.get("prologue_b")
    operands = {name: x for name, x in options.items() if name in OPERANDS and x is not None}
    try:
        extra = Extra.of(cast("str", options.get("epilogue")), cast("tuple[str, str]", texts), operands, (False, False))
        return bool(extra.of_rows)
    except SpecError:
        return False  # the call itself reports it


def _is_list(value: object) -> bool:
    """Whether `value` is a list of arrays. An empty list counts if the result is one."""
    return isinstance(value, list | tuple) and all(len(getattr(x, "shape", ())) == 2 for x in value)


def _is_numpys(value: object) -> bool:
    return all(isinstance(x, np.ndarray) for x in cast("Sequence[object]", value))


def of_lists(one: Callable[..., object], given: Mapping[str, object], options: Mapping[str, object]) -> object:
    """The results: the list that was passed for them, or a new one; for lists of NumPy arrays alone a stack.

    Args:
        one: `gemm`, for a product.
        given: a, b, c and out.
        options: the other arguments, with out.

    Raises: SpecError.
    """
    results = _listed(one, given, options)
    stacks = _are_stacks({name: value for name, value in given.items() if _is_list(value)})
    return np.stack(cast("Sequence[npt.NDArray[np.generic]]", results)) if stacks else results


def _listed(one: Callable[..., object], given: Mapping[str, object], options: Mapping[str, object]) -> Sequence[object]:
    count = _count(given, options)
    result = given["c"] if given["out"] is None else given["out"]
    listed = cast("Sequence[object] | None", result)
    problems = flag_problems({name: options.get(name, False) for name in FLAGS})
    flat = labelled({name: value for name, value in given.items() if value is not None})
    library = library_of(flat, cast("str | None", options.get("backend")))
    known = {name: library.operand(name, x, problems, name.startswith("out")) for name, x in flat.items()}
    named = [
        (name, library.view(x, x.dtype), name[0] == ("o" if given["out"] is not None else "c"))
        for name, x in known.items()
        if x is not None and (name[0] != "c" or given["out"] is None)
    ]
    if problems := problems + list(collisions(named))[:MOST_TOLD]:
        raise SpecError(problems)
    if count and (call := _Listed.of(library, known, given, options)) is not None:
        return call.run(options)
    several = {name for name, value in {**given, **options}.items() if _is_list(value)}
    results = []
    for index in range(count):
        every = {**options, **given}
        own = {name: cast("Sequence[object]", x)[index] if name in several else x for name, x in every.items()}
        results.append(one(**own))
    return results if listed is None else listed


def _count(given: Mapping[str, object], options: Mapping[str, object]) -> int:
    """The number of products. Raises: SpecError."""
    named = {name: value for name, value in {**given, **options}.items() if value is not None}
    arrays = {name: value for name, value in named.items() if name in given or name in OPERANDS}
    counts = {name: len(cast("Sequence[object]", value)) for name, value in arrays.items() if _is_list(value)}
    problems = [
        f"{name} is no list of matrices, but {next(iter(counts))} is: pass {name} as a list, too"
        for name in ("c", "out")
        if name in arrays and name not in counts
    ]
    problems += [
        f"{name} has shape {'x'.join(map(str, shape))}, beside lists: pass a list of matrices, or one for all"
        for name in "ab"
        if name not in counts and len(shape := getattr(arrays[name], "shape", ())) != 2
    ]
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{count} of {name}" for name, count in counts.items())
        problems.append(f"the lists have {said}: pass as many of each; of a and b, one matrix may serve all")
    if problems:
        raise SpecError(problems)
    return next(iter(counts.values()))


@dataclass(frozen=True, slots=True)
class _Listed:
    """One launch for all products, with the matrices in place."""

    spec: GemmSpec
    backend: str
    device: object
    size: tuple[int, int, int]
    aligned: bool
    matrices: tuple[object, object, Sequence[object]]

    @classmethod
    def of(
        cls,
        library: Library,
        known: Mapping[str, Operand | None],
        given: Mapping[str, object],
        options: Mapping[str, object],
    ) -> _Listed | None:
        """The call, or None if a call for each product is needed: to report problems, or to copy matrices."""
        targets = [x for x in (given["c"], given["out"]) if x is not None]
        beside = {name for name, x in options.items() if x is not None and x is not False} - _KNOWN - set(OPERANDS)
        if len(targets) != 1 or beside or any(_is_list(options.get(name)) for name in OPERANDS):
            return None
        backend = cast("str", options.get("backend")) or library.backends[0]
        a, b, c = ([x for name, x in known.items() if name[0] in letters] for letters in ("a", "b", "co"))
        takes_lists = backend in BACKENDS and "address_lists" not in find_backend(backend).lacks
        if not takes_lists or not all(_alike(each) for each in (a, b, c)):
            return None
        first_a, first_b, first_c = (cast(Operand, each[0]) for each in (a, b, c))
        spec = _spec(first_a, first_b, first_c, options)
        fits = spec is not None and all(library.is_aligned(cast(Operand, x)) for x in known.values())
        if not fits or spec is None:
            return None
        size = first_a.shape[0], first_b.shape[1], first_a.shape[1]
        aligned = all(library.fits_vectors(cast(Operand, x)) for x in known.values())
        own = library.device(first_a)
        place = options.get("device") if own is None else own
        lists = given["a"], given["b"], cast("Sequence[object]", targets[0])
        return cls(spec, backend, place, size, aligned, lists)

    def run(self, options: Mapping[str, object]) -> Sequence[object]:
        """The list of results."""
        schedule = cast("Schedule | str | None", options.get("schedule"))
        count, any_address = len(self.matrices[2]), not self.aligned
        kernel = kernel_for(
            Wanted(self.backend, self.device, self.spec, schedule, self.size, count, any_address=any_address)
        )
        operands = {name: value for name, value in options.items() if name in OPERANDS}
        alpha, beta = cast("complex", options.get("alpha", 1)), cast("complex", options.get("beta", 0))
        kernel(*self.matrices, alpha=alpha, beta=beta, **operands)
        return self.matrices[2]


def _alike(each: Sequence[Operand | None]) -> bool:
    """Whether one kernel takes all matrices: they have one shape, one type and one leading dimension."""
    first = each[0]
    return first is not None and all(
        x is not None and (x.shape, x.strides, x.dtype) == (first.shape, first.strides, first.dtype) for x in each
    )


def _spec(a: Operand, b: Operand, c: Operand, options: Mapping[str, object]) -> GemmSpec | None:
    """The spec of a kernel that takes the matrices in place, or None."""
    dtype = next((x for x in MATRIX_DTYPES.values() if numpy_dtype(x) == a.dtype == b.dtype), None)
    result = next((x for x in RESULTS[dtype] if numpy_dtype(x) == c.dtype), None) if dtype else None
    if dtype is None or result is None or a.order is None or b.order is None or c.order is None:
        return None
    then = options.get("epilogue") or ()
    epilogue = (then,) if isinstance(then, str) else tuple(cast("Sequence[str]", then))
    conj = is_set(options.get("conjugate_a")), is_set(options.get("conjugate_b"))
    flags = {name: is_set(options.get(name)) for name in ("emulate", "allow_tf32")}
    orders = a.order, b.order, c.order
    return spec_of((dtype, result), orders, epilogue, conj, batched=True, listed=True, **flags)
