"""Mbarriers that are not ready, and copies that nobody waits for: what only the interpreter's bookkeeping shows."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Body, For
from gemmgen.ir.synchronization import Barrier, Mbarrier
from gemmgen.ir.walk import map_body
from tests.interp.test_broken_rings import PLAIN, SLICED, expect, lowered, product
from tests.support.broken import broken, changed, dropped


def rounds(kernel: Kernel) -> tuple[int, int]:
    """Where the first copies are begun, and where the main loop stands."""
    first, main = (i for i, stmt in enumerate(kernel.body) if isinstance(stmt, For) and stmt.var.name == "k_batch")
    return first, main


def inserted(kernel: Kernel, place: int, body: Body) -> Kernel:
    return replace(kernel, body=(*kernel.body[:place], *body, *kernel.body[place:]))


def test_barriers_that_were_never_made_ready() -> None:
    unready = broken(lowered(PLAIN), dropped(Mbarrier, verb="init"))
    expect(unready, "pipe", "there is no barrier 0 of 0 made ready")


def test_a_barrier_beyond_the_last() -> None:
    beyond = changed(Mbarrier, lambda s: replace(s, index=s.index + 2), lambda s: s.verb != "init")
    expect(broken(lowered(PLAIN), beyond), "pipe", "there is no barrier 4 of 4 made ready")


def test_barriers_that_not_everybody_sees_ready() -> None:
    kernel = lowered(PLAIN)
    met = next(i for i, stmt in enumerate(kernel.body) if isinstance(stmt, Barrier))
    assert isinstance(kernel.body[met - 1], Mbarrier)
    expect(replace(kernel, body=(*kernel.body[:met], *kernel.body[met + 1 :])), "pipe", "it may not be ready yet")


def test_memory_given_up_while_copies_to_it_are_under_way() -> None:
    """Two barriers of the group order what was read, but not copies that begin between them."""
    kernel = lowered(SLICED)
    first, main = rounds(kernel)
    product(inserted(kernel, main + 1, (Barrier(), Barrier())))
    late = inserted(kernel, main + 1, (Barrier(), kernel.body[first], Barrier()))
    expect(late, "race", "the local memory below it may still be in use")


def test_two_copies_under_way_to_one_place() -> None:
    """A barrier of the group says nothing of copies: either may land last."""
    kernel = lowered(PLAIN)
    first, _ = rounds(kernel)
    copies = map_body((kernel.body[first],), dropped(Mbarrier))
    expect(inserted(kernel, first, (*copies, Barrier())), "race", "a copy to it is still under way")
