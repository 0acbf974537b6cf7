"""Intel: `ocloc` compiles, `iga64` disassembles; both are read here."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gemmgen.inspect.code import Access, Builder, Compiled, Instruction, Kind, Listing, Resources, Space

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
#: Lanes that fill a register of 32 bytes.
_FULL = 8
_CALLS = frozenset({"call", "calla"})
_FLOATS = frozenset({"f", "hf", "df", "bf", "tf32"})


def parse(text: str, register_bytes: int, lines: Mapping[int, int] | None = None) -> Listing:
    """The listing that `iga64 -d -Xprint-pc` prints.

    Args:
        register_bytes: of one general register: 32, or 64 on Xe-HPC.
        lines: address of an instruction -> line of the source.
    """
    out = Builder()
    known = lines or {}
    for line in text.splitlines():
        if match := _LINE.match(line):
            at = int(match["pc"], 16) if match["pc"] else -1
            out.instructions.append(_instruction(match, register_bytes, known.get(at, 0)))
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
        return Instruction(match["opcode"], kind, text, 0, access, (), "EOT" not in rest, line, lanes)
    kind = _kind(opcode, modifier, rest)
    fmas = lanes if kind is Kind.FMA else _dpas(modifier, rest, lanes) if kind is Kind.MATRIX else 0
    targets = tuple(re.findall(r"\bL\d+\b", rest)) if kind is Kind.BRANCH else ()
    stays = not (opcode in _GOES and match["guard"] in (None, "(W)")) and opcode != "ret"
    return Instruction(match["opcode"], kind, text, fmas, None, targets, stays, line, lanes, opcode in _CALLS)


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


def compiled(name: str, info: str, assembly: str, register_bytes: int, lines: Mapping[int, int]) -> Compiled:
    """A kernel from its part of `.ze_info` and its disassembly."""
    return Compiled(name, resources(info), parse(assembly, register_bytes, lines))
