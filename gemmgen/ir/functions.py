"""Functions of numbers that a `Call` may name: what every target has. `simulator/evaluate.py` says what they mean."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Math:
    """A function of numbers; its arguments and its result are of one type.

    Attributes:
        arguments: how many.
        integers: whether it is one of whole numbers, too.
    """

    arguments: int = 1
    integers: bool = False


#: Of two numbers one of which is NaN, `min` and `max` give the other one, as C's fmin and fmax do.
MATH: dict[str, Math] = {
    "neg": Math(integers=True),
    "exp": Math(),
    "log": Math(),
    "sqrt": Math(),
    "rsqrt": Math(),
    "tanh": Math(),
    "erf": Math(),
    "abs": Math(integers=True),
    "min": Math(2, integers=True),
    "max": Math(2, integers=True),
}
#: How many arguments each function takes that a `Call` may name.
ARITY: dict[str, int] = {
    "group_id": 1,
    "group_count": 1,
    "local_id": 1,
    "lane_id": 0,
    "sub_group_size": 0,
    "nan": 0,
    "any_in_group": 1,
    "fma": 3,
    "broadcast": 2,
    "shuffle_xor": 2,
    "convert": 1,
    "conj": 1,
    "nibble": 2,
    "tf32": 1,
    "tf32_head": 1,
    "tf32_rest": 2,
    "tf32_finite_rest": 1,
    **{name: row.arguments for name, row in MATH.items()},
}
