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
#: relative error of `fast_sigmoid` is below 2^-14. That of `fast_normal_cdf` is below 2^-14 for positive numbers; its
#: absolute one is below 2^-18 for negative ones, its relative one below 2^-9 from -5 on.
FAST: dict[str, str] = {
    "fast_sigmoid": "1 / (1 + exp(-x))",
    "fast_normal_cdf": "0.5 * (1 + erf(x / sqrt(2)))",
}
#: 1 / (1 + e) for e from 0 to 1, by powers of e: so reciprocals leave the special unit to powers of two.
SIGMOID = (1.0, -0.99730819, 0.95915479, -0.78354042, 0.43077686, -0.10911257)
#: The normal distribution beyond y >= 0 is 2^p(y): p's coefficients, fitted from 0 to 8 where that distribution counts.
NORMAL_TAIL = (-1.0, -1.1502501, -0.4624179, -0.049003944, 0.0058934526, -0.00031311497)
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
