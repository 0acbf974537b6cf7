"""Intel: `ocloc` compiles and disassembles, with `iga64` where it can't; both are read here."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from gemmgen.errors import DeviceError, ToolError
from gemmgen.inspect.code import Access, Builder, Compiled, Instruction, Kind, Listing, Resources, Space
from gemmgen.inspect.machine import Machine
from gemmgen.inspect.toolchain import LOG_LINES, SECONDS, Input, cached, pick_kernel, refusal, run, version
from gemmgen.tools import TOOLS, find

_LABEL = re.compile(r"^(L\d+):\s*$")
_LINE = re.compile(
    r"^\s*(?:/\* \[(?P<pc>[0-9A-Fa-f]+)\]\s*\*/)?\s*(?P<guard>\([^)]*\))?\s*(?P<opcode>[a-z][a-z0-9_.]*)"
    r"(?:\s*\((?P<lanes>\d+)\|M\d+\))?(?P<rest>.*)$"
)
_TYPE = re.compile(r":([a-z]+\d*)\b")
_COMMENT = re.compile(r"^\s*(//.*)?$")
_SENDS = frozenset({"send", "sendc", "sends", "sendsc"})
#: Every opcode of Intel's graphics assembler that is no send (Intel Graphics Compiler, "IGA").
_KINDS: dict[Kind, str] = {
    Kind.MOVE: "mov movi smov",
    Kind.INT: "not and or xor shr shl asr rol ror bfrev bfe bfi1 bfi2 lzd fbh fbl cbit addc subb add3 mach macl bfn "
    "avg sad2 sada2 srnd",
    Kind.SELECT: "sel cmp cmpn csel",
    Kind.BRANCH: "jmpi brd brc if else endif while break cont halt call calla ret goto join",
    Kind.FLOAT: "math frc rndu rndd rnde rndz dp2 dp3 dp4 dph line pln lrp",
    Kind.WAIT: "sync wait",
    Kind.OTHER: "nop illegal",
    Kind.MATRIX: "dpas dpasw",
}
_KIND = {opcode: kind for kind, words in _KINDS.items() for opcode in words.split()}
#: These are float or integer by their type.
_BY_TYPE = {"add": Kind.FLOAT, "mul": Kind.FLOAT, "mad": Kind.FMA, "mac": Kind.FMA, "madm": Kind.FMA, "dp4a": Kind.FMA}
#: Branches that always leave for their label: a guard makes them conditional.
_GOES = frozenset({"jmpi", "goto", "else", "break", "cont"})
#: Bytes of an instruction that is written shorter; the others are twice as long.
_COMPACTED = 8
#: Lanes that fill a register of 32 bytes.
_FULL = 8
_CALLS = frozenset({"call", "calla"})
_FLOATS = frozenset({"f", "hf", "df", "bf", "tf32"})
_NEWEST = "-cl-std=CL3.0"
#: Numbers that the driver writes into the code as it loads it.
_BY_DRIVER = "__INTEL_PATCH_"
#: Their front end hides images, which Intel's own header then fails on, unless it is told to have them.
_NO_IMAGES = frozenset({"pvc"})
_FEATURES = "-cl-ext=+__opencl_c_images,+__opencl_c_read_write_images"
#: Of SPIR-V: what a module begins with, words before its first instruction, and the instruction of an entry point.
MAGIC = 0x07230203
_HEADER, _ENTRY_POINT = 5, 15
#: Targets are compiled side by side; what SYCL's front end begins with is made by the first.
_one_at_a_time = threading.Lock()


def parse(text: str, register_bytes: int, lines: Mapping[int, int] | None = None) -> Listing:
    """The listing that `iga64 -d -Xprint-pc` prints, or `ocloc disasm`, which leaves addresses out.

    Args:
        register_bytes: of one general register: 32, or 64 on Xe-HPC and from Xe2 on.
        lines: address of an instruction -> line of the source.
    """
    out = Builder()
    known = lines or {}
    at = 0
    for line in text.splitlines():
        if match := _LINE.match(line):
            at = int(match["pc"], 16) if match["pc"] else at
            out.instructions.append(_instruction(match, register_bytes, known.get(at, 0)))
            at += _COMPACTED if "{Compacted" in line else 2 * _COMPACTED
        elif label := _LABEL.match(line):
            out.label(label[1])
        elif not _COMMENT.match(line):
            out.strange.append(line.strip())
    return out.listing()


def _instruction(match: re.Match[str], register_bytes: int, line: int) -> Instruction:
    opcode, _, modifier = match["opcode"].partition(".")
    rest, _, comment = match["rest"].partition("//")
    lanes = int(match["lanes"] or 1)
    text = match.string.strip()
    if text.startswith("/*"):
        text = text.partition("*/")[2].strip()
    if opcode in _SENDS:
        kind, access = _send(rest, comment.strip(), register_bytes, lanes)
        return Instruction(kind, text, 0, access, (), "EOT" not in rest, line, lanes)
    kind = _kind(opcode, modifier, rest)
    fmas = lanes if kind is Kind.FMA else _dpas(modifier, rest, lanes) if kind is Kind.MATRIX else 0
    targets = tuple(re.findall(r"\bL\d+\b", rest)) if kind is Kind.BRANCH else ()
    stays = not (opcode in _GOES and match["guard"] in (None, "(W)")) and opcode != "ret"
    return Instruction(kind, text, fmas, None, targets, stays, line, lanes, opcode in _CALLS)


def _kind(opcode: str, modifier: str, rest: str) -> Kind:
    if opcode in _BY_TYPE:
        kind = _BY_TYPE[opcode]
        return kind if _type(rest) in _FLOATS or opcode == "dp4a" else Kind.INT
    if (opcode == "sync" and modifier == "bar") or opcode == "wait":
        return Kind.BARRIER
    if opcode == "mov":
        if re.search(r"\br\[a0", rest):
            return Kind.SHUFFLE
        types = _TYPE.findall(rest)
        return Kind.CONVERT if len({t in _FLOATS for t in types[:2]}) > 1 and _is_number(rest) else Kind.MOVE
    return _KIND.get(opcode, Kind.UNKNOWN)


def _is_number(rest: str) -> bool:
    """Whether a move's source is a register, not a constant whose bits are meant."""
    operands = rest.split()
    return len(operands) > 1 and bool(re.match(r"-?\(?(?:abs)?\)?r\d", operands[1]))


def _type(rest: str) -> str:
    """The type of the destination."""
    found = _TYPE.search(rest)
    return found[1] if found else ""


def _dpas(modifier: str, rest: str, lanes: int) -> int | None:
    """Multiply-adds of `dpas.DEPTHxREPEAT`, each of whose 32-bit operands holds several elements."""
    shape = re.fullmatch(r"(\d+)x(\d+)", modifier)
    packed = {"hf": 2, "bf": 2, "b": 4, "ub": 4, "tf32": 1}.get((_TYPE.findall(rest) or [""])[-1])
    return int(shape[1]) * int(shape[2]) * packed * lanes if shape and packed else None


def _send(rest: str, comment: str, register_bytes: int, lanes: int) -> tuple[Kind, Access | None]:
    """A message: the disassembler decodes it in its comment."""
    if "barrier" in comment:
        return Kind.BARRIER, None
    if "fence" in comment:
        return Kind.WAIT, None
    if "end of thread" in comment:
        return Kind.BRANCH, None
    sizes = re.match(r"wr:\d+h?\+(\d+), rd:(\d+);\s*(.*)", comment)
    words = sizes[3].split("; ")[-1].strip() if sizes else ""
    is_store = bool(re.search(r"\bwrite\b|^store", words))
    if sizes is None or not (is_store or re.search(r"\bread\b|^load|^gather|^sample", words)):
        return Kind.UNKNOWN, None
    registers = int(sizes[1] if is_store else sizes[2])
    block = re.match(r"(?:load|store)(?:_block)?\.\w+\.d(\d+)x(\d+)t", words)
    size: int | None = int(block[1]) * int(block[2]) // 8 if block else registers * register_bytes
    if lanes < _FULL and re.search(r"gather|scatter|untyped", words):
        size = None  # registers are answered whole, whatever the few lanes asked for
    kind = Kind.STORE if is_store else Kind.LOAD
    return kind, Access(_space(rest, words), _how(words, registers), size)


def _space(rest: str, words: str) -> Space:
    if "scratch" in words or ".ss[" in words:
        return "scratch"
    # Before Xe-HPG local memory is the surface 0xFE, in the lowest bits of the descriptor.
    numbers = re.findall(r"\b0x([0-9A-Fa-f]+)\b", rest)
    old_local = "untyped" in words and bool(numbers) and int(numbers[-1], 16) & 0xFF == 0xFE
    return "local" if ".slm." in words or old_local else "global"


def _how(words: str, registers: int) -> str:
    """A message's kind and width, without caching and surfaces."""
    if lsc := re.match(r"(?:load|store)\w*\.\w+\.d\d+(?:x\d+t?)?", words):
        return lsc[0]
    return f"{words}, {registers} regs"


# --- what ocloc says of a kernel ------------------------------------------------------------------


def kernels(info: str) -> dict[str, str]:
    """Name -> its part of `.ze_info`."""
    body = re.split(r"^kernels_misc_info:", info, flags=re.MULTILINE)[0]
    parts = re.split(r"^  - name:\s*", body, flags=re.MULTILINE)[1:]
    return {part.split("\n", 1)[0].strip().strip("'\""): part for part in parts}


def resources(info: str) -> Resources:
    """What a kernel's part of `.ze_info` says."""

    def number(key: str) -> int | None:
        found = re.search(rf"^\s*{key}:\s*(\d+)", info, re.MULTILINE)
        return int(found[1]) if found else None

    lanes = number("simd_size")
    buffers = re.findall(r"type:\s*(\w+)\s+usage:\s*(\w+)\s+size:\s*(\d+)", info)
    scratch = [(usage, int(size)) for _, usage, size in buffers]
    total = sum(size for _, size in scratch)
    group = re.search(r"required_work_group_size:\s*\[\s*(\d+),\s*(\d+),\s*(\d+)", info)
    return Resources(
        lanes=lanes,
        registers=number("grf_count"),
        # Intel counts it for a thread of all lanes.
        scratch=-(-total // lanes) if lanes else None,
        spills=", ".join(f"{size} bytes of {usage.replace('_', ' ')}" for usage, size in scratch),
        local_bytes=number("slm_size") or 0,
        at_launch=re.search(r"^\s*addrmode:\s*slm\b", info, re.MULTILINE) is not None,
        group=int(group[1]) * int(group[2]) * int(group[3]) if group else None,
    )


# --- the compiler ---------------------------------------------------------------------------------


def compiled(machine: Machine, source: Input) -> Compiled:
    """A kernel by ocloc; one of SYCL by way of SPIR-V. Raises: ToolError."""
    if source.language == "SYCL":
        made = modules(source.content.decode("utf-8", "replace"), source.where)
        name = pick_kernel(machine, source, [name for module in made for name in module.kernels])
        module = next(module for module in made if name in module.kernels)
        source = replace(source, language="SPIR-V", content=module.content, kernel=name)
    inputs = (machine.device, machine.platform, source.key, *source.options)
    texts = cached((machine.compiler,), inputs, lambda folder: _run(machine, source, folder))
    infos = kernels(texts["info"])
    name = pick_kernel(machine, source, [n for n in infos if f"asm {n}" in texts])
    if texts["unresolved"]:
        raise ToolError(f"{machine.target}: unresolved in the machine code: {texts['unresolved']}: it lacks these")
    known = {int(at): line for at, line in json.loads(texts.get(f"lines {name}", "{}")).items()}
    size = int(machine.figures.register_bytes or 32)
    return Compiled(name, resources(infos[name]), parse(texts[f"asm {name}"], size, known))


def _options(machine: Machine, source: Input) -> list[str]:
    if source.language == "SPIR-V":
        return ["-spirv_input", "-options", " ".join((*source.options, "-gline-tables-only"))]
    standard = next((o for o in source.options if o.startswith("-cl-std=")), _NEWEST)
    if machine.target in _NO_IMAGES:
        standard = _NEWEST
    others = [o for o in source.options if not o.startswith("-cl-std=")]
    options = ["-options", " ".join((standard, *others, "-gline-tables-only"))]
    return [*options, *(["-internal_options", _FEATURES] if standard == _NEWEST else [])]


def _run(machine: Machine, source: Input, folder: Path) -> dict[str, str]:
    ocloc = find(machine.compiler)
    file = source.write(folder)
    command = [ocloc, "compile", "-file", str(file), "-device", machine.device, "--format", "zebin"]
    command += [*_options(machine, source), "-out_dir", str(folder), "-output", "out"]
    answer = run(command, folder)
    binaries = sorted(folder.glob("out*.bin"))
    if "Cannot get HW Info" in answer:
        said = f"{machine.target}: {ocloc} of version {version(machine.compiler)} does not know it"
        raise ToolError(f"{said}: {TOOLS[machine.compiler][1]}")
    if not binaries:
        raise refusal("ocloc", machine, source, answer, folder)
    zebin = read_zebin(binaries[0].read_bytes())
    texts = {"info": zebin.info, "unresolved": ", ".join(zebin.unresolved)}
    run([ocloc, "disasm", "-file", str(binaries[0]), "-device", machine.device, "-dump", "listings"], folder)
    for name, code in zebin.code.items():
        listing = folder / "listings" / f".text.{name}.asm"
        whole = listing.is_file()
        texts[f"asm {name}"] = listing.read_text("utf-8") if whole else _by_iga(machine, code, folder)
        texts[f"lines {name}"] = json.dumps(zebin.lines.get(name, {}))
    return texts


def _by_iga(machine: Machine, code: bytes, folder: Path) -> str:
    """A listing by the tool apart, for an ocloc that finds no library to disassemble with, as Debian 12's."""
    if not machine.platform:
        raise ToolError(
            f"{machine.target}: the ocloc on PATH lists no instructions of it: {TOOLS[machine.compiler][1]}"
        )
    binary = folder / "code.krn"
    binary.write_bytes(code)
    return run([find("iga64"), "-d", "-Xprint-pc", f"-p={machine.platform}", binary.name], folder, errors=False)


# --- the files that ocloc writes ------------------------------------------------------------------


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


def read_zebin(data: bytes) -> Zebin:
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
        undefined = {str(s.name) for s in symbols if s.name and s["st_shndx"] == "SHN_UNDEF"}
        missing = {name for name in undefined if not name.startswith(_BY_DRIVER)}
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


# --- SYCL, whose front end makes SPIR-V for Intel's compiler to go on from ------------------------


@dataclass(frozen=True, slots=True)
class Module:
    """A SPIR-V module.

    Attributes:
        kernels: its entry points.
    """

    content: bytes
    kernels: tuple[str, ...]


def modules(text: str, where: str) -> list[Module]:
    """What the front end makes of a source, from the cache or made now: a module for kernels that go together.

    Raises: ToolError with the compiler's words, or with what brings it.
    """
    from gemmgen.runtime.sycl_library import version

    try:
        with _one_at_a_time:
            inputs = ("SPIR-V", version(), text)
            made = cached((), inputs, lambda _folder: {"spirv": spirv(text, where).decode("latin-1")})["spirv"]
    except DeviceError as error:
        raise ToolError(error.problems) from None
    return list(_modules(made.encode("latin-1")))


def spirv(text: str, where: str, options: Sequence[str] = ()) -> bytes:
    """The modules of a source, one behind another. In a process of its own, which the compiler may crash in.

    Raises: ToolError with the compiler's words; DeviceError with what brings it.
    """
    from gemmgen.runtime.sycl_build import run_worker
    from gemmgen.runtime.sycl_devices import pick
    from gemmgen.runtime.sycl_worker import REFUSED

    with TemporaryDirectory() as folder:
        # What the front end made. SYCLBIN lacks modules that the device can't run, such as by instructions that a
        # CPU lacks; and there is none where the device's own compiler, which is asked as well, refuses a module.
        dumped = {"SYCL_DUMP_IMAGES": "1", "SYCL_DUMP_IMAGES_PREFIX": f"{folder}/"}
        try:
            answer = run_worker(pick().number, "none", "object", text, SECONDS, dumped, options)
        except subprocess.TimeoutExpired:
            raise ToolError(f"SYCL's compiler did not end in {SECONDS} s on {where}") from None
        made = b"".join(file.read_bytes() for file in sorted(Path(folder).glob("*.spv")))
        if answer.returncode == 0 or (answer.returncode == REFUSED and made):
            return made
    log = re.sub(r"rtc_\d+\.cpp", where, answer.stderr.decode("utf-8", "replace"))
    lines = [line for line in log.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if re.search(r"\berror\b", line)), 0)
    how = "does not compile" if answer.returncode == REFUSED else f"ended with exit code {answer.returncode} on"
    said = "\n    ".join(lines[first : first + LOG_LINES])
    raise ToolError(f"SYCL's compiler {how} {where}:\n    {said}")


def _modules(binary: bytes) -> Iterator[Module]:
    """The modules that stand in a file of whatever kind."""
    magic = struct.pack("<I", MAGIC)
    at = binary.find(magic)
    while at >= 0:
        end, names = _walk(binary, at)
        if names:
            yield Module(binary[at:end], names)
        at = binary.find(magic, max(end, at + 4))


def _walk(binary: bytes, start: int) -> tuple[int, tuple[str, ...]]:
    """Where a module ends, and its entry points: instruction after instruction, each of which says how long it is."""
    at, names = start + 4 * _HEADER, []
    while at + 4 <= len(binary):
        (word,) = struct.unpack_from("<I", binary, at)
        length, opcode = 4 * (word >> 16), word & 0xFFFF
        if not length or word == MAGIC or at + length > len(binary):
            break
        if opcode == _ENTRY_POINT:
            names.append(binary[at + 12 : at + length].split(b"\0", 1)[0].decode("utf-8", "replace"))
        at += length
    return at, tuple(names)
