"""Schedules, specs and sizes that nobody chose: whatever is not refused must be right and free of races."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from gemmgen.fuzz import strategies
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.checks import Place, check
from gemmgen.fuzz.devices import places

ANY = places("interp")
CPU = (Place.named("opencl", "cpu"),)
SM_90, SM_90A = ((Place.named("cuda", name),) for name in ("sm_90", "sm_90a"))


def budget(examples: int) -> settings:
    """So many cases, the same ones each time."""
    checks = [HealthCheck.filter_too_much, HealthCheck.too_slow]
    return settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=checks)


@given(strategies.cases(ANY, kinds=(strategies.changed_presets,)))
@budget(70)
def test_presets_with_fields_changed(drawn: tuple[Case, Place]) -> None:
    check(*drawn)


@given(strategies.cases(SM_90))
@budget(30)
def test_rings(drawn: tuple[Case, Place]) -> None:
    """Mbarriers, slices, parts of K, bands of groups, staggered lanes, vectors of C."""
    check(*drawn)


@given(strategies.cases(SM_90A, kinds=(strategies.warpgroups,)))
@budget(40)
def test_warpgroups(drawn: tuple[Case, Place]) -> None:
    """TMA tiles of every width, A in registers, C by TMA, by work-items and as parts of K."""
    check(*drawn)


@given(strategies.cases(CPU, kinds=(strategies.panels,)))
@budget(40)
def test_panels(drawn: tuple[Case, Place]) -> None:
    """Vectors of columns and along K, B in place and copied, K in blocks and parts, epilogues."""
    check(*drawn)


@given(strategies.cases(ANY))
@budget(20)
def test_a_file_is_the_same_case(drawn: tuple[Case, Place]) -> None:
    case, _ = drawn
    assert Case.from_toml(case.to_toml(), "it") == case


def test_what_is_drawn() -> None:
    """Whatever the language has comes up in a few hundred cases: none of it is left out by what is refused."""
    seen: set[str] = set()

    @given(strategies.cases(ANY))
    @budget(250)
    def look(drawn: tuple[Case, Place]) -> None:
        case, spec = drawn[0], drawn[0].spec
        empty = {axis for axis, size in zip("mnk", case.size, strict=True) if size == 0}
        flags = {name for name in ("batched", "listed", "wide", "conj_a", "conj_b") if getattr(spec, name)}
        functions = {"formula" if function.name == "expr" else "function" for function in spec.functions}
        stored = {f"{x} stored otherwise" for x in "ab" if spec.element(x) != spec.dtype}
        others = {
            "offset": any(case.offsets),
            "alpha 0": case.alpha == 0,
            "complex alpha": complex(case.alpha).imag,
            "no products": case.count == 0,
        }
        seen.update(empty, flags, functions, stored, {name for name, there in others.items() if there})

    look()
    assert seen == {
        *("m", "n", "k", "batched", "listed", "wide", "conj_a", "conj_b", "formula", "function"),
        *("a stored otherwise", "b stored otherwise", "offset", "alpha 0", "complex alpha", "no products"),
    }


def test_what_is_drawn_of_panels() -> None:
    seen: set[str] = set()

    @given(strategies.cases(CPU, kinds=(strategies.panels,)))
    @budget(150)
    def look(drawn: tuple[Case, Place]) -> None:
        s, spec = drawn[0].schedule, drawn[0].spec
        way = f"{'along K, ' * s.dot_product}B {'transposed' if spec.b_order == 'col' else 'as it is'}"
        waits = s.kc > 0 and s.split_k == 1 and bool(spec.epilogue)
        seen.update({str(spec.dtype), f"{way}, {s.b.memory}", *(["sums wait"] if waits else [])})

    look()
    assert seen == {
        *("float32", "float64", "sums wait", "B as it is, global", "B as it is, private", "B transposed, private"),
        *("along K, B transposed, global", "along K, B as it is, private"),
    }


def test_what_is_drawn_of_warpgroups() -> None:
    seen: set[str] = set()

    @given(strategies.cases(SM_90A, kinds=(strategies.warpgroups,)))
    @budget(250)
    def look(drawn: tuple[Case, Place]) -> None:
        s, spec = drawn[0].schedule, drawn[0].spec
        found = {
            "in registers": "private" in (s.a.memory, s.b.memory),
            "made there": bool(spec.prologue_a or spec.prologue_b),
            "swapped": s.operands_swapped,
            "by TMA": s.epilogue_stages > 0,
            "transposed": s.epilogue_stages > 0 and (spec.c_order == "col") != s.operands_swapped,
            "in turns": s.ordered_epilogue,
            "cluster_reduction": s.cluster_reduction > 1,
            "parts": s.partial_sums > 1,
            "clusters": s.cluster != (1, 1),
        }
        seen.update({str(spec.dtype), *(name for name, there in found.items() if there)})

    look()
    assert seen == {
        *("bfloat16", "float16", "float32", "int8", "in registers", "made there", "swapped", "by TMA", "transposed"),
        *("in turns", "cluster_reduction", "parts", "clusters"),
    }
