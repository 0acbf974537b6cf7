"""A call's arguments, checked as a kernel checks them, from arrays one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gemmgen.runtime import arrays, lists
from gemmgen.spec import GemmSpec

#: What looks at the kinds of arrays.
Kinds = Callable[[Mapping[str, object]], list[str]]


def check_gemm(
    spec: GemmSpec,
    a: object,
    b: object,
    c: object = None,
    alpha: object = None,
    beta: object = None,
    kinds: Kinds = arrays.check_kinds,
    operands: Mapping[str, object] = MappingProxyType({}),
) -> arrays.Request:
    given = {"a": a, "b": b, "c": c, **operands}
    return arrays.check_gemm(spec, given, (alpha, beta), kinds(given))


def check_listed(
    spec: GemmSpec, a: object, b: object, c: object = None, kinds: Kinds = arrays.check_kinds
) -> arrays.Request:
    given = {"a": a, "b": b, "c": c}
    return lists.check_listed(spec, given, (None, None), kinds(lists.labelled(given)))
