"""Mainloop by matrix instructions of AMD's wavefronts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gemmgen.schedule.fields import Flat
from gemmgen.schedule.mainloop import Mainloop, Method
from gemmgen.schedule.operand import Operand
from gemmgen.schedule.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Mfma(Mainloop):
    """Wavefronts of AMD's CDNA multiply by `v_mfma` what each lane loads of A and B from global memory."""

    tiling: ClassVar[type[Tiling]] = Tiling

    @classmethod
    def fixed(cls, atom: str, tiling: Tiling) -> Flat:
        """Lanes as the instruction has them: each holds four neighbouring rows of a column of C."""
        return {"atom": "mfma", "lane_arrangement": (4, 16), "thread_vector": (4, 1)}

    @classmethod
    def operand_keys(cls, name: str, operand: Operand) -> frozenset[str]:
        """None: elements are loaded one by one."""
        return frozenset()

    @property
    def method(self) -> Method:
        """The family it belongs to."""
        return "mfma"
