"""Executes kernels of a code object for AMD's GPUs, instruction by instruction, on this CPU: a process of its own.

The job comes on standard input. The emulator is tinygrad's, a folder of `PYTHONPATH`; it gets a kernel as hardware
does: the address of its first instruction, the registers that its descriptor asks to be filled, local memory.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import struct
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import cast

import numpy as np

#: Bits of a kernel descriptor's properties, the lowest first -> words of a user's registers that each fills.
#: The second one is the dispatch packet's address, the fourth the arguments'.
REGISTERS = (4, 2, 2, 2, 2, 2, 1)
DISPATCH, ARGUMENTS = 1, 3
#: In which local memory is counted, and where its amount stands in the second word of resources.
LOCAL_UNIT, LOCAL_SHIFT, LOCAL_MASK = 512, 15, 0x1FF


def load(code: bytes) -> tuple[bytearray, dict[str, int]]:
    """The image as it lies in memory, and where each kernel's descriptor lies in it."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    elf = ELFFile(BytesIO(code))
    sections = [s for s in elf.iter_sections() if s["sh_flags"] & 2]
    image = bytearray(max(s["sh_addr"] + s["sh_size"] for s in sections) + 4096)
    for section in sections:
        if section["sh_type"] != "SHT_NOBITS":
            image[section["sh_addr"] : section["sh_addr"] + section["sh_size"]] = section.data()
    symbols = [x for s in elf.iter_sections() if isinstance(s, SymbolTableSection) for x in s.iter_symbols()]
    return image, {x.name.removesuffix(".kd"): x["st_value"] for x in symbols if x.name.endswith(".kd")}


def packed(arguments: list[tuple[str, int | float | str]], arrays: dict[str, np.ndarray]) -> bytes:
    """The arguments as they lie in memory, with room for those that a compiler adds."""
    out = bytearray()
    for form, value in arguments:
        size = struct.calcsize(form)
        out += bytes(-len(out) % size)
        out += struct.pack(f"<{form}", arrays[value].ctypes.data if isinstance(value, str) else value)
    return bytes(out) + bytes(256)


def main() -> None:
    job = json.load(sys.stdin)
    execute = cast("Callable[..., int]", importlib.import_module("amd_emulator.emu").run_asm)
    arrays = {name: np.load(path) for name, path in job["arrays"].items()}
    image, descriptors = load(Path(job["code"]).read_bytes())
    code = (ctypes.c_char * len(image)).from_buffer_copy(image)
    for kernel, grid, block, dynamic_bytes, arguments in job["launches"]:
        at = descriptors[kernel]
        local, scratch = struct.unpack_from("<II", image, at)
        (entry,) = struct.unpack_from("<q", image, at + 16)
        (resources,) = struct.unpack_from("<I", image, at + 52)
        (properties,) = struct.unpack_from("<H", image, at + 56)
        given = ctypes.create_string_buffer(packed(arguments, arrays))
        threads = [x * y for x, y in zip(grid, block, strict=True)]
        packet = ctypes.create_string_buffer(struct.pack("<HHHHHHIII", 0, 3, *block, 0, *threads) + bytes(40))
        addresses = {DISPATCH: ctypes.addressof(packet), ARGUMENTS: ctypes.addressof(given)}
        registers: list[int] = []
        for bit, words in enumerate(REGISTERS):
            address = addresses.get(bit, 0)
            if properties >> bit & 1:
                registers += [address & 0xFFFFFFFF, address >> 32][:words] + [0] * (words - 2)
        units = -(-(local + dynamic_bytes) // LOCAL_UNIT)
        resources = resources & ~(LOCAL_MASK << LOCAL_SHIFT) | units << LOCAL_SHIFT
        execute(
            ctypes.addressof(code) + at + entry,
            0,
            *grid,
            *block,
            ctypes.addressof(given),
            resources,
            scratch,
            job["arch"],
            registers,
        )
    for name, path in job["arrays"].items():
        np.save(path, arrays[name])


if __name__ == "__main__":
    main()
