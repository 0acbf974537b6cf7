"""Batches by arrays of addresses: check arguments that are sequences of matrices, for listed specs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TypeGuard, cast

import numpy as np

from gemmgen.errors import SpecError
from gemmgen.runtime import arrays
from gemmgen.runtime.arrays import check_operands, operand_view
from gemmgen.runtime.views import (
    LIMIT,
    ArrayLike,
    DeviceMatrix,
    Numbers,
    View,
    is_array,
    is_device_array,
    new_array,
    outline,
    overlap,
    shape,
)
from gemmgen.spec import GemmSpec

#: The most problems of single matrices that are reported.
MOST_TOLD = 4


def is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    """Whether `value` is a sequence of matrices."""
    return isinstance(value, list | tuple)


def is_nothing(spec: GemmSpec, *matrices: object) -> bool:
    """Whether a call has an empty batch, so that there is nothing to check."""
    sequences = [x for x in matrices if is_sequence(x)]
    return spec.listed and is_sequence(matrices[-1]) and not any(map(len, sequences))


def labelled(values: Mapping[str, object]) -> dict[str, object]:
    """Each matrix by its name; those of a sequence are named `a[0]` and so on."""
    out: dict[str, object] = {}
    for name, value in values.items():
        out |= {f"{name}[{i}]": x for i, x in enumerate(value)} if is_sequence(value) else {name: value}
    return out


def regrouped(values: Mapping[str, object], known: Mapping[str, object]) -> dict[str, object]:
    """The inverse of `labelled`: the values, from matrices by those names."""
    return {
        name: [known[f"{name}[{i}]"] for i in range(len(value))] if is_sequence(value) else known[name]
        for name, value in values.items()
    }


def check_listed(
    spec: GemmSpec,
    values: Mapping[str, object],
    factors: tuple[object, object],
    problems: list[str],
    span: int = LIMIT,
) -> arrays.Request:
    """Check the arguments of products with lists of matrices. It differs from `arrays.check_gemm` in these arrays:

    Args:
        values: a and b: sequences of matrices, stacks of them, or one matrix for all products; c: a sequence or a
            stack, None for a new stack.

    Raises: SpecError with every problem.
    """
    c, operands = values["c"], arrays.operands_of(values)
    given = {name: values[name] for name in "abc" if name != "c" or c is not None}
    problems += _missing(given)
    scalars = arrays.check_factors(spec, factors, c, problems)
    lists = {name: _each(name, value, problems) for name, value in given.items()}
    count = _count(lists, problems)
    if not all(lists.values()):
        raise SpecError(problems)
    one = replace(spec, batched=False, listed=False)
    first = lists["a"][0], lists["b"][0], lists["c"][0] if "c" in lists else None
    arrays.check_shapes(one, *first, problems)
    views = arrays.views_of(one, *first, problems)
    stacks = [np.broadcast_to(np.zeros(()), (count, *x.shape)) for x in first[:2]]
    others = check_operands(spec, operands, problems, partial(operand_view, spec, stacks[0], stacks[1], problems))
    problems += _list_problems(lists, [array for array, _ in others.values()])
    views = arrays.with_ld_units(spec, views, problems, is_device_array(lists["a"][0]))
    if problems:
        raise SpecError(problems)
    request = arrays.request_of(one, first, views, others, scalars, span)
    name, output, view = request.output
    view = view if output is not None else arrays.new_c(spec, lists["a"][0], view.rows, view.cols, count)
    wide = {name: each * (count if len(each) == 1 else 1) for name, each in lists.items()}
    sizes = {**request.sizes, "batch_count": count}
    return replace(request, output=(name, output, view), sizes=sizes, lists=wide, given=c)


def _missing(given: Mapping[str, object]) -> list[str]:
    """Problems: values in the lists that are no matrices."""
    lists = {name: value for name, value in given.items() if isinstance(value, list | tuple)}
    return [
        f"{name}[{i}] is None: pass a matrix" for name, value in lists.items() for i, x in enumerate(value) if x is None
    ]


def each_matrix(request: arrays.Request, name: str) -> list[ArrayLike | int]:
    """The matrix of each product; for a stack that a runtime laid out, its offset from the first element in bytes."""
    if name in request.lists:
        return list(request.lists[name])
    view = request.output[2] if name == "c" else request.inputs[name][1]
    return [begin * view.item for begin, _ in view.laid_out().each()]


@contextmanager
def stacked(request: arrays.Request) -> Iterator[arrays.Request]:
    """Context with a request whose NumPy arrays are stacks. At the end results are copied to the caller's arrays."""
    count = request.sizes["batch_count"]
    inputs = dict(request.inputs)
    for name in set(request.lists) - {"c"}:
        view = replace(request.inputs[name][1], count=count).laid_out()
        inputs[name] = _filled(view, request.lists[name]), view
    name, output, view = request.output
    if output is not None:
        view = replace(view, count=count).laid_out()
        output = _filled(view, request.lists[name] if request.loads_output else ())
    yield replace(request, inputs=inputs, output=(name, output, view), lists={}, given=None)
    if output is not None:
        for matrix, result in zip(request.lists[name], cast(Sequence[Numbers], output), strict=True):
            cast(Numbers, matrix)[...] = result


def _filled(view: View, matrices: Sequence[ArrayLike]) -> Numbers:
    """A new stack; empty if the matrices must not be read."""
    stack = new_array(view)
    if view.span:
        for one, matrix in zip(stack, matrices, strict=False):
            one[...] = cast(Numbers, matrix)
    return stack


def _each(name: str, value: object, problems: list[str]) -> tuple[ArrayLike, ...]:
    """The single matrices; empty if that is impossible. The problem is then added here, or with the kinds of arrays."""
    if is_sequence(value):
        if not value:
            problems.append(f"{name} is an empty {type(value).__name__}: pass a matrix for each product")
        return tuple(x for x in value if is_array(x)) if all(map(is_array, value)) else ()
    if not is_array(value):
        return ()
    if len(value.shape) == 3:
        return tuple(_slices(value))
    if len(value.shape) != 2 or name == "c":
        problems.append(
            f"{name} has shape {shape(value)}: pass a list of matrices, or a stack of them"
            f"{'' if name == 'c' else ', or one for all'}"
        )
        return ()
    return (value,)


def _slices(stack: ArrayLike) -> Iterator[ArrayLike]:
    if isinstance(stack, np.ndarray):
        yield from stack
        return
    matrix = cast(DeviceMatrix, stack)
    for index in range(matrix.shape[0]):
        pointer = matrix.pointer + index * matrix.strides[0]
        yield replace(matrix, shape=matrix.shape[1:], strides=matrix.strides[1:], pointer=pointer)


def _count(lists: Mapping[str, tuple[ArrayLike, ...]], problems: list[str]) -> int:
    """The number of products. One matrix of A or B may serve all."""
    counts = {name: len(each) for name, each in lists.items() if each}
    inputs = {count for name, count in counts.items() if name != "c" and count != 1}
    count = counts.get("c") or next(iter(inputs), 1)
    if inputs - {count}:
        said = ", ".join(f"{many} of {name}" for name, many in counts.items())
        problems.append(f"the batch has {said}: pass as many of each; of a and b, one may serve all")
    return count


def _unlike(name: str, each: tuple[ArrayLike, ...]) -> Iterator[str]:
    """Problems: matrices that differ from the first in a property that one kernel call has only once."""
    first = each[0]
    for index, x in enumerate(each):
        for what, own, wanted in (("shape", x.shape, first.shape), ("dtype", x.dtype, first.dtype)):
            if own != wanted:
                yield f"{name}[{index}] has {what} {own}, but {name}[0] {wanted}: make calls of like matrices"
        if x.shape == first.shape and 0 not in x.shape and x.strides != first.strides:
            yield (
                f"{name}[{index}] has strides {x.strides} bytes, but {name}[0] {first.strides}, and a kernel has one "
                "leading dimension for all: pass copies of one layout"
            )
        if isinstance(x, np.ndarray) and not x.flags.aligned:
            yield f"{name}[{index}] does not begin on a multiple of {x.dtype.alignment} bytes: pass a copy of it"


def _list_problems(lists: Mapping[str, tuple[ArrayLike, ...]], others: Iterable[ArrayLike]) -> list[str]:
    """Problems: different sizes or leading dimensions, which one kernel call has only once; read-only results; results
    that share elements with each other or with other arrays.
    """
    unlike = [problem for name, each in lists.items() for problem in _unlike(name, each)][:MOST_TOLD]
    outputs = lists.get("c", ())
    readonly = [
        f"c[{i}] is read-only: pass writable arrays, or leave c out to have it allocated"
        for i, x in enumerate(outputs)
        if (isinstance(x, np.ndarray) and not x.flags.writeable) or (isinstance(x, DeviceMatrix) and x.readonly)
    ]
    named = [(f"c[{i}]", x, True) for i, x in enumerate(outputs)]
    named += [(f"{name}[{i}]", x, False) for name in "ab" for i, x in enumerate(lists[name])]
    named += [("the epilogue's array", x, False) for x in others]
    return unlike + readonly + list(collisions(named))[:MOST_TOLD]


def collisions(named: Sequence[tuple[str, ArrayLike, bool]]) -> Iterator[str]:
    """Results that share elements with another array. Elements are compared only if the bounds overlap."""
    placed = sorted(
        (memory, *np.lib.array_utils.byte_bounds(place), index)
        for index, (_, array, _) in enumerate(named)
        if 0 not in array.shape
        for memory, place in (outline(array),)
    )
    for _, group in groupby(placed, key=lambda item: item[0]):
        open_: list[tuple[int, int]] = []  # ends and numbers of those that may reach further
        for _, begin, end, index in group:
            open_ = [(other_end, other) for other_end, other in open_ if other_end > begin]
            for _, other in open_:
                (x, array_x, writes_x), (y, array_y, writes_y) = named[other], named[index]
                if (writes_x or writes_y) and overlap(array_x, array_y):
                    written, read = (x, y) if writes_x else (y, x)
                    yield f"{written} overlaps {read} in memory: pass others, or copies"
            open_.append((end, index))
