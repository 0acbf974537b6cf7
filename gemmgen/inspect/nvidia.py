"""NVIDIA: nvcc compiles, `nvdisasm` disassembles; both are read here."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from gemmgen.errors import ToolError
from gemmgen.inspect.code import MATH, Access, Builder, Compiled, Instruction, Kind, Listing, Resources, Space
from gemmgen.inspect.machine import Machine
from gemmgen.inspect.toolchain import Input, cached, pick_kernel, refusal, run
from gemmgen.tools import find

WARP = 32
_EXTERN_SHARED = re.compile(rb"\bextern\b[^;]*\b__shared__\b")
_LABEL = re.compile(r"^(\.[\w.$]+|\$[\w.$]+|[A-Za-z_][\w$]*):\s*$")
_SOURCE = re.compile(r'^\s*//## File "(.*)", line (\d+)( inlined.*)?\s*$')
_LINE = re.compile(
    r"^\s*/\*(?P<pc>[0-9a-f]{4,})\*/\s+(?P<guard>@!?U?P[T0-9]+\s+)?(?P<opcode>[A-Z][A-Za-z0-9_.]*)(?P<rest>(?:\s.*)?);"
)
_PASSED = re.compile(r"^\s*(//.*|\.[a-z].*|/\*[0-9a-f\s]*\*/|)\s*$")
#: First parts of opcodes (CUDA Binary Utilities, "Instruction Set Reference").
_KINDS: dict[Kind, str] = {
    Kind.FMA: "FFMA FFMA2 FFMA32I HFMA2 DFMA",
    Kind.MATRIX: "HMMA IMMA DMMA QMMA OMMA BMMA HGMMA IGMMA QGMMA BGMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA",
    Kind.FLOAT: "FADD FADD2 FADD32I FMUL FMUL2 FMUL32I FCHK FMNMX FMNMX3 MUFU HADD2 HMUL2 HMNMX2 DADD DMUL FSWZADD "
    "FRND RRO",
    Kind.INT: "IADD IADD3 IADD32I IMAD IMUL LEA LOP LOP3 SHF SHL SHR ISCADD IABS IMNMX VIMNMX VIMNMX3 VIADD "
    "VIADDMNMX POPC FLO BREV BMSK SGXT IDP IDP4A XMAD BFE BFI VABSDIFF VABSDIFF4 LOP32I PLOP3 P2R R2P IMAD32I",
    Kind.MOVE: "MOV MOV32I PRMT CS2R S2R R2UR UMOV S2UR MOVM",
    Kind.SCALAR: "UIADD3 UIMAD ULEA ULOP ULOP3 USHF USEL UISETP UPRMT ULDC UFLO UPOPC UBREV UBMSK USGXT UP2UR UR2UP "
    "UPLOP3 VOTEU UIABS UVIADD UVIMNMX UIADD3X LDC LDCU UFSETP UFADD UFMUL UFFMA UF2I UI2F UF2F UFSEL UFMNMX UIMNMX "
    "R2B B2R UCGABAR_ARV UCGABAR_WAIT UVIRTCOUNT USETMAXREG UCLEA USHL USHR",
    Kind.SHUFFLE: "SHFL REDUX CREDUX MATCH VOTE",
    Kind.SELECT: "SEL FSEL ISETP FSETP HSETP2 DSETP FSET HSET2 PSETP CSETP ICMP FCMP",
    Kind.CONVERT: "I2F F2I F2F I2I I2FP F2FP F2IP I2IP",
    Kind.LOAD: "LD LDG LDS LDL LDSM LDGSTS LDTM TEX TLD TLD4 TXQ SULD UTMALDG UBLKCP UTMAPF UBLKPF LDGMC TXD CCTL "
    "CCTLL CCTLT UTMACCTL",
    Kind.STORE: "ST STG STS STL STSM STAS STTM RED REDG REDAS ATOM ATOMS ATOMG SUST UTMASTG UTMAREDG UBLKRED SURED "
    "SUATOM UTMACMDFLUSH",
    Kind.BRANCH: "BRA BRX BRXU JMP JMX JMXU EXIT RET CALL BSSY BSYNC BREAK WARPSYNC BPT KILL NANOSLEEP YIELD BMOV RTT "
    "ELECT WARPGROUP WARPGROUPSET ENDCOLLECTIVE COLLECTIVE",
    Kind.BARRIER: "BAR SYNCS ARRIVES B2R UCGABAR",
    Kind.WAIT: "DEPBAR LDGDEPBAR MEMBAR ERRBAR FENCE CCTLIVALL UTMACMDFLUSH PREEXIT ACQBULK LDGDEPBAR ACQSHMINIT",
    Kind.OTHER: "NOP LEPC GETLMEMBASE SETLMEMBASE PMTRIG S2X CSMTEST SETCTAID",
}
_KIND = {opcode: kind for kind, words in reversed(_KINDS.items()) for opcode in words.split()}
#: After these the next instruction is another one, unless a guard says otherwise.
_LEAVES = frozenset({"BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "EXIT", "RET", "KILL"})
#: They go where no label says.
_INDIRECT = frozenset({"BRX", "BRXU", "JMX", "JMXU"})
_SPACES: dict[str, Space] = {"LDS": "local", "STS": "local", "LDSM": "local", "STSM": "local", "ATOMS": "local"}
_SPACES |= {"LDL": "scratch", "STL": "scratch"}
_NO_ACCESS = frozenset({"CCTL", "CCTLL", "CCTLT", "UTMACCTL", "UTMAPF", "UBLKPF", "TXQ"})
_BULK = frozenset({"UTMALDG", "UBLKCP", "UTMASTG", "UTMAREDG", "UBLKRED"})


def sections(text: str) -> list[str]:
    """The parts of what `nvdisasm -g` prints, each with its headline."""
    return re.split(r"^(?=//-{5,} \.)", text, flags=re.MULTILINE)[1:]


def functions(text: str) -> dict[str, str]:
    """Name -> its instructions."""
    found = ((re.match(r"//-+ \.text\.(\S+)", part), part.partition("\n")[2]) for part in sections(text))
    return {match[1]: body for match, body in found if match is not None}


def parse(text: str) -> Listing:
    """The listing of one function."""
    out = Builder()
    line = 0
    for row in text.splitlines():
        if match := _LINE.match(row):
            out.instructions.append(_instruction(match, line))
        elif source := _SOURCE.match(row):
            # The innermost place comes first; those that it is inlined at follow.
            line = int(source[2])
        elif label := _LABEL.match(row):
            out.label(label[1])
        elif not _PASSED.match(row):
            out.strange.append(row.strip())
    return out.listing()


def _instruction(match: re.Match[str], line: int) -> Instruction:
    opcode, rest = match["opcode"], match["rest"]
    first, *modifiers = opcode.split(".")
    guard = (match["guard"] or "").strip()
    kind = _kind(first, modifiers, guard)
    if kind is Kind.FMA and re.search(r",\s*-?RZ,\s*-?RZ,", rest):
        kind = Kind.MOVE  # a constant by way of 0 * 0 + constant
    goes = re.findall(r"`\(([^)]+)\)", rest)
    # To a label of the function's own, CALL is a branch that does not come back.
    calls = first == "CALL" and not all(x.startswith(".L_") for x in goes or "?")
    targets = tuple(goes) if first in ("BRA", "JMP", "CALL") and not calls else ()
    # A condition is a guard before the opcode, or an operand before the label.
    conditional = guard not in ("", "@PT", "@UPT") or bool(targets and rest.split("`")[0].strip())
    leaves = (first in _LEAVES or (first == "CALL" and not calls)) and not conditional
    if first in _INDIRECT:
        kind = Kind.UNKNOWN
    text = " ".join(match[0].split())
    fmas = _fmas(first, modifiers) if kind in MATH else 0
    if first == "HFMA2" and len(re.findall(r"\.H[01]_H[01]", rest)) > 2:
        fmas = WARP  # both halves of each operand are one number: a multiply-add of single ones
    access = _access(first, modifiers, kind)
    return Instruction(kind, text, fmas, access, targets, not leaves, line, calls=calls)


def _kind(first: str, modifiers: list[str], guard: str) -> Kind:
    if guard in ("@!PT", "@!UPT"):
        return Kind.OTHER  # never runs: a workaround that the compiler writes
    if (first == "IMAD" and modifiers[:1] == ["MOV"]) or (first == "BREV" and "MOV" in modifiers):
        return Kind.MOVE
    return _KIND.get(first, Kind.UNKNOWN)


def _fmas(first: str, modifiers: list[str]) -> int | None:
    """Multiply-adds of a warp."""
    match first:
        case "FFMA" | "FFMA32I" | "DFMA":
            return WARP
        case "FFMA2" | "HFMA2":
            return 2 * WARP
        case _ if _KIND.get(first) is Kind.MATRIX:
            shape = next((m for m in modifiers if re.fullmatch(r"\d{4,}", m)), "")
            sizes = {
                "1688": (16, 8, 8),
                "16816": (16, 8, 16),
                "16832": (16, 8, 32),
                "884": (8, 8, 4),
                "1684": (16, 8, 4),
            }
            m, n, k = sizes.get(shape, (0, 0, 0))
            return m * n * k or None
    return 0


def _access(first: str, modifiers: list[str], kind: Kind) -> Access | None:
    if kind not in (Kind.LOAD, Kind.STORE) or first in _NO_ACCESS:
        return None
    words = [m for m in modifiers if m in ("U8", "S8", "U16", "S16", "64", "128", "BYPASS", "M88", "4", "2", "MT88")]
    how = ".".join((first, *words))
    if first in _BULK:
        return Access("global", how, None)
    wide = next((int(w.lstrip("US")) // 8 for w in words if w in ("U8", "S8", "U16", "S16", "64", "128")), 4)
    if first == "LDSM":
        wide = 4 * int(modifiers[-1]) if modifiers[-1:] and modifiers[-1].isdecimal() else 4
    return Access(_SPACES.get(first, "global"), how, wide * WARP)


# --- what ptxas says ------------------------------------------------------------------------------


def resources(report: str, name: str) -> Resources:
    """What `ptxas -v` says of a kernel."""
    parts = re.split(r"Compiling entry function '([^']+)'", report)
    said = dict(zip(parts[1::2], parts[2::2], strict=True)).get(name, "")

    def number(pattern: str) -> int | None:
        found = re.search(pattern, said)
        return int(found[1]) if found else None

    stores, loads = number(r"(\d+) bytes spill stores"), number(r"(\d+) bytes spill loads")
    spilled = f"{stores} bytes stored, {loads} loaded" if stores or loads else ""
    return Resources(
        lanes=WARP,
        registers=number(r"Used (\d+) registers"),
        scratch=number(r"(\d+) bytes stack frame"),
        spills=spilled,
        local_bytes=(number(r"(\d+) bytes smem") or 0) if said else None,
    )


def group_of(cubin_info: str, name: str) -> int | None:
    """Threads of a block, where the source fixes them: `.reqntid` or `__launch_bounds__`, from `nvdisasm`'s header."""
    own = (part for part in sections(cubin_info) if re.match(rf"//-+ \.nv\.info\.{re.escape(name)}\s", part))
    words = next(own, "")
    for key in ("EIATTR_REQNTID", "EIATTR_MAX_THREADS"):
        found = re.search(rf"{key}.*?((?:\.word\s+0x[0-9a-f]+\s*(?:/\*[0-9a-f]*\*/\s*)?){{3}})", words, re.DOTALL)
        if found:
            x, y, z = (int(v, 16) for v in re.findall(r"0x([0-9a-f]+)", found[1]))
            return x * y * z
    return None


# --- the compiler ---------------------------------------------------------------------------------


def compiled(machine: Machine, source: Input) -> Compiled:
    """A kernel by nvcc. Raises: ToolError."""
    inputs = (machine.device, source.key, *source.options)
    texts = cached(("nvcc", "nvdisasm"), inputs, lambda folder: _run(machine, source, folder))
    name = pick_kernel(machine, source, list(functions(texts["asm"])))
    found = read(machine, texts["report"], texts["asm"], name)
    group, at_launch = group_of(texts["asm"], name), _EXTERN_SHARED.search(source.content) is not None
    return replace(found, resources=replace(found.resources, group=source.group or group, at_launch=at_launch))


def read(machine: Machine, report: str, disassembly: str, name: str) -> Compiled:
    """A kernel from ptxas' report and the whole file's disassembly. Raises: ToolError where it has no code."""
    text = functions(disassembly).get(name)
    if text is None:
        raise ToolError(f"{machine.target}: {name} has no code")
    return Compiled(name, resources(report, name), parse(text))


def _run(machine: Machine, source: Input, folder: Path) -> dict[str, str]:
    nvcc, nvdisasm = find("nvcc"), find("nvdisasm")
    file = source.write(folder)
    command = [nvcc, "-std=c++17", f"-arch={machine.device}", "-cubin", "-lineinfo", "-Xptxas", "-v", file.name]
    answer = run([*command, *source.options, "-o", "out.cubin"], folder)
    cubin = folder / "out.cubin"
    if not cubin.exists():
        raise refusal("nvcc", machine, source, answer, folder)
    listing = run([nvdisasm, "-g", cubin.name], folder, errors=False)
    wanted = [p for p in sections(listing) if re.search(r"^//-+ \.(text|nv\.info)\.", p)]
    return {"report": answer, "asm": "".join(wanted)}
