"""Reads what Intel's offline compiler made of a kernel: the ELF file's sections, and its busiest loop."""

from __future__ import annotations

import re
import struct
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

#: Device of `ocloc -device` -> platform of `iga64 -p`.
PLATFORMS = {"bdw": "8", "skl": "9", "icllp": "11", "tgllp": "12p1", "dg2-g10": "12p71", "pvc": "12p72"}

_LABEL = re.compile(r"^(L\d+):")
_INSTRUCTION = re.compile(r"^\s*(?:\([^)]*\)\s*)?([a-z][a-z0-9]*)\b")
_BRANCHES = frozenset({"jmpi", "while", "goto", "brd", "brc"})


@dataclass(frozen=True, slots=True)
class Zebin:
    """A compiled file: `info` is Intel's YAML description, `code` the instructions of each kernel."""

    info: str
    code: dict[str, bytes]

    @property
    def scratch(self) -> list[str]:
        """The buffers that hold spilled registers and private arrays in memory; empty is best."""
        return re.findall(r"type:\s*scratch\b[^-]*", self.info)

    @property
    def simd(self) -> list[int]:
        """Lanes of each kernel."""
        return [int(lanes) for lanes in re.findall(r"\bsimd_size:\s*(\d+)", self.info)]


def read(path: Path) -> Zebin:
    """Parses a file of `ocloc compile --format zebin`."""
    data = path.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        raise ValueError(f"{path.name} is no 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", data, 0x3A)

    def section(number: int) -> tuple[int, bytes]:
        name, _type, _flags, _address, start, length = struct.unpack_from("<IIQQQQ", data, table + number * size)
        return name, data[start : start + length]

    names = section(names_at)[1]
    sections = {}
    for number in range(1, count):
        name, content = section(number)
        sections[names[name : names.index(b"\0", name)].decode()] = content
    code = {name.removeprefix(".text."): text for name, text in sections.items() if name.startswith(".text.")}
    return Zebin(sections[".ze_info"].decode(), code)


def compiled(ocloc: str, device: str, file: Path, *options: str) -> Zebin:
    """What the `ocloc` at a path makes of a file; judged by what it writes, for it may return 0 and nothing else."""
    folder = file.parent / device
    folder.mkdir(exist_ok=True)
    command = [ocloc, "compile", "-file", str(file), "-device", device, "--format", "zebin", *options]
    command += ["-out_dir", str(folder), "-output", file.stem]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    outputs = sorted(folder.glob(f"{file.stem}*.bin"))
    assert outputs, result.stdout + result.stderr
    return read(outputs[0])


def disassemble(iga: str, device: str, code: bytes, scratch: Path) -> str:
    """The assembly text of one kernel, by the `iga64` at path `iga`."""
    binary = scratch / "code.krn"
    binary.write_bytes(code)
    command = [iga, "-d", f"-p={PLATFORMS[device]}", str(binary)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def busiest_loop(assembly: str) -> Counter[str]:
    """Opcodes of the innermost loop that holds the most multiply-adds; empty where nothing loops."""
    opcodes: list[str] = []
    labels: dict[str, int] = {}
    loops: list[range] = []
    for line in assembly.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(opcodes)
        elif instruction := _INSTRUCTION.match(line):
            if instruction[1] in _BRANCHES:
                targets = [labels[name] for name in re.findall(r"\bL\d+\b", line) if name in labels]
                loops += [range(start, len(opcodes) + 1) for start in targets]
            opcodes.append(instruction[1])
    innermost = [loop for loop in loops if not any(_inside(other, loop) for other in loops)]
    counts = [Counter(opcodes[loop.start : loop.stop]) for loop in innermost]
    return max(counts, key=lambda count: count["mad"], default=Counter())


def _inside(inner: range, outer: range) -> bool:
    return inner != outer and outer.start <= inner.start and inner.stop <= outer.stop
