"""How to compute a product: `Schedule`, four axes of closed sets of records, and all that follows from their fields."""

from gemmgen.schedule.fields import AddressPayloads, Atom, Flat, MatrixAtom, Memory, Pair, Value, text_of
from gemmgen.schedule.flat import AXES, Key
from gemmgen.schedule.mainloop import Method
from gemmgen.schedule.operand import Operand
from gemmgen.schedule.record import KEYS, PLAIN, Schedule
from gemmgen.schedule.warpgroup_mma import WARPGROUP

__all__ = [
    "AXES",
    "KEYS",
    "PLAIN",
    "WARPGROUP",
    "AddressPayloads",
    "Atom",
    "Flat",
    "Key",
    "MatrixAtom",
    "Memory",
    "Method",
    "Operand",
    "Pair",
    "Schedule",
    "Value",
    "text_of",
]
