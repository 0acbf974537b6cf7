"""The routines of the exported BLAS: a row for each element type."""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.ir.dtypes import C64, C128, F32, F64, DType


@dataclass(frozen=True, slots=True)
class Routine:
    """`sgemm` and its like.

    Attributes:
        letter: what its names begin with.
        c_type: an element in C99.
        conj: C's function that conjugates one; None where elements are real.
    """

    letter: str
    dtype: DType
    c_type: str
    conj: str | None = None

    @property
    def name(self) -> str:
        return f"{self.letter}gemm"

    @property
    def complex(self) -> bool:
        return self.conj is not None

    @property
    def real(self) -> str:
        """The type of a real number."""
        return self.c_type.removesuffix(" complex")


ROUTINES = (
    Routine("s", F32, "float"),
    Routine("d", F64, "double"),
    Routine("c", C64, "float complex", "conjf"),
    Routine("z", C128, "double complex", "conj"),
)
