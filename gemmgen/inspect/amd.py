"""AMD: clang compiles to assembly, which is read here."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from gemmgen.errors import ToolError
from gemmgen.inspect.code import Access, Builder, Compiled, Instruction, Kind, Listing, Resources
from gemmgen.inspect.machine import Machine
from gemmgen.inspect.toolchain import Input, cached, pick_kernel, refusal, run
from gemmgen.tools import TOOLS, find

#: OpenCL's built-ins: without them these stay calls, and every count is false.
LIBCLC = Path("/usr/lib/clc/amdgcn-amd-amdhsa.bc")
_LABEL = re.compile(r"^(\.?[A-Za-z_$][\w$.]*):")
_LOC = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)\s")
_LINE = re.compile(r"^\s+(?P<opcode>[a-z]+_[a-z0-9_]+)(?P<rest>(?:\s.*)?)$")
_PASSED = re.compile(r"^\s*([;#].*|\.[a-z]\S*(\s.*)?|)$")
_FLOAT_TYPES = r"_(f16|f32|f64|bf16|legacy_f32)"
#: First match says the kind (LLVM, "AMDGPU" ISA guides).
_PATTERNS: tuple[tuple[str, Kind], ...] = (
    (r"v_s?mfmac?_|v_s?wmma", Kind.MATRIX),
    (r"v_(pk_)?(fma|fmac|mac|mad|fmaak|fmamk|madak|madmk|mad_mix|fma_mix)(lo|hi)?" + _FLOAT_TYPES, Kind.FMA),
    (r"v_dot\d|v_fma_mix|v_mad_mix", Kind.FMA),
    (r"v_(readlane|writelane|readfirstlane|permlane\w*)|ds_b?permute|ds_swizzle", Kind.SHUFFLE),
    (r"v_(mov|accvgpr|swap|pk_mov|movrel)", Kind.MOVE),
    (r"v_cmpx?_|v_cndmask", Kind.SELECT),
    (r"v_cvt_", Kind.CONVERT),
    (r"v_nop", Kind.OTHER),
    (r"v_(pk_)?(add|sub|subrev|mul|min|max|med3|min3|max3|minimum|maximum)\w*" + _FLOAT_TYPES, Kind.FLOAT),
    (r"v_(rcp|rsq|sqrt|exp|log|sin|cos|frexp|ldexp|fract|trunc|ceil|floor|rndne|div_|trig|cube)", Kind.FLOAT),
    (r"v_", Kind.INT),
    (r"s_(branch|cbranch|endpgm|setpc|swappc|call|getpc|trap)", Kind.BRANCH),
    (r"s_barrier", Kind.BARRIER),
    (r"s_(waitcnt|wait|delay_alu|sleep|clause|set_inst_prefetch|inst_prefetch|setprio|sethalt|sendmsg)", Kind.WAIT),
    (r"s_(nop|code_end|version|dcache|icache|ttrace|set_gpr_idx|setreg|getreg|denorm_mode|round_mode)", Kind.OTHER),
    (r"s_(buffer_)?load_", Kind.LOAD),
    (r"s_", Kind.SCALAR),
    (r"ds_(read|load|consume|append)", Kind.LOAD),
    (r"ds_", Kind.STORE),
    (r"(global|flat|buffer|scratch|tbuffer|image)_(load|gather|sample|get)", Kind.LOAD),
    (r"(global|flat|buffer|scratch|tbuffer|image)_(store|atomic)", Kind.STORE),
    (r"(global|buffer)_(wb|inv|gl\d_inv|wbinv\w*|wbl2|invl2)", Kind.WAIT),
)
_COMPILED = tuple((re.compile(pattern), kind) for pattern, kind in _PATTERNS)


def functions(text: str) -> dict[str, str]:
    """Name -> its part of the assembly."""
    found = re.finditer(r"^(\w[\w$.]*):[^\n]*; @\1\n(.*?)^\.Lfunc_end\d+:", text, re.MULTILINE | re.DOTALL)
    return {match[1]: match[2] for match in found}


def kernels(text: str) -> list[str]:
    """The kernels that the metadata names."""
    return re.findall(r"^\s*\.name:\s*(\w[\w$.]*)\s*\n\s*\.private_segment_fixed_size", text, re.MULTILINE)


def trimmed(text: str) -> str:
    """The assembly without its debugging tables, which are most of it."""
    tables = r"^\s*\.section\s+\.debug_.*?(?=^\s*\.(?:text|amdgpu_metadata)\b|\Z)"
    return re.sub(tables, "", text, flags=re.MULTILINE | re.DOTALL)


def parse(text: str, wave: int) -> Listing:
    """The listing of one function, run by waves of so many lanes."""
    out = Builder()
    line = 0
    for row in text.splitlines():
        if label := _LABEL.match(row):
            out.label(label[1])
        elif loc := _LOC.match(row):
            line = int(loc[1]) or line
        elif match := _LINE.match(row):
            out.instructions.append(_instruction(match, wave, line))
        elif not _PASSED.match(row):
            out.strange.append(row.strip())
    return out.listing()


def _instruction(match: re.Match[str], wave: int, line: int) -> Instruction:
    """One, or the two halves of a dual instruction, which issue together as one."""
    text = " ".join(match[0].partition(";")[0].split())
    opcode = match["opcode"]
    first, _, second = match["rest"].partition("::")
    plain = opcode.replace("v_dual_", "v_")
    kind = _kind(plain)
    fmas = _fmas(plain, kind, wave)
    if second:
        other = second.split()[0].replace("v_dual_", "v_")
        also = _fmas(other, _kind(other), wave)
        fmas = None if fmas is None or also is None else fmas + also
        # A pair is one instruction; it multiplies and adds if one of its halves does.
        kind = Kind.FMA if Kind.FMA in (kind, _kind(other)) else kind
    targets: tuple[str, ...] = ()
    stays = True
    if kind is Kind.BRANCH:
        targets = tuple(re.findall(r"\.L\w+", first))
        stays = opcode.startswith(("s_cbranch", "s_swappc", "s_call", "s_getpc", "s_trap"))
    access, calls = _access(opcode, kind, wave), opcode.startswith(("s_swappc", "s_call"))
    return Instruction(kind, text, fmas, access, targets, stays, line, calls=calls)


@cache
def _kind(opcode: str) -> Kind:
    if opcode.endswith("_dpp") and opcode.startswith("v_mov"):
        return Kind.SHUFFLE
    return next((kind for pattern, kind in _COMPILED if pattern.match(opcode)), Kind.UNKNOWN)


def _fmas(opcode: str, kind: Kind, wave: int) -> int | None:
    """Multiply-adds of a wave."""
    if kind is Kind.FMA:
        if dot := re.match(r"v_dot(\d)", opcode):
            return int(dot[1]) * wave
        return (2 if opcode.startswith("v_pk_") else 1) * wave
    if kind is Kind.MATRIX:
        shape = re.search(r"_(\d+)x(\d+)x(\d+)_?(?:(\d+)b)?", opcode)
        return int(shape[1]) * int(shape[2]) * int(shape[3]) * int(shape[4] or 1) if shape else None
    return 0


def _access(opcode: str, kind: Kind, wave: int) -> Access | None:
    if kind not in (Kind.LOAD, Kind.STORE):
        return None
    how = re.sub(r"_(e32|e64)$", "", opcode)
    wide = _width(opcode)
    if opcode.startswith("s_"):
        return Access("global", how, wide)
    size = None if wide is None else wide * wave
    if opcode.startswith("ds_"):
        return Access("local", how, size)
    # gfx9 reaches scratch by buffer instructions, which nothing else of OpenCL C compiles to.
    scratch = opcode.startswith(("scratch_", "buffer_"))
    return Access("scratch" if scratch else "global", how, size)


@cache
def _width(opcode: str) -> int | None:
    """Bytes for one lane."""
    twice = 2 if re.match(r"ds_(read|write|load|store)_?2", opcode) else 1
    if bits := re.search(r"_[bui](8|16|32|64|96|128|256|512)(?:_|$)", opcode):
        return twice * int(bits[1]) // 8
    if words := re.search(r"_dword(?:x(\d+))?(?:_|$)", opcode):
        return 4 * int(words[1] or 1)
    named = {"ubyte": 1, "sbyte": 1, "byte": 1, "short": 2, "ushort": 2, "sshort": 2}
    return next((size for name, size in named.items() if f"_{name}" in opcode), None)


# --- what clang says ------------------------------------------------------------------------------


def resources(text: str, name: str) -> Resources:
    """What the assembly's metadata and comments say of a kernel."""
    metadata = text.partition("amdhsa.kernels:")[2]
    entries = re.split(r"^  - ", metadata, flags=re.MULTILINE)
    entry = next((e for e in entries if re.search(rf"^\s*\.name:\s*{re.escape(name)}\s*$", e, re.MULTILINE)), "")

    def number(key: str) -> int | None:
        found = re.search(rf"^\s*\.{key}:\s*(\d+)", entry, re.MULTILINE)
        return int(found[1]) if found else None

    vector, scalar = number("vgpr_spill_count") or 0, number("sgpr_spill_count") or 0
    group = re.search(r"\.reqd_workgroup_size:\s*- (\d+)\s*- (\d+)\s*- (\d+)", entry)
    said = re.search(rf"^{re.escape(name)}:.*?; Occupancy: (\d+)", text, re.MULTILINE | re.DOTALL)
    registers = number("vgpr_count")
    if registers is not None and (extra := number("agpr_count")):
        # Where there are accumulation registers, the first number holds both kinds (from gfx90a on), or not (gfx908).
        registers = max(registers, extra)
    return Resources(
        lanes=number("wavefront_size"),
        registers=registers,
        scratch=number("private_segment_fixed_size"),
        spills=f"{vector} vector, {scalar} scalar registers" if vector or scalar else "",
        local_bytes=number("group_segment_fixed_size"),
        at_launch="dynamic_shared_pointer" in entry,
        group=int(group[1]) * int(group[2]) * int(group[3]) if group else None,
        occupancy=int(said[1]) if said else None,
    )


# --- the compiler ---------------------------------------------------------------------------------


def compiled(machine: Machine, source: Input) -> Compiled:
    """A kernel by clang. Raises: ToolError."""
    inputs = (machine.device, source.key, *source.options)
    texts = cached(("clang",), inputs, lambda folder: _run(machine, source, folder))
    return read(machine, texts["asm"], pick_kernel(machine, source, kernels(texts["asm"])))


def read(machine: Machine, text: str, name: str) -> Compiled:
    """A kernel from clang's assembly. Raises: ToolError where it has no code."""
    body, found = functions(text).get(name), resources(text, name)
    if body is None:
        raise ToolError(f"{machine.target}: {name} has no code")
    return Compiled(name, found, parse(body, found.lanes or 64))


def _run(machine: Machine, source: Input, folder: Path) -> dict[str, str]:
    clang = find("clang")
    if not LIBCLC.exists():
        raise ToolError(f"{LIBCLC} is not on this machine: {TOOLS['clang'][1]}")
    file = source.write(folder)
    standard = [o for o in source.options if o.startswith("-cl-std=")] or ["-cl-std=CL2.0"]
    others = [o for o in source.options if not o.startswith("-cl-std=")]
    command = [clang, "-x", "cl", *standard, *others, "-O3", "-gline-tables-only", "-target", "amdgcn-amd-amdhsa"]
    command += [f"-mcpu={machine.device}", "-Xclang", "-finclude-default-header", "-nogpulib", "-w"]
    command += ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(LIBCLC), "-S", file.name, "-o", "out.s"]
    answer = run(command, folder)
    assembly = folder / "out.s"
    if not assembly.exists():
        raise refusal("clang", machine, source, answer, folder)
    return {"asm": trimmed(assembly.read_text("utf-8", "replace"))}
