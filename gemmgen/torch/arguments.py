"""Arguments of the operators as torch's dispatcher takes them, checked as `gemmgen.gemm` checks them."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
import torch

from gemmgen.api.extras import Extra
from gemmgen.api.gemm_problems import asked_type, factor_problems, flag_problems
from gemmgen.api.weights import Packed
from gemmgen.errors import DtypeError, SpecError, attempt

Taken = tuple[complex, complex, Sequence[str] | None, torch.dtype | None]
#: Whole numbers below it are some to the dispatcher.
MOST = 2**63
#: What else is a number to it, symbols among them, of which compilers make sizes.
_NUMBERS = (float, complex, torch.SymInt, torch.SymFloat)


def taken(
    factors: tuple[complex, complex],
    flags: Mapping[str, bool],
    epilogue: str | Sequence[str] | None,
    dtype: torch.dtype | None,
    has_c: bool,
) -> Taken:
    """alpha, beta, the functions and the result's type; what is none of them raises the same with and without gradient.

    Args:
        factors: alpha and beta: numbers, also NumPy's.
        dtype: a type of torch's, or what `gemmgen.gemm` takes for one.
        has_c: whether there is a c.

    Raises: SpecError, DtypeError with every problem.
    """
    alpha, beta = factors
    are_plain = _is_plain(alpha) and _is_plain(beta) and _are_bool(flags.values())
    functions = [epilogue] if isinstance(epilogue, str) else epilogue
    are_texts = functions is None or (type(functions) in (list, tuple) and set(map(type, functions)) <= {str})
    if are_texts and are_plain and (dtype is None or isinstance(dtype, torch.dtype)):
        return alpha, beta, functions, dtype
    known = {name: bool(flag) if isinstance(flag, torch.SymBool) else flag for name, flag in flags.items()}
    problems, of_types = flag_problems(known), list[str]()
    factor_problems((_known(alpha), _known(beta)), has_c, problems)
    extra = attempt(problems, Extra.of, functions, (None, None), {}, (False, False))
    result = dtype if dtype is None or isinstance(dtype, torch.dtype) else _type_of(dtype, of_types)
    if problems or of_types or extra is None:
        raise (DtypeError if of_types else SpecError)([*problems, *of_types])
    return _number(alpha), _number(beta), list(extra.epilogue) or None, result


def _is_plain(factor: object) -> bool:
    """Whether the dispatcher takes a factor as it is."""
    return -MOST <= factor < MOST if type(factor) is int else type(factor) in _NUMBERS


def _are_bool(flags: Iterable[object]) -> bool:
    return {*map(type, flags)} == {bool}


def _known(factor: complex) -> complex:
    """A factor to be checked: of a symbol any number."""
    return 1 if isinstance(factor, torch.SymInt | torch.SymFloat) else factor


def _number(value: object) -> complex:
    """A number that has been checked as one of Python's, or a symbol."""
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return cast("complex", value)
    if isinstance(value, numbers.Integral | np.bool_):
        whole = int(value)
        return whole if -MOST <= whole < MOST else float(whole)
    if isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
        return complex(value)
    return float(value)  # type: ignore[arg-type]


def _type_of(dtype: object, problems: list[str]) -> torch.dtype | None:
    """A type by a name that `gemmgen.gemm` knows; None with a problem added."""
    known = asked_type(dtype, problems)
    found: object = None if known is None else getattr(torch, known.name, None)
    if isinstance(found, torch.dtype):
        return found
    if known is not None:
        problems.append(f"dtype = {dtype!r} is no type of a tensor: pass one such as torch.float32")
    return None


def expect_tensors(arguments: Mapping[str, object], elsewhere: str = "gemmgen.gemm") -> None:
    """Raises: SpecError, with a problem for each argument by name that is no tensor.

    Args:
        elsewhere: the function that takes other arrays.
    """
    problems = [_remedy(name, x, elsewhere) for name, x in arguments.items() if not isinstance(x, torch.Tensor)]
    if problems:
        raise SpecError(problems)


def _remedy(name: str, x: object, elsewhere: str) -> str:
    if x is None:
        return f"{name} is None, not a tensor: pass one"
    if isinstance(x, Packed):
        return f"{name} is of type Packed, not a tensor: call {elsewhere} with it, under torch.no_grad()"
    return f"{name} is of type {type(x).__name__}, not a tensor: pass torch.as_tensor({name}), or call {elsewhere}"
