"""SPIR-V modules in what SYCL's compiler writes."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from gemmgen.inspect.intel import MAGIC, Module, _modules


def module(*names: str) -> bytes:
    """A module of entry points alone, and an instruction that is passed over."""
    out = struct.pack("<5I", MAGIC, 0x10400, 0, 9, 0) + struct.pack("<2I", 2 << 16 | 17, 4)
    for number, name in enumerate(names):
        text = name.encode() + b"\0" * (4 - len(name) % 4)
        out += struct.pack("<3I", (3 + len(text) // 4) << 16 | 15, 6, number) + text
    return out


def test_modules_and_their_kernels() -> None:
    one, two = module("a", "_ZTS6kernel"), module("abc")
    found = list(_modules(b"SYBI\1" + one + bytes(8) + module() + two))
    assert found == [Module(one, ("a", "_ZTS6kernel")), Module(two, ("abc",))]


@given(st.binary(max_size=64), st.integers(0, 80))
def test_any_bytes_are_walked(junk: bytes, cut: int) -> None:
    list(_modules(junk))
    list(_modules(junk + module("a", "b")[:cut] + junk))
