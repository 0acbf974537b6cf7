"""The presets that `gemmgen bench --best` chooses from where none is named."""

from __future__ import annotations

from dataclasses import replace

from gemmgen import presets
from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import DType
from gemmgen.ir.target import Target
from gemmgen.ir.warp_matrix import product_error
from gemmgen.passes.validate import is_possible


def candidates(dtype: DType, target: Target, ld_multiple: int | None = None) -> tuple[str, ...]:
    """Presets that multiply a type on a target as precisely as its elements are: by matrix instructions where there are
    some for the type, else by multiply-adds. What differs from run to run (`atomic`), and what rounds elements before
    it multiplies them (TF32), is measured where it is asked for by name.

    Args:
        ld_multiple: what leading dimensions are promised to be multiples of; None for what each preset asks for.
    """
    found = {
        name: presets.load(name).schedule.atom for name in presets.names() if _fits(name, dtype, target, ld_multiple)
    }
    by_matrices = tuple(name for name, atom in found.items() if atom != "fma")
    return by_matrices or tuple(found)


def _fits(name: str, dtype: DType, target: Target, ld_multiple: int | None) -> bool:
    preset = presets.load(name)
    if preset.schedule.atomic or product_error(preset.schedule.atom, dtype):
        return False
    try:
        spec = replace(preset.spec, dtype=dtype, ld_multiple=ld_multiple or preset.spec.ld_multiple)
    except SpecError:
        return False
    return is_possible(spec, preset.schedule, target)
