"""Schedules, specs and sizes that nobody chose: whatever is not refused must be right and free of races."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from gemmgen.fuzz import strategies
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.checks import Place, check
from gemmgen.fuzz.devices import places

ANY = places("interp")
SM_90 = (Place.named("cuda", "sm_90"),)


def budget(examples: int) -> settings:
    """So many cases, the same ones each time."""
    checks = [HealthCheck.filter_too_much, HealthCheck.too_slow]
    return settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=checks)


@given(strategies.cases(ANY, with_rings=False))
@budget(70)
def test_presets_with_fields_changed(drawn: tuple[Case, Place]) -> None:
    check(*drawn)


@given(strategies.cases(SM_90))
@budget(30)
def test_rings(drawn: tuple[Case, Place]) -> None:
    """Mbarriers, slices, parts of K, bands of groups, staggered lanes, vectors of C."""
    check(*drawn)


@given(strategies.cases(ANY))
@budget(20)
def test_a_file_is_the_same_case(drawn: tuple[Case, Place]) -> None:
    case, _ = drawn
    assert Case.from_toml(case.to_toml(), "it") == case
