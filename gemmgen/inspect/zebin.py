"""The ELF files that `ocloc compile --format zebin` writes."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise

from gemmgen.errors import ToolError


@dataclass(frozen=True, slots=True)
class Zebin:
    """A compiled file.

    Attributes:
        info: Intel's description, in YAML.
        code: the instructions of each kernel.
        lines: for each kernel, address of an instruction -> line of the source.
        unresolved: functions that the instructions call and nobody defines.
    """

    info: str
    code: dict[str, bytes]
    lines: dict[str, dict[int, int]]
    unresolved: tuple[str, ...]


def read(data: bytes) -> Zebin:
    """Raises: ToolError if it is no such file, or if pyelftools is missing."""
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
        from elftools.elf.sections import SymbolTableSection
    except ImportError:
        raise ToolError('pyelftools is not installed: pip install "gemmgen[inspect]"') from None
    try:
        file = ELFFile(BytesIO(data))
        sections = {str(s.name): s for s in file.iter_sections()}
        # A source without a kernel leaves a file without this section.
        info = bytes(sections[".ze_info"].data()).decode("utf-8", "replace") if ".ze_info" in sections else ""
        code = {n.removeprefix(".text."): bytes(s.data()) for n, s in sections.items() if n.startswith(".text.")}
        table = sections.get(".symtab")
        symbols = list(table.iter_symbols()) if isinstance(table, SymbolTableSection) else []
        missing = {str(s.name) for s in symbols if s.name and s["st_shndx"] == "SHN_UNDEF"}
        lines = _lines(file, list(code))
    except (ELFError, ValueError, KeyError, IndexError) as error:
        raise ToolError(f"ocloc wrote a file that can't be read: {error}") from None
    return Zebin(info, code, lines, tuple(sorted(missing)))


def _lines(file: object, kernels: list[str]) -> dict[str, dict[int, int]]:
    """Lines of the source. Each kernel's addresses begin at zero; sequences stand in the kernels' order."""
    from elftools.elf.elffile import ELFFile

    if not isinstance(file, ELFFile) or not file.has_dwarf_info():
        return {}
    dwarf = file.get_dwarf_info(relocate_dwarf_sections=False)
    sequences: list[dict[int, int]] = []
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        current: dict[int, int] = {}
        for entry in program.get_entries() if program is not None else ():
            if entry.state is None:
                continue
            if entry.state.end_sequence:
                sequences.append(_spread(current, int(entry.state.address)))
                current = {}
            else:
                current[int(entry.state.address)] = int(entry.state.line)
    # Where their numbers differ nobody knows which is whose.
    return dict(zip(kernels, sequences, strict=True)) if len(sequences) == len(kernels) else {}


def _spread(starts: dict[int, int], end: int) -> dict[int, int]:
    """A line for each address that an instruction can have, not only for those where the line changes."""
    out: dict[int, int] = {}
    for start, stop in pairwise([*sorted(starts), end]):
        out |= dict.fromkeys(range(start, stop, 8), starts[start])
    return out
