"""A device of any backend that runs kernels: what all of them have in common, and how one is found among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from gemmgen.errors import DeviceError
from gemmgen.ir.target import Target
from gemmgen.runtime import is_named


class Device(Protocol):
    """A device as its runtime describes it. `str` gives its number and its name."""

    @property
    def number(self) -> int:
        """Its index among the devices of its backend."""

    @property
    def name(self) -> str: ...

    @property
    def target(self) -> Target:
        """The limits and features for the passes."""


Info = TypeVar("Info", bound=Device)


def matching(device: object, everything: Sequence[Info], kind: str, number: object = None) -> Info:
    """The device that an argument selects.

    Args:
        device: its number, or part of its name.
        kind: the devices' name in a message.
        number: gives the index of another library's device object.

    Raises: DeviceError, with the list of all devices.
    """
    wanted = device if number is None else number
    if isinstance(wanted, str) and not wanted.isdecimal():
        found = [info for info in everything if is_named(wanted, info.name)]
    elif isinstance(wanted, int | str) and not isinstance(wanted, bool):
        found = [info for info in everything if info.number == int(wanted)]
    else:
        raise DeviceError(
            f"device = {device!r} is of type {type(device).__name__}: pass a number or part of a name (gemmgen devices)"
        )
    if not found:
        there = "; ".join(map(str, everything))
        raise DeviceError(f"no {kind} matches {device!r}: choose by number or part of a name among {there}")
    return found[0]
