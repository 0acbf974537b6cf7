"""Functions of numbers that a `Call` may name: those that every target has, and fast ones. `simulator/evaluate.py` says
what they mean.
"""

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
#: Functions of float32 by few instructions, on targets with `fast_functions`, for results of 16 bits or fewer. The
#: relative error is below 2^-14, the normal distribution's from -6 on; its absolute one is below 2^-18.
FAST: dict[str, str] = {
    "fast_sigmoid": "1 / (1 + exp(-x))",
    "fast_normal_cdf": "0.5 * (1 + erf(x / sqrt(2)))",
}
#: The normal distribution beyond y >= 0 is 2^p(y): p's coefficients from y on, fitted from 0 to 8; the constant is -1.
NORMAL_TAIL = (-1.1511171, -0.45882782, -0.053596653, 0.0083346711, -0.00088810816, 5.6453668e-05, -1.5904197e-06)
LOG2_E = 1.4426950408889634
#: How many arguments each function takes that a `Call` may name.
ARITY: dict[str, int] = {
    "group_id": 1,
    "group_count": 1,
    "local_id": 1,
    "lane_id": 0,
    "sub_group_size": 0,
    "nan": 0,
    "any_in_group": 1,
    "begins_on": 2,
    "fma": 3,
    "broadcast": 2,
    "shuffle": 2,
    "shuffle_xor": 2,
    "convert": 1,
    "conj": 1,
    "nibble": 2,
    "tf32": 1,
    "tf32_head": 1,
    "tf32_rest": 2,
    "tf32_finite_rest": 1,
    **{name: row.arguments for name, row in MATH.items()},
    **dict.fromkeys(FAST, 1),
}
