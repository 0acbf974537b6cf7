"""A program that calls an exported BLAS: `python -m tests.support.blas_calls TASK LIBRARY`.

It stands in for a user's own: ctypes knows neither gemmgen nor OpenCL.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[Any]

TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
#: Types whose sums are checked in.
WIDER = {"s": np.longdouble, "d": np.longdouble, "c": np.clongdouble, "z": np.clongdouble}
EPSILON = {"s": 2.0**-23, "d": 2.0**-52, "c": 2.0**-22, "z": 2.0**-51}
NUMBERS = {"N": 111, "T": 112, "C": 113}
ROW, COLUMN = 101, 102
#: What lies between C's lines, and must stay there.
PADDING = -777.0
#: Linux' MAP_NORESERVE, which the module mmap does not name: memory of which little will be used.
NO_RESERVE = 0x4000


class Call(NamedTuple):
    """One call; matrices lie as `layout` says, `extra` elements apart beyond what they need."""

    letter: str
    layout: int = ROW
    ops: str = "NN"
    sizes: tuple[int, int, int] = (7, 5, 6)
    extra: tuple[int, int, int] = (0, 0, 0)
    alpha: complex = 1.5
    beta: complex = 0.0
    fortran: bool = False


def stored(matrix: Matrix, layout: int, extra: int, padding: float = PADDING) -> tuple[Matrix, int]:
    """The matrix as it lies in memory, and its leading dimension."""
    lines = matrix if layout == ROW else matrix.T
    held = np.full((lines.shape[0], lines.shape[1] + extra), padding, matrix.dtype)
    held[:, : lines.shape[1]] = lines
    return np.ascontiguousarray(held), max(1, held.shape[1])


def stored_op(matrix: Matrix, op: str) -> Matrix:
    """What op() makes the matrix of."""
    return matrix if op == "N" else matrix.T if op == "T" else matrix.conj().T


def random(rng: np.random.Generator, shape: tuple[int, int], dtype: type) -> Matrix:
    values: Matrix = rng.standard_normal(shape).astype(dtype)
    return values + dtype(1j) * rng.standard_normal(shape).astype(dtype) if np.iscomplexobj(values) else values


def invoke(library: ctypes.CDLL, call: Call, a: Matrix, lda: int, b: Matrix, ldb: int, c: Matrix, ldc: int) -> None:
    """By the Fortran symbol, strings' lengths behind the other arguments, or by that of the CBLAS."""
    integers = [ctypes.c_int(x) for x in (*call.sizes, lda, ldb, ldc)]
    held = np.array([call.alpha, call.beta]).astype(TYPES[call.letter])
    scalars = [ctypes.c_void_p(held[i:].ctypes.data) for i in (0, 1)]
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)]
    if call.fortran:
        m, n, k, la, lb, lc = map(ctypes.byref, integers)
        ops = [ctypes.c_char_p(x.encode()) for x in call.ops]
        lengths = [ctypes.c_size_t(1)] * 2
        getattr(library, f"{call.letter}gemm_")(
            *ops, m, n, k, scalars[0], pointers[0], la, pointers[1], lb, scalars[1], pointers[2], lc, *lengths
        )
        return
    values: list[Any] = list(scalars)
    if call.letter in "sd":
        real = {"s": ctypes.c_float, "d": ctypes.c_double}[call.letter]
        values = [real(x.real) for x in held]
    alpha, beta = values
    m_, n_, k_, la_, lb_, lc_ = integers
    ops_ = [ctypes.c_int(NUMBERS[x]) for x in call.ops.upper()]
    getattr(library, f"cblas_{call.letter}gemm")(
        ctypes.c_int(call.layout), *ops_, m_, n_, k_, alpha, pointers[0], la_, pointers[1], lb_, beta, pointers[2], lc_
    )


def check(library: ctypes.CDLL, call: Call, rng: np.random.Generator) -> None:
    """C beside float64 (longer for float64), within the bound on rounding; and what lies around it untouched."""
    dtype = TYPES[call.letter]
    m, n, k = call.sizes
    a, b, c = (random(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n)))
    if call.beta == 0:
        c[:] = np.nan  # must not be read
    if call.alpha == 0:
        a[:], b[:] = np.nan, np.nan
    op_a, op_b = (stored_op(x, op) for x, op in zip((a, b), call.ops.upper(), strict=True))
    layout = COLUMN if call.fortran else call.layout
    (held_a, lda), (held_b, ldb), (held_c, ldc) = (
        stored(x, layout, extra) for x, extra in zip((op_a, op_b, c), call.extra, strict=True)
    )
    invoke(library, call, held_a, lda, held_b, ldb, held_c, ldc)
    lines = held_c[:, : held_c.shape[1] - call.extra[2]]
    result = lines if layout == ROW else lines.T
    wide: list[Matrix] = [x.astype(WIDER[call.letter]) for x in (a, b, c)]
    if call.alpha == 0:
        wide[0][:], wide[1][:] = 0, 0
    if call.beta == 0:
        wide[2][:] = 0
    expected = call.alpha * (wide[0] @ wide[1]) + call.beta * wide[2]
    size = abs(call.alpha) * (abs(wide[0]) @ abs(wide[1])) + abs(call.beta * wide[2])
    bound = (k + 4) * EPSILON[call.letter] * size
    assert np.all(abs(result - expected) <= bound), (call, result, expected)
    assert np.all(held_c[:, held_c.shape[1] - call.extra[2] :] == PADDING), call


def combinations(letters: str) -> Iterator[Call]:
    """Every op, layout and way to call, sizes around the kernels' tiles, with and without room between lines."""
    sizes = ((1, 1, 1), (3, 40, 17), (33, 16, 35), (130, 131, 37), (5, 4, 0), (0, 4, 5), (4, 0, 5))
    scalars = ((1.5, 0.0), (1.0, 1.0), (-0.5, 2.0), (0.0, 0.0), (0.0, 0.5))
    of_complex = ((1.5j, 0.0), (1.0, 1.0), (-0.5 + 1j, 2 - 1j), (0.0, 0.0), (0.0, 0.5j))
    numbered = enumerate(product(letters, ("N", "T", "C"), ("N", "T", "C"), sizes))
    for i, (letter, op_a, op_b, size) in numbered:
        alpha, beta = (scalars if letter in "sd" else of_complex)[i % len(scalars)]
        extra = (i % 3, i % 2 * 4, i % 4)
        for layout in (ROW, COLUMN):
            yield Call(letter, layout, op_a + op_b, size, extra, alpha, beta)
        ops = (op_a + op_b).lower() if i % 2 else op_a + op_b
        yield Call(letter, COLUMN, ops, size, extra, alpha, beta, fortran=True)


def everything(library: ctypes.CDLL) -> None:
    """All combinations of real numbers."""
    rng = np.random.default_rng(6)
    for call in combinations("sd"):
        check(library, call, rng)


def complex_numbers(library: ctypes.CDLL) -> None:
    """All combinations of complex ones; also in memory that is aligned as C has them, and no more."""
    rng = np.random.default_rng(6)
    for call in combinations("c"):
        check(library, call, rng)
    room = np.zeros(3 * 32 + 2)
    first = 1 if room.ctypes.data % 16 == 0 else 0
    a, b, c = (room[first + i * 32 :][:32].view(np.complex128).reshape(4, 4) for i in range(3))
    assert c.ctypes.data % 16 == 8
    a[:], b[:] = random(rng, (4, 4), np.complex128), random(rng, (4, 4), np.complex128)
    invoke(library, Call("z", sizes=(4, 4, 4), alpha=1.0), a, 4, b, 4, c, 4)
    assert np.allclose(c, a @ b, rtol=1e-12, atol=1e-12)
    assert np.all(room[:first] == 0) and np.all(room[first + 96 :] == 0)


def few(library: ctypes.CDLL) -> None:
    """A product of each type and pair of ops."""
    rng = np.random.default_rng(7)
    for letter, ops, layout in product("sdc", ("NN", "NT", "TN", "TT"), (ROW, COLUMN)):
        check(library, Call(letter, layout, ops, (33, 20, 35), (1, 2, 3), 1.5, 0.5), rng)


def pair(library: ctypes.CDLL) -> None:
    """Two products that need a kernel each, with room between the lines of all matrices."""
    rng = np.random.default_rng(7)
    for ops in ("NN", "TT"):
        check(library, Call("s", ROW, ops, (33, 20, 35), (1, 2, 3), 1.5, 0.5), rng)
        check(library, Call("s", ROW, ops, (33, 20, 35), (1, 2, 3)), rng)


def real(library: ctypes.CDLL) -> None:
    """A product of each pair of ops, of one type."""
    rng = np.random.default_rng(7)
    for ops, layout in product(("NN", "NT", "TN", "TT"), (ROW, COLUMN)):
        check(library, Call("s", layout, ops, (33, 20, 35), (1, 2, 3), 1.5, 0.5), rng)


def threads(library: ctypes.CDLL) -> None:
    """Many products at once, each into columns of its own of one C, whose lines they share."""
    count, repeats, m, n, k = 8, 50, 33, 16, 40
    rng = np.random.default_rng(8)
    a, b = (rng.standard_normal(shape) for shape in ((m, k), (k, n * count)))
    c = np.full((m, n * count), np.nan)
    failures: list[str] = []

    def work(number: int) -> None:
        columns = slice(number * n, (number + 1) * n)
        expected = a @ b[:, columns]
        call = Call("d", sizes=(m, n, k), alpha=1.0)
        for _ in range(repeats):
            c[:, columns] = np.nan
            invoke(library, call, a, k, b[:, columns], n * count, c[:, columns], n * count)
            if not np.max(abs(c[:, columns] - expected)) < 1e-12:
                failures.append(f"thread {number}")

    in_threads(*(partial(work, number) for number in range(count)))
    assert not failures, failures


def child(library: ctypes.CDLL, call: Call, rng: np.random.Generator, times: int = 1) -> int:
    """The number of a process of its own that computes; its exit code says whether all was right."""
    number = os.fork()
    if number == 0:
        try:
            for _ in range(times):
                check(library, call, rng)
        except BaseException:  # noqa: BLE001  (the parent learns of it by the exit code)
            os._exit(1)
        os._exit(0)
    return number


def ended_well(number: int) -> bool:
    """Waits for a child."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == 0


def in_threads(*tasks: Callable[[], None]) -> None:
    """Tasks at once."""
    workers = [threading.Thread(target=task) for task in tasks]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def fork(library: ctypes.CDLL) -> None:
    """A child computes, too; so does the parent afterwards."""
    rng = np.random.default_rng(9)
    call = Call("s", sizes=(40, 41, 42))
    check(library, call, rng)
    silent = os.fork()
    if silent == 0:
        os._exit(0)  # a child that multiplies nothing has nothing to say
    os.waitpid(silent, 0)
    assert ended_well(child(library, call, rng, times=2))
    check(library, call, rng)


def wrong(library: ctypes.CDLL) -> None:
    """Wrong parameters: each call returns, and C stays as it is."""
    one = np.ones((4, 4), np.float32)
    c = np.full((4, 4), 3, np.float32)
    for call in (
        Call("s", 100, sizes=(2, 2, 2)),
        Call("s", sizes=(-1, 2, 2)),
        Call("s", sizes=(2, -1, 2)),
        Call("s", COLUMN, sizes=(2, 2, -1)),
        Call("s", ops="XN", sizes=(2, 2, 2), fortran=True),
        Call("s", ops="NX", sizes=(2, 2, 2), fortran=True),
    ):
        invoke(library, call, one, 4, one, 4, c, 4)
    for layout, lds in ((ROW, (1, 4, 4)), (ROW, (4, 1, 4)), (COLUMN, (4, 4, 1))):
        call = Call("s", layout, sizes=(2, 2, 2))
        invoke(library, call, one, lds[0], one, lds[1], c, lds[2])
    assert np.all(c == 3)


def raw(library: ctypes.CDLL, letter: str, layout: int, ops: tuple[int, int], values: Sequence[int | None]) -> None:
    """A call of the CBLAS with m, n, k, lda, ldb, ldc and the addresses of A, B and C as they are given."""
    m, n, k, lda, ldb, ldc = (ctypes.c_int(x or 0) for x in values[:6])
    a, b, c = (ctypes.c_void_p(x) for x in values[6:9])
    ints = [ctypes.c_int(x) for x in (layout, *ops)]
    held = np.array([1.0, 0.5]).astype(TYPES[letter])
    reals = {"s": ctypes.c_float, "d": ctypes.c_double}
    alpha, beta = (
        reals[letter](x.real) if letter in reals else ctypes.c_void_p(held[i:].ctypes.data) for i, x in enumerate(held)
    )
    getattr(library, f"cblas_{letter}gemm")(*ints, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)


def nonsense(library: ctypes.CDLL) -> None:
    """Each parameter wrong by itself, and many at once at random: each call returns, and C stays as it is."""
    rng = np.random.default_rng(10)
    least, most = -(2**31), 2**31 - 1
    for letter, layout in product(TYPES, (ROW, COLUMN)):
        one, c = np.ones((4, 4), TYPES[letter]), np.full((4, 4), 3, TYPES[letter])
        a, kept = one.ctypes.data, c.ctypes.data
        good: list[int | None] = [4, 4, 4, 4, 4, 4, a, a, kept]
        for at, bad in product(range(9), (least, -1, 3, 0, None)):
            if (at < 3 and bad not in (least, -1)) or (3 <= at < 6 and bad is None) or (at >= 6 and bad is not None):
                continue
            raw(library, letter, layout, (111, 111), [*good[:at], bad, *good[at + 1 :]])
        for enums in ((0, 111, 111), (layout, 0, 111), (layout, 111, most), (-1, -1, -1), (least, 111, 112)):
            raw(library, letter, enums[0], enums[1:], good)
        for _ in range(200):
            # Nothing that could pass: sizes below 0 among others, lines of 0, and no matrices.
            sizes = [int(x) for x in rng.choice([least, -1, 0, 1, 5, most], 6)]
            sizes[int(rng.integers(0, 3))] = int(rng.choice([least, -1]))
            raw(library, letter, int(rng.choice([ROW, COLUMN, 7])), (111, 112), [*sizes, None, None, None])
        # As much as an integer says, of a C that has nothing.
        for m, n in ((0, most), (most, 0), (0, 0)):
            raw(library, letter, layout, (111, 111), [m, n, most, most, most, most, None, None, None])
        assert np.all(c == 3), letter


def nulls(library: ctypes.CDLL) -> None:
    """Addresses of nothing where something would be read or written, by Fortran's symbols as well; one by one."""
    one, c = np.ones((4, 4)), np.full((4, 4), 3.0)
    for at in range(6, 9):
        good: list[int | None] = [4, 4, 4, 4, 4, 4, one.ctypes.data, one.ctypes.data, c.ctypes.data]
        raw(library, "d", ROW, (111, 111), [*good[:at], None, *good[at + 1 :]])
    n, scale = ctypes.byref(ctypes.c_int(4)), ctypes.byref(ctypes.c_double(1))
    a, b, to = (ctypes.c_void_p(x.ctypes.data) for x in (one, one, c))
    given: list[Any] = [ctypes.c_char_p(b"N"), ctypes.c_char_p(b"N"), n, n, n, scale, a, n, b, n, scale, to, n]
    for at in range(len(given)):
        library.dgemm_(*given[:at], None, *given[at + 1 :])
    assert np.all(c == 3)
    zeros = [ctypes.c_void_p(None)] * 2
    library.dgemm_(*given[:5], ctypes.byref(ctypes.c_double(0)), zeros[0], n, zeros[1], n, scale, to, n)
    assert np.all(c == 3), "with alpha 0 neither A nor B is read, so that they may be anywhere"


def far_lines(library: ctypes.CDLL) -> None:
    """Lines further apart than 32-bit places reach, in memory of which little is there."""
    far, k = 2**29 + 5, 3
    with mmap.mmap(-1, 4 * (2 * far + k), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE) as memory:
        a = np.frombuffer(memory, np.float32)[: 2 * far + k]
        for line in range(3):
            a[line * far :][:k] = line + 1
        b, c = np.ones((k, 2), np.float32), np.full((3, 2), np.nan, np.float32)
        invoke(library, Call("s", sizes=(3, 2, k), alpha=1.0), a, far, b, 2, c, 2)
        assert np.array_equal(c, [[3, 3], [6, 6], [9, 9]]), c
        del a


def nonsense_in_threads(library: ctypes.CDLL) -> None:
    """Wrong calls and right ones at once."""
    in_threads(*(partial(task, library) for task in (nulls, threads, nulls, threads)))


def fork_first(library: ctypes.CDLL) -> None:
    """Loaded, but not called yet: both sides of a fork have a device of their own."""
    rng, call = np.random.default_rng(11), Call("s", sizes=(40, 41, 42))
    number = child(library, call, rng)
    check(library, call, rng)
    assert ended_well(number)


def fork_amid_threads(library: ctypes.CDLL) -> None:
    """While others multiply: children compute, and the others go on."""
    rng, call = np.random.default_rng(12), Call("d", sizes=(16, 16, 16))
    worker = threading.Thread(target=threads, args=(library,))
    worker.start()
    for _ in range(5):
        assert ended_well(child(library, call, rng))
    worker.join()


TASKS = {
    task.__name__: task
    for task in (
        *(everything, complex_numbers, few, pair, real, threads, fork, wrong),
        *(nonsense, nulls, far_lines, nonsense_in_threads, fork_first, fork_amid_threads),
    )
}

if __name__ == "__main__":
    TASKS[sys.argv[1]](ctypes.CDLL(sys.argv[2]))
    print("done")  # noqa: T201  (a program's own output)
