"""Which loop is hot, and which of its instructions run each round: hand-written listings, counted by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gemmgen.inspect.code import Builder, Instruction, Kind, Listing, find_loops


def listing(text: str) -> Listing:
    """`name:` is a label, `fma` and `int` are instructions, `jump L` always goes and `maybe L` sometimes."""
    out = Builder()
    for line in text.split(";"):
        word, _, target = line.strip().partition(" ")
        if word.endswith(":"):
            out.label(word[:-1])
            continue
        kind = {"fma": Kind.FMA, "int": Kind.INT, "load": Kind.LOAD}.get(word, Kind.BRANCH)
        targets = (target,) if target else ()
        stays = word not in ("jump", "end")
        out.instructions += [Instruction(kind, line, 1 if word == "fma" else 0, None, targets, stays)]
    return out.listing()


def test_one_loop() -> None:
    loops = find_loops(listing("int; top:; fma; fma; int; maybe top; end"))
    assert loops.hot is not None
    assert (loops.hot.math, len(loops.hot.own)) == (2, 4)
    assert loops.hot.always == set(loops.hot.own)
    assert not loops.rivals and loops.regular


def test_the_inner_of_nested_loops_counts_alone() -> None:
    loops = find_loops(listing("outer:; int; inner:; fma; maybe inner; int; int; maybe outer; end"))
    assert loops.hot is not None
    assert len(loops.hot.own) == 2
    assert [len(x.own) for x in loops.outer(loops.hot)] == [4]


def test_an_outer_loop_is_hot_where_it_multiplies_most() -> None:
    loops = find_loops(listing("outer:; int; stage:; load; maybe stage; fma; fma; maybe outer; end"))
    assert loops.hot is not None
    assert (loops.hot.math, len(loops.hot.own)) == (2, 4)
    assert [len(x.own) for x in loops.inner(loops.hot)] == [2]


def test_the_unrolled_loop_wins_over_its_remainder() -> None:
    loops = find_loops(listing("main:; fma; fma; fma; fma; int; maybe main; rest:; fma; int; maybe rest; end"))
    assert loops.hot is not None
    assert (loops.hot.math, len(loops.hot.own)) == (4, 6)
    assert not loops.rivals


def test_equal_loops_are_rivals_and_the_shorter_is_shown() -> None:
    loops = find_loops(listing("a:; fma; int; int; maybe a; b:; fma; int; maybe b; end"))
    assert loops.hot is not None
    assert len(loops.hot.own) == 3
    assert [len(x.own) for x in loops.rivals] == [4]


def test_what_stands_behind_a_condition() -> None:
    loops = find_loops(listing("top:; fma; maybe past; load; load; past:; int; maybe top; end"))
    assert loops.hot is not None
    assert len(loops.hot.own) == 6
    assert len(loops.hot.always) == 4


def test_a_loop_that_is_entered_in_its_middle() -> None:
    loops = find_loops(listing("jump test; body:; fma; fma; test:; int; maybe body; end"))
    assert loops.hot is not None
    assert (loops.hot.math, len(loops.hot.own)) == (2, 4)


def test_two_ways_back_are_one_loop() -> None:
    loops = find_loops(listing("top:; fma; maybe top; int; maybe top; end"))
    assert len(loops.all) == 1
    assert loops.hot is not None and len(loops.hot.own) == 4


def test_a_block_out_of_line_belongs_to_its_loop() -> None:
    loops = find_loops(listing("top:; fma; maybe cold; back:; int; maybe top; end; cold:; load; jump back"))
    assert loops.hot is not None and len(loops.hot.own) == 6


def test_a_loop_with_two_entrances_is_not_regular() -> None:
    assert not find_loops(listing("maybe b; a:; fma; b:; int; maybe a; end")).regular


def test_code_that_nothing_reaches_is_no_loop() -> None:
    loops = find_loops(listing("fma; end; forever:; fma; jump forever"))
    assert loops.hot is None and not loops.all


def test_no_instruction_at_all() -> None:
    assert find_loops(listing("x:")).hot is None


@given(st.lists(st.tuples(st.sampled_from(["fma", "int", "jump", "maybe", "end"]), st.integers(0, 12)), max_size=13))
def test_any_code_has_loops_that_hold_their_own(code: list[tuple[str, int]]) -> None:
    parts = [f"l{i}:;{word}" + (f" l{to}" if word in ("jump", "maybe") else "") for i, (word, to) in enumerate(code)]
    made = listing(";".join(parts)) if parts else Builder().listing()
    for loop in find_loops(made).all:
        assert loop.always <= set(loop.own) <= loop.body
        assert loop.math == sum(made.instructions[i].kind is Kind.FMA for i in loop.own)
