"""What one kernel of a program leaves for the next."""

from __future__ import annotations

from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Expr
from gemmgen.records import dataclass

#: Elements that 32-bit indices reach.
REACHED = 2**31


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory that one kernel passes to the next, as the argument of that name.

    Attributes:
        elements: how many of `dtype`, as an expression over the integer arguments; of all products of a batch.
        reach: how many the kernels' places are counted by.
    """

    name: str
    dtype: DType
    elements: Expr
    reach: int = REACHED

    def problem(self, elements: int) -> str | None:
        """The sentence for more elements than are reached."""
        if elements < self.reach:
            return None
        name, remedy = self.name, "multiply in parts, pack nothing, or (but for dpas) use --wide"
        if self.name == "workspace":
            name, remedy = "the workspace", "use a lower split, or --wide"
        return f"{name} has {elements:,} elements, more than 32-bit indices reach: {remedy}"
