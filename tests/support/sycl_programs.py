"""Programs of the form `main`, built without icpx: the device half by DPC++'s front end, the host half by g++.

icpx writes two things between the halves: a table of the kernel's parameters, which `parallel_for` reads at compile
time, and code that registers the device image when the program starts. Here a prefix header and a second source do
so. They follow what libsycl.so.9 expects (image version 3); that is the runtime's own business, and another version
may want something else.
"""

from __future__ import annotations

import re
from pathlib import Path

from gemmgen.runtime.icd import intel_cpu_library
from gemmgen.runtime.sycl_devices import pick
from gemmgen.runtime.sycl_library import helper, library
from gemmgen.source import EntryPoint, Source
from tests.support import sycl
from tests.support.tools import tool

TABLE = """#pragma GCC system_header
#include <sycl/sycl.hpp>
namespace sycl { inline namespace _V1 { namespace detail {
inline constexpr int accessor_size = sizeof(sycl::local_accessor<float[1], 0>);
} } }
"""
ROWS = """namespace {namespace} {{ class {kernel}; }}
namespace sycl {{ inline namespace _V1 {{ namespace detail {{
inline constexpr kernel_param_desc_t {kernel}_parameters[] = {{ {parameters} }};
template <> struct KernelInfo<{namespace}::{kernel}> {{
    static constexpr unsigned getNumParams() {{ return sizeof({kernel}_parameters) / sizeof(kernel_param_desc_t); }}
    static constexpr const kernel_param_desc_t &getParamDesc(int i) {{ return {kernel}_parameters[i]; }}
    static constexpr const char *getName() {{ return "{symbol}"; }}
    static constexpr bool isESIMD() {{ return false; }}
    static constexpr const char *getFileName() {{ return ""; }}
    static constexpr const char *getFunctionName() {{ return ""; }}
    static constexpr unsigned getLineNumber() {{ return 0; }}
    static constexpr unsigned getColumnNumber() {{ return 0; }}
    static constexpr int64_t getKernelSize() {{ return {size}; }}
}};
}} }} }}
"""
REGISTRATION = """#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

struct Entry {{ void *address; const char *name; std::size_t size; std::int32_t flags, reserved; }};
struct Image {{
    std::uint16_t version; std::uint8_t kind, format;
    const char *target, *compile_options, *link_options, *begin, *end;
    Entry *entries, *entries_end; void *properties, *properties_end;
}};
struct Images {{ std::uint16_t version, count; Image *images; void *host, *host_end; }};
extern "C" void __sycl_register_lib(Images *);

static std::string spirv[{count}];
static Entry entries[] = {{{entries}}};
static Image image[{count}];
static Images images{{1, {count}, image, nullptr, nullptr}};
static void add(int number, int first, int last)
{{
    std::ifstream file("{folder}/" + std::to_string(number) + ".spv", std::ios::binary);
    spirv[number].assign(std::istreambuf_iterator<char>(file), {{}});
    const char *const begin = spirv[number].data(), *const end = begin + spirv[number].size();
    image[number] = {{
        3, 4, 2, "spir64", "", "", begin, end, entries + first, entries + last, nullptr, nullptr}};
}}
static const bool registered = [] {{
    {images}
    __sycl_register_lib(&images);
    return true;
}}();
"""
#: `sycl::access::target::local`, as the table of parameters numbers it.
LOCAL = 2016


def run_program(source: Source, folder: Path) -> str:
    """What a program prints that must end well on the CPU device."""
    modules = write_kernels(source, folder)
    build(source, folder, modules)
    return run(folder)


def write_kernels(source: Source, folder: Path) -> list[bytes]:
    """The device half, in files that the program reads when it starts."""
    # With every parameter kept, the table needs no mask of those that the kernel does not use.
    options = (*sycl.STRICT, "-fno-sycl-dead-args-optimization")
    content, log = helper().compile(pick().number, source.text, source.name, as_object=True, options=options)
    assert content is not None, log
    modules = sycl.spirv(content)
    for number, module in enumerate(modules):
        (folder / f"{number}.spv").write_bytes(module)
    return modules


def run(folder: Path) -> str:
    """What the program of a folder prints, with the kernels that lie there."""
    return sycl.run(["env", f"OCL_ICD_FILENAMES={intel_cpu_library() or ''}", str(folder / "program")])


def build(source: Source, folder: Path, modules: list[bytes]) -> None:
    """The host half."""
    files = {"main.cpp": source.text.encode()}
    files["table.hpp"] = (TABLE + "".join(_rows(source, entry) for entry in source.entry_points)).encode()
    files["registration.cpp"] = _registration(source, modules, folder).encode()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    runtime = library()
    command = [tool("g++"), "-std=c++17", "-O1", "-include", str(folder / "table.hpp")]
    command += ["-isystem", str(runtime.parent.parent / "include"), str(folder / "main.cpp")]
    command += [str(folder / "registration.cpp"), str(runtime), f"-Wl,-rpath,{runtime.parent}"]
    sycl.run([*command, "-o", str(folder / "program")])


def _own(source: Source, entry: EntryPoint, what: str) -> str:
    """What a kernel's class or function is called in the file's namespace."""
    step = entry.name.removeprefix(source.name).strip("_")
    return f"{step}_{what}" if step else what


def _symbol(source: Source, entry: EntryPoint) -> str:
    names = f"{source.name}_detail", _own(source, entry, "kernel")
    return f"_ZTSN{''.join(f'{len(name)}{name}' for name in names)}E"


def _registration(source: Source, modules: list[bytes], folder: Path) -> str:
    """The images, each with the kernels that it holds."""
    entries: list[str] = []
    images: list[str] = []
    for number, module in enumerate(modules):
        symbols = [_symbol(source, entry) for entry in source.entry_points]
        held = [f'{{nullptr, "{symbol}", 0, 0, 0}}' for symbol in symbols if symbol.encode() in module]
        images.append(f"add({number}, {len(entries)}, {len(entries) + len(held)});")
        entries += held
    listed = {"entries": ", ".join(entries), "images": " ".join(images)}
    return REGISTRATION.format(count=len(modules), folder=folder, **listed)


def _rows(source: Source, entry: EntryPoint) -> str:
    """A kernel's table, and the size of the closure: captures lie in the order of the call."""
    function = f"{source.name}_detail::{_own(source, entry, 'work_item')}"
    (call,) = re.findall(rf"{function}\(item, (.*?)\);", source.text, re.DOTALL)
    kinds = {argument.name: argument.kind for argument in entry.arguments}
    rows, offset = [], 0
    for name in re.findall(r"\w+", call):
        if name in kinds:
            size, kind = (8, "pointer") if kinds[name] == "buffer" else (4, "std_layout")
            offset = -(-offset // size) * size
            rows.append(f"{{kernel_param_kind_t::kind_{kind}, {size}, {offset}}}")
            offset += size
    end = -(-offset // 8) * 8
    arrays = len(re.findall(r"\w+", call)) - len(rows)
    rows += [f"{{kernel_param_kind_t::kind_accessor, {LOCAL}, {end} + {i} * accessor_size}}" for i in range(arrays)]
    return ROWS.format(
        namespace=f"{source.name}_detail",
        kernel=_own(source, entry, "kernel"),
        symbol=_symbol(source, entry),
        parameters=", ".join(rows),
        size=f"{end} + {arrays} * accessor_size",
    )
