"""Functions that a `Call` may name: those of numbers that every target has, fast ones, and the target's own.
`simulator/evaluate.py` says what they mean.
"""

from __future__ import annotations

from gemmgen.records import dataclass


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
#: The others, which are the target's: how many arguments each takes, and what it gives.
OTHERS: dict[str, tuple[int, str]] = {
    "group_count": (1, "how many work-groups there are along a dimension"),
    "group_id": (1, "index of the work-group along a dimension (a constant: 0 is the fastest)"),
    "local_id": (1, "index of the work-item in its group along a dimension"),
    "lane_id": (0, "index of the work-item in its sub-group"),
    "sub_group_size": (0, "lanes of the launch's sub-groups; of the last one of a group there may be fewer"),
    "nan": (0, "not a number"),
    "begins_on": (2, "whether the address of `args[0]`, an element that is not read, is a multiple of `args[1]` bytes"),
    "any_in_group": (1, "whether a condition holds for any work-item of the group, all of which come"),
    "fma": (3, "a * b + c, rounded once or twice as the device prefers"),
    "broadcast": (2, "the value that lane `args[1]` (the same for all lanes) holds"),
    "shuffle": (2, "the value that lane `args[1]` holds, which may be another for each lane"),
    "shuffle_xor": (2, "the value that lane `own ^ args[1]` holds"),
    "conj": (1, "the complex value with the sign of its imaginary part changed"),
    "convert": (1, "the value in the call's type, rounded to nearest"),
    "nibble": (2, "half number `args[1]` of a byte, 0 the low one, two's complement, as a float32"),
    "tf32": (1, "a float32 with 10 bits after the point, rounded to nearest, ties away from zero"),
    "tf32_head": (1, "a value cut to 10 bits after the point"),
    "tf32_rest": (2, "somewhat more than a value has beside its head, `args[1]`; what is not finite is its own rest"),
    "tf32_finite_rest": (1, "the same of a value that is finite; NaN of any other"),
}
#: How many arguments each function takes that a `Call` may name. Backends translate them, the interpreter runs them.
ARITY: dict[str, int] = {
    **{name: arguments for name, (arguments, _) in OTHERS.items()},
    **{name: row.arguments for name, row in MATH.items()},
    **dict.fromkeys(FAST, 1),
}
