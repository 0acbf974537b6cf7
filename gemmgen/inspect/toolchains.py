"""From a source to a compiled kernel, for each vendor. Judged by the machine code, never by an exit status."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gemmgen.errors import ToolError, suggest
from gemmgen.inspect import amd, intel, nvidia
from gemmgen.inspect.code import Compiled
from gemmgen.inspect.machine import Machine
from gemmgen.inspect.tools import LIBCLC, Answer, kept, run
from gemmgen.tools import TOOLS, find

Language = Literal["OpenCL C", "CUDA C++", "SPIR-V", "SYCL"]
_LOG_LINES = 12
_NEWEST = "-cl-std=CL3.0"
_AT_LAUNCH = "the launch decides how much local memory a group has: it is not known here, nor is occupancy"
_EXTERN_SHARED = re.compile(rb"\bextern\b[^;]*\b__shared__\b")
#: Their front end hides images, which Intel's own header then fails on, unless it is told to have them.
_NO_IMAGES = frozenset({"pvc"})
_INTEL_FEATURES = "-cl-ext=+__opencl_c_images,+__opencl_c_read_write_images"


@dataclass(frozen=True, slots=True)
class Input:
    """What is compiled.

    Attributes:
        content: the file.
        kernel: the one that is meant; None for the only one.
        options: that the compiler must be told.
        group: work-items of a group, where the host decides.
        launch_bytes: local memory that the launch asks for, of which the compiler knows nothing; None if nobody does.
        where: a name for messages.
    """

    language: Language
    content: bytes
    kernel: str | None = None
    options: tuple[str, ...] = ()
    group: int | None = None
    where: str = "kernel"
    launch_bytes: int | None = None


def compile_for(machine: Machine, source: Input) -> Compiled:
    """A kernel as the device's compiler leaves it.

    Raises: ToolError if a tool is missing or refuses the source, or if there is no such kernel in the result.
    """
    if not machine.device:
        raise ToolError(f"{machine.target}: {machine.note}")
    compilers: dict[str, dict[Language, Callable[[Machine, Input], Compiled]]] = {
        "intel": {"OpenCL C": _intel, "SPIR-V": _intel, "SYCL": _sycl},
        "nvidia": {"CUDA C++": _nvidia},
        "amd": {"OpenCL C": _amd},
    }
    able = compilers[machine.vendor]
    if source.language not in able:
        raise ToolError(f"{machine.target} takes no {source.language} here: {' or '.join(able)}")
    compiled = able[source.language](machine, source)
    if not compiled.listing.instructions:
        raise ToolError(f"{machine.target}: {compiled.kernel} came out empty: a built-in that {machine.target} lacks?")
    known, notes = compiled.resources, compiled.notes
    group = known.group if known.group is not None else source.group
    local = None if known.local_bytes is None else known.local_bytes + (source.launch_bytes or 0)
    if known.at_launch and source.launch_bytes is None:
        local, notes = None, (*notes, _AT_LAUNCH)
    return replace(compiled, resources=replace(known, group=group, local_bytes=local), notes=notes)


def _write(folder: Path, source: Input) -> Path:
    suffix = {"OpenCL C": ".cl", "CUDA C++": ".cu", "SPIR-V": ".spv", "SYCL": ".hpp"}[source.language]
    file = folder / f"kernel{suffix}"
    file.write_bytes(source.content)
    return file


def _key(source: Input) -> str:
    return source.content.decode("latin-1")


def _refused(tool: str, machine: Machine, source: Input, answer: Answer, folder: Path) -> ToolError:
    """A compiler's own words, errors first."""
    text = answer.output.replace(f"{folder}/", "").replace("kernel.cl", source.where).replace("kernel.cu", source.where)
    noise = re.compile(r"\s*$|Build failed|Command was|.*backend compiler failed")
    lines = [line for line in text.splitlines() if not noise.match(line)]
    first = next((i for i, line in enumerate(lines) if re.search(r"\berror\b", line, re.IGNORECASE)), 0)
    said = "\n    ".join(lines[first : first + _LOG_LINES]) or "it does not say why; is the file empty?"
    return ToolError(f"{machine.target}: {tool} does not compile {source.where}:\n    {said}")


def _pick(machine: Machine, source: Input, names: Sequence[str]) -> str:
    """The kernel that is meant. Raises: ToolError where none or several could be."""
    if not names:
        raise ToolError(f"{machine.target}: {source.where} holds no kernel, or none that the compiler kept")
    if source.kernel is None:
        if len(names) > 1:
            raise ToolError(f"{source.where} holds {len(names)} kernels: name one by --kernel: {', '.join(names)}")
        return names[0]
    if found := next((n for n in (source.kernel, f"__sycl_kernel_{source.kernel}") if n in names), None):
        return found
    # C++ mangles names: their length stands before them.
    mangled = [name for name in names if f"{len(source.kernel)}{source.kernel}" in name]
    if len(mangled) == 1:
        return mangled[0]
    raise ToolError(f"{source.where} has no kernel {source.kernel!r}: {suggest(source.kernel, mangled or names)}")


# --- Intel ----------------------------------------------------------------------------------------


def _sycl(machine: Machine, source: Input) -> Compiled:
    """By way of SPIR-V: the module that the kernel stands in."""
    from gemmgen.inspect.sycl import modules

    made = modules(source.content.decode("utf-8", "replace"), source.where)
    name = _pick(machine, source, [name for module in made for name in module.kernels])
    module = next(module for module in made if name in module.kernels)
    return _intel(machine, replace(source, language="SPIR-V", content=module.content, kernel=name))


def _intel(machine: Machine, source: Input) -> Compiled:
    inputs = (machine.device, machine.platform, _key(source), *source.options)
    texts = kept(("ocloc", "iga64"), inputs, lambda folder: _run_intel(machine, source, folder))
    infos = intel.kernels(texts["info"])
    name = _pick(machine, source, [n for n in infos if f"asm {n}" in texts])
    if texts["unresolved"]:
        raise ToolError(f"{machine.target}: unresolved in the machine code: {texts['unresolved']}: it lacks these")
    known = {int(at): line for at, line in json.loads(texts.get(f"lines {name}", "{}")).items()}
    size = int(machine.figures.register_bytes or 32)
    return intel.compiled(name, infos[name], texts[f"asm {name}"], size, known)


def _intel_options(machine: Machine, source: Input) -> list[str]:
    if source.language == "SPIR-V":
        return ["-spirv_input", "-options", "-gline-tables-only"]
    standard = next((o for o in source.options if o.startswith("-cl-std=")), _NEWEST)
    if machine.target in _NO_IMAGES:
        standard = _NEWEST
    others = [o for o in source.options if not o.startswith("-cl-std=")]
    options = ["-options", " ".join((standard, *others, "-gline-tables-only"))]
    return [*options, *(["-internal_options", _INTEL_FEATURES] if standard == _NEWEST else [])]


def _run_intel(machine: Machine, source: Input, folder: Path) -> dict[str, str]:
    ocloc, iga = find("ocloc"), find("iga64")
    file = _write(folder, source)
    command = [ocloc, "compile", "-file", str(file), "-device", machine.device, "--format", "zebin"]
    command += [*_intel_options(machine, source), "-out_dir", str(folder), "-output", "out"]
    answer = run(command, folder)
    binaries = sorted(folder.glob("out*.bin"))
    if not binaries:
        raise _refused("ocloc", machine, source, answer, folder)
    from gemmgen.inspect.zebin import read

    zebin = read(binaries[0].read_bytes())
    texts = {"info": zebin.info, "unresolved": ", ".join(zebin.unresolved)}
    for name, code in zebin.code.items():
        binary = folder / "code.krn"
        binary.write_bytes(code)
        command = [iga, "-d", "-Xprint-pc", f"-p={machine.platform}", binary.name]
        texts[f"asm {name}"] = run(command, folder, errors=False).output
        texts[f"lines {name}"] = json.dumps(zebin.lines.get(name, {}))
    return texts


# --- NVIDIA ---------------------------------------------------------------------------------------


def _nvidia(machine: Machine, source: Input) -> Compiled:
    inputs = (machine.device, _key(source), *source.options)
    texts = kept(("nvcc", "nvdisasm"), inputs, lambda folder: _run_nvidia(machine, source, folder))
    name = _pick(machine, source, list(nvidia.functions(texts["asm"])))
    compiled = nvidia.compiled(name, texts["report"], texts["asm"])
    if compiled is None:
        raise ToolError(f"{machine.target}: {name} has no code")
    group = nvidia.group_of(texts["asm"], name)
    at_launch = _EXTERN_SHARED.search(source.content) is not None
    return replace(compiled, resources=replace(compiled.resources, group=source.group or group, at_launch=at_launch))


def _run_nvidia(machine: Machine, source: Input, folder: Path) -> dict[str, str]:
    nvcc, nvdisasm = find("nvcc"), find("nvdisasm")
    file = _write(folder, source)
    command = [nvcc, "-std=c++17", f"-arch={machine.device}", "-cubin", "-lineinfo", "-Xptxas", "-v", file.name]
    answer = run([*command, *source.options, "-o", "out.cubin"], folder)
    cubin = folder / "out.cubin"
    if not cubin.exists():
        raise _refused("nvcc", machine, source, answer, folder)
    listing = run([nvdisasm, "-g", cubin.name], folder, errors=False)
    wanted = [p for p in nvidia.sections(listing.output) if re.search(r"^//-+ \.(text|nv\.info)\.", p)]
    return {"report": answer.output, "asm": "".join(wanted)}


# --- AMD ------------------------------------------------------------------------------------------


def _amd(machine: Machine, source: Input) -> Compiled:
    inputs = (machine.device, _key(source), *source.options)
    texts = kept(("clang",), inputs, lambda folder: _run_amd(machine, source, folder))
    name = _pick(machine, source, amd.kernels(texts["asm"]))
    compiled = amd.compiled(name, texts["asm"])
    if compiled is None:
        raise ToolError(f"{machine.target}: {name} has no code")
    return compiled


def _run_amd(machine: Machine, source: Input, folder: Path) -> dict[str, str]:
    clang = find("clang")
    if not LIBCLC.exists():
        # Without it the built-ins stay calls, and every count is false.
        raise ToolError(f"{LIBCLC} is not on this machine: {TOOLS['clang'][1]}")
    file = _write(folder, source)
    standard = [o for o in source.options if o.startswith("-cl-std=")] or ["-cl-std=CL2.0"]
    others = [o for o in source.options if not o.startswith("-cl-std=")]
    command = [clang, "-x", "cl", *standard, *others, "-O3", "-gline-tables-only", "-target", "amdgcn-amd-amdhsa"]
    command += [f"-mcpu={machine.device}", "-Xclang", "-finclude-default-header", "-nogpulib", "-w"]
    command += ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(LIBCLC), "-S", file.name, "-o", "out.s"]
    answer = run(command, folder)
    assembly = folder / "out.s"
    if not assembly.exists():
        raise _refused("clang", machine, source, answer, folder)
    return {"asm": amd.trimmed(assembly.read_text("utf-8", "replace"))}
