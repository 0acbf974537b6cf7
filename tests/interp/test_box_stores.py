"""C of warpgroups stored by TMA: any size and width, functions on elements; and one thing wrong each, which shows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import FaultKind
from gemmgen.ir.dtypes import BF16, F16, F32, I8, DType
from gemmgen.ir.expr import Load
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.operands import STMATRIX, STMATRIX_TRANS
from gemmgen.ir.stmt import Comment, For, If, Stmt, TmaCopy, VectorCopy
from gemmgen.ir.synchronization import Barrier, StoreGroup
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import exprs, walk, walk_expr
from gemmgen.methods import defaults
from gemmgen.positions import K0
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.broken import Rewrite, broken, changed, dropped, faults
from tests.support.problems import Matrix, Problem, check_products, interpret

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, ld_multiple=8)
#: Whose boxes are all stored as such.
WHOLE = replace(SPEC, multiple_of=(1, 8, 1))
#: By columns, which are transposed as they are put down.
COLUMNS = replace(SPEC, c_order="col")
ORDERS = pytest.mark.parametrize("order", ["row", "col"])


def small(**changes: object) -> Schedule:
    """64x128 of C a block, by one warpgroup: a warp stores two boxes by one slot."""
    base = defaults("wgmma", (2, 32), (32, 4)).but(
        stages=2, threadblock_swizzle=0, producer_threads=32, setmaxnreg=(0, 0), c_width=1, epilogue_stages=1
    )
    return base.but(**changes)


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator, *sizes: tuple[int, int, int]) -> None:
    program = driver.lower_program(spec, schedule, SM_90A)
    for m, n, k in sizes:
        for alpha, beta in ((-2.0, 3.0), (1.0, 0.0)):
            problem = Problem.random(rng, m, n, k, alpha, beta, spec)
            problem.check(interpret(program, spec, problem, 8))


@ORDERS
@pytest.mark.parametrize(("dtype", "cols"), [(BF16, 32), (BF16, 22), (F32, 20)], ids=str)
def test_any_size(dtype: DType, cols: int, order: Order, rng: np.random.Generator) -> None:
    """TMA tiles that C cuts, along one axis and both, and tiles outside C; nothing past C is touched. Of
    bfloat16 a warp puts down the last eight of a block's 88 columns by two matrices; of float32 the last box of a
    block's 80 columns has half a line, or half as many columns.
    """
    spec = replace(SPEC, c_dtype=dtype, c_order=order)
    check(spec, small(tile=(2, cols)), rng, (1, 1, 1), (63, 129, 70), (80, 65, 64))


@pytest.mark.parametrize(
    ("dtype", "changes", "vectors"),
    [
        (BF16, {"tile": (2, 64)}, [8]),
        (BF16, {"tile": (4, 32), "group": (32, 8)}, [8]),
        (BF16, {"tile": (2, 22)}, [8, 4]),
        (BF16, {"tile": (2, 6)}, [8, 4]),
        (BF16, {"tile": (2, 2)}, [4]),
        (F32, {"tile": (2, 22)}, [8]),
    ],
    ids=str,
)
def test_an_old_c_is_read_by_whole_sectors(
    dtype: DType, changes: dict[str, object], vectors: list[int], rng: np.random.Generator
) -> None:
    """Lanes read four neighbours of two bytes, and exchange two; the last eight columns, and all of four bytes, by
    pairs: inside of C, where it ends among them, and outside. All are read before one is used.
    """
    spec = replace(SPEC, c_dtype=dtype)
    check(spec, small(**changes), rng, (63, 251, 64), (64, 256, 32), (65, 70, 40))
    kernel = driver.lower(spec, small(**changes), SM_90A)
    reads = [s for s in walk(kernel.body) if isinstance(s, VectorCopy) and s.src.name == "c"]
    assert [read.width * read.src.dtype.size for read in reads] == vectors


@ORDERS
@pytest.mark.parametrize(
    "changes",
    [
        {"tile": (4, 16)},
        {"group": (64, 4), "epilogue_stages": 2},
        {"tile": (2, 64), "epilogue_stages": 3},
        {"epilogue_stages": 4},
        {"tile": (4, 20), "epilogue_stages": 3},
        {"tile": (2, 12)},
        {"tile": (2, 16), "group": (32, 8), "epilogue_stages": 2},
        {
            "tile": (4, 4),
            "group": (64, 8),
            "producer_threads": 128,
            "setmaxnreg": (96, 24),
            "persistent": True,
            "ordered_epilogue": True,
        },
    ],
    ids=[
        "two turns",
        "two warpgroups",
        "slots that go around",
        "a slot for each",
        "parts of boxes",
        "no whole box",
        "beside one another",
        "two by two",
    ],
)
def test_slots_and_turns(changes: dict[str, object], order: Order, rng: np.random.Generator) -> None:
    check(replace(SPEC, dtype=F16, c_order=order), small(**changes), rng, (70, 200, 64))


def test_a_lanes_rows_that_lie_side_by_side(rng: np.random.Generator) -> None:
    """As those of an A in bytes do that is transposed on its way to registers: one by one, in either order."""
    held = small(tile=(2, 16))
    held = held.but(atom="wgmma_s8", block_k=128, a=replace(held.a, memory="private"))
    for order in ("row", "col"):
        spec = GemmSpec(dtype=I8, ld_multiple=16, a_order="col", b_order="col", c_order=order)
        check_products(driver.lower(spec, held, SM_90A), spec, rng, (70, 68, 130), pad=8)


@ORDERS
@pytest.mark.parametrize("order_of_b", ["row", "col"])
def test_operands_swapped(order_of_b: Order, order: Order, rng: np.random.Generator) -> None:
    """The sums of C^T: of a row-major C, which is that by columns, they are transposed."""
    spec = replace(SPEC, b_order=order_of_b, c_order=order)
    base = defaults("wgmma", (4, 4), (4, 32)).but(
        stages=2, producer_threads=32, setmaxnreg=(0, 0), c_width=1, epilogue_stages=1
    )
    check(spec, base, rng, (17, 140, 70), (33, 65, 64))


@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (1, 2)], ids=str)
def test_two_warpgroups_with_two_instructions_each_beside_one_another(
    cluster: tuple[int, int], rng: np.random.Generator
) -> None:
    """Blocks of 256 columns with operands swapped, as the choice has them, at a number of rows for them all."""
    base = defaults("wgmma", (12, 4), (4, 64)).but(stages=2, c_width=1, epilogue_stages=1, cluster=cluster)
    assert base.block_tile == (48, 256)
    check(SPEC, base, rng, (70, 520, 130))


FOLDED = [replace(SPEC, alpha=1.0, beta=0.0), replace(SPEC, alpha=1.0, beta=1.0), replace(SPEC, wide=True)]


@ORDERS
@pytest.mark.parametrize("spec", FOLDED, ids=["beta 0", "beta 1", "wide"])
def test_factors_folded_and_wide_lines(spec: GemmSpec, order: Order, rng: np.random.Generator) -> None:
    spec = replace(spec, c_order=order)
    problem = Problem.random(rng, 65, 67, 64, 1.0, 2.0 if spec.beta is None else spec.beta, spec)
    problem.check(interpret(driver.lower(spec, small(), SM_90A), spec, problem, 8))


@ORDERS
@pytest.mark.parametrize(("slots", "resident"), [(1, 1), (2, 2), (3, 1)])
def test_slots_that_go_on_from_block_to_block(
    slots: int, resident: int, order: Order, rng: np.random.Generator
) -> None:
    """By groups that compute one block after the other; copies for the next begin while C is stored."""
    spec = replace(SPEC, c_order=order)
    kernel = driver.lower(spec, small(persistent=True, tile=(2, 64), c_width=1, epilogue_stages=slots), SM_90A)
    problem = Problem.random(rng, 130, 200, 130, -2.0, 3.0, spec)
    problem.check(interpret(kernel, spec, problem, 8, resident=resident))


@ORDERS
def test_functions_on_elements(order: Order, rng: np.random.Generator) -> None:
    """What they read, C itself among it, is read where elements are inside."""
    spec = replace(SPEC, c_order=order, epilogue=("bias", "expr: acc + row * col - c", "relu"))
    kernel, (m, n) = driver.lower(spec, small(), SM_90A), (65, 67)
    problem = Problem.random(rng, m, n, 64, 1.0, 2.0, spec)
    bias = problem.c[0].copy()
    found = interpret(kernel, spec, problem, 8, {"bias": bias}).astype(np.float64)
    rows, cols = np.indices((m, n))
    a, b, c = (x.astype(np.float64) for x in (problem.a, problem.b, problem.c))
    expected = np.maximum(a @ b + 2 * c + bias.astype(np.float64) + rows * cols - c, 0)
    assert np.allclose(found, expected, rtol=2**-7, atol=1e-4)


VECTORS = {"bias": "n", "row_bias": "m", "scale": "n", "row_scale": "m"}


@ORDERS
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tile": (2, 12)},
        {"tile": (2, 16), "group": (32, 8), "epilogue_stages": 2},
        {"persistent": True, "tile": (4, 16)},
    ],
    ids=["two boxes", "no whole box", "beside one another", "block after block"],
)
def test_vectors_are_read_before_the_loop_along_k(
    changes: dict[str, object], order: Order, rng: np.random.Generator
) -> None:
    """An element of each row and column, from registers: nothing is read behind the loop."""
    spec = replace(SPEC, c_order=order, epilogue=tuple(VECTORS), alpha=1.0, beta=0.0)
    kernel, (m, n) = driver.lower(spec, small(**changes), SM_90A), (65, 131)
    problem = Problem.random(rng, m, n, 64, 1.0, 0.0, spec)
    given = {name: problem.c[0, :1].repeat(n if of == "n" else m) * 0 for name, of in VECTORS.items()}
    for name, vector in given.items():
        vector[:] = rng.integers(-2, 3, len(vector)) if "bias" in name else rng.choice([0.5, 1, 2], len(vector))
    found = interpret(kernel, spec, problem, 8, given, resident=1).astype(np.float64)
    wide = {name: vector.astype(np.float64) for name, vector in given.items()}
    expected = problem.a.astype(np.float64) @ problem.b.astype(np.float64) + wide["bias"]
    expected = (expected + wide["row_bias"][:, None]) * wide["scale"] * wide["row_scale"][:, None]
    assert np.allclose(found, expected, rtol=2**-7, atol=1e-3)
    seen = [isinstance(s, For) for s in walk(kernel.body) if _is_along_k(s) or _reads(s, VECTORS)]
    assert seen[-1], "a vector is read behind the loop along K"
    assert seen.count(False) == len(VECTORS)


def _is_along_k(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.var == K0


def _reads(stmt: Stmt, names: Collection[str]) -> bool:
    """Whether a statement reads an array."""
    own = () if isinstance(stmt, For | If) else exprs(stmt)
    return any(isinstance(x, Load) and x.buffer.name in names for root in own for x in walk_expr(root))


@pytest.mark.parametrize("pitch", [256, 258], ids=["lines of fours", "other lines"])
@pytest.mark.parametrize("n", [248, 251])
@pytest.mark.parametrize(("cols", "vectors"), [(64, [8]), (22, [8, 4])])
def test_a_matrix_is_read_by_whole_sectors(
    cols: int, vectors: list[int], n: int, pitch: int, rng: np.random.Generator
) -> None:
    """All fours of a row before the first is used, with and without a bias; element by element where lines end
    elsewhere.
    """
    for epilogue in (("residual",), ("bias", "expr: acc * residual", "relu")):
        spec, m = replace(SPEC, epilogue=epilogue), 63
        kernel = driver.lower(spec, small(tile=(2, cols)), SM_90A)
        problem = Problem.random(rng, m, n, 64, 1.0, 2.0, spec)
        matrix = np.zeros((m, pitch), problem.c.dtype)
        matrix[:, :n] = rng.integers(-3, 4, (m, n))
        bias = matrix[1, :n].copy()
        more: dict[str, int | float | Matrix] = {"residual": matrix.reshape(-1), "ldr": pitch}
        more |= {"bias": bias} if "bias" in epilogue else {}
        found = interpret(kernel, spec, problem, 8, more).astype(np.float64)
        a, b, c, own = (x.astype(np.float64) for x in (problem.a, problem.b, problem.c, matrix[:, :n]))
        sums = a @ b + 2 * c
        expected = sums + own if len(epilogue) == 1 else np.maximum((sums + bias.astype(np.float64)) * own, 0)
        assert np.allclose(found, expected, rtol=2**-7, atol=1e-3)
        reads = [s for s in walk(kernel.body) if isinstance(s, VectorCopy) and s.src.name == "residual"]
        assert [read.width * read.src.dtype.size for read in reads] == vectors


def test_what_is_certain_is_not_asked() -> None:
    """Of whole blocks C is read without a guard, and none is stored with one: a lane's, and whether beta is zero."""
    kernel = driver.lower(replace(SPEC, multiple_of=(64, 128, 64)), small(), SM_90A)
    asked = [s for s in walk(kernel.body) if isinstance(s, If) and not s.roles]
    assert len(asked) == 4, "one that copies, one of a warp that arrives, one that stores; and beta"


# --- one thing wrong ------------------------------------------------------------------------------


def expect(rewrite: Rewrite, kind: FaultKind, detail: str) -> None:
    """Two boxes by one slot of a kernel with statements rewritten: a fault."""
    wrong = broken(driver.lower(WHOLE, small(), SM_90A), rewrite, SM_90A)
    with faults(kind, detail):
        run(wrong)


def run(kernel: Kernel) -> None:
    problem = Problem.random(np.random.default_rng(2), 64, 128, 64, 1.0, 2.0, WHOLE)
    problem.check(interpret(kernel, WHOLE, problem, 8))


def test_as_it_is_nothing_is_wrong() -> None:
    run(driver.lower(WHOLE, small(), SM_90A))


#: wait, meet, put, fence, meet, store, commit
WAIT, MEET, PUT, FENCE, MEET_AGAIN, STORE, COMMIT = range(7)


@pytest.mark.parametrize(
    ("steps", "detail"),
    [
        ((WAIT, MEET, PUT, MEET_AGAIN, STORE, COMMIT), "no fence of the writer"),
        ((WAIT, MEET, PUT, MEET_AGAIN, FENCE, STORE, COMMIT), "no fence of the writer before they met"),
        ((WAIT, MEET, PUT, FENCE, STORE, COMMIT), "a store reads what .* writes in c_shared"),
        ((MEET, PUT, FENCE, MEET_AGAIN, STORE, COMMIT), "a store still reads c_shared there"),
        # Only the lane that stores knows when the store is over.
        ((WAIT, PUT, FENCE, MEET_AGAIN, STORE, COMMIT), "writes what .* read"),
        ((WAIT, MEET, PUT, FENCE, MEET_AGAIN, STORE), "a store still reads c_shared there"),
    ],
    ids=[
        "what was put down is not seen",
        "others have not met since the fence",
        "others have not put it down",
        "written to while a store reads",
        "written to by those who did not wait",
        "a store that no group holds",
    ],
)
def test_steps_of_a_box_left_out_or_out_of_turn(steps: tuple[int, ...], detail: str) -> None:
    def in_turn(loop: For) -> Stmt:
        said = [s for s in loop.body if not isinstance(s, Comment)]
        return replace(loop, body=tuple(said[i] for i in steps))

    expect(changed(For, in_turn, lambda loop: loop.var.name == "tma_tile"), "race", detail)


def stores(stmt: If) -> bool:
    """Whether it asks for the lane that stores."""
    return isinstance(first := stmt.then[0], TmaCopy) and first.mbarrier is None


def between_lines(store: TmaCopy) -> Stmt:
    line, element = store.src_index
    return replace(store, src_index=(line - line % 16 + 1, element))


@pytest.mark.parametrize(
    ("rewrite", "kind", "detail"),
    [
        (
            changed(StoreGroup, lambda s: replace(s, pending=1), verb="wait"),
            "race",
            "a store still reads c_shared there",
        ),
        (dropped(StoreGroup, only=1, verb="wait"), "race", "local memory ends while TMA stores read it"),
        (changed(If, lambda s: s.then, stores), "race", "a store reads what|the TMA store writes"),
        (changed(TmaCopy, between_lines, mbarrier=None), "alignment", "can't begin at byte"),
        (
            changed(If, lambda s: replace(s, then=(Barrier(of_sub_group=True), *s.then)), stores),
            "divergent sub-group operation",
            "does not take part",
        ),
    ],
    ids=[
        "waits for one store too few",
        "the end before the stores'",
        "two lanes store",
        "between lines that swizzle together",
        "parts of a warp meet",
    ],
)
def test_one_thing_wrong(rewrite: Rewrite, kind: FaultKind, detail: str) -> None:
    expect(rewrite, kind, detail)


def test_slots_of_the_block_before() -> None:
    """As many slots as a block has boxes: it is the next block that needs the wait."""
    kernel = driver.lower(WHOLE, small(persistent=True, c_width=1, epilogue_stages=2), SM_90A)
    problem = Problem.random(np.random.default_rng(2), 128, 128, 64, 1.0, 0.0, WHOLE)
    problem.check(interpret(kernel, WHOLE, problem, 8, resident=1))
    with faults("race", "a store still reads c_shared there"):
        interpret(broken(kernel, dropped(StoreGroup, only=0, verb="wait")), WHOLE, problem, 8, resident=1)
    waits = [s for s in walk(kernel.body) if isinstance(s, StoreGroup) and s.verb == "wait"]
    assert len(waits) == 2, "before the next block, and at the end"


@ORDERS
def test_edges_within_what_a_store_writes_at_least(order: Order) -> None:
    """Sixteen bytes: with lines of 65 elements of two bytes, all would be written to their 72nd."""

    def asks(stmt: If) -> bool:
        return isinstance(first := stmt.then[0], Comment) and "at least" in first.text

    spec, (m, n) = replace(SPEC, c_order=order), (20, 65) if order == "row" else (65, 20)
    kernel = driver.lower(spec, small(), SM_90A)
    problem = Problem.random(np.random.default_rng(2), m, n, 64, 1.0, 0.0, spec)
    problem.check(interpret(kernel, spec, problem, 8))
    with pytest.raises(AssertionError, match="padding"):
        interpret(broken(kernel, changed(If, lambda s: s.orelse, asks)), spec, problem, 8)


def test_matrices_put_down_as_they_lie_where_they_have_to_be_transposed() -> None:
    """What shows where the two forms of the instruction are mistaken for each other."""
    spec = replace(COLUMNS, multiple_of=(8, 1, 1))
    kernel = driver.lower(spec, small(), SM_90A)
    problem = Problem.random(np.random.default_rng(2), 64, 128, 64, 1.0, 2.0, spec)
    problem.check(interpret(kernel, spec, problem, 8))
    as_they_lie = changed(VectorCopy, lambda s: replace(s, atom=STMATRIX), atom=STMATRIX_TRANS)
    with pytest.raises(AssertionError, match="elements off"):
        problem.check(interpret(broken(kernel, as_they_lie), spec, problem, 8))
