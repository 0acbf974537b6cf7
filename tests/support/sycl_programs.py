"""Programs of the form `main`, built without icpx: the device half by DPC++'s front end, the host half by g++.

icpx writes two things between the halves: a table of the kernel's parameters, which `parallel_for` reads at compile
time, and code that registers the device image when the program starts. Here a prefix header and a second source do
so. They follow what libsycl.so.9 expects (image version 3); that is the runtime's own business, and another version
may want something else.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gemmgen.runtime.icd import intel_cpu_library
from gemmgen.runtime.sycl_devices import pick
from gemmgen.runtime.sycl_library import helper, library
from gemmgen.source import Source
from tests.support import sycl

TABLE = """#pragma GCC system_header
#include <sycl/sycl.hpp>
namespace {name}_detail {{ class kernel; }}
namespace sycl {{ inline namespace _V1 {{ namespace detail {{
inline constexpr int accessor_size = sizeof(sycl::local_accessor<float[1], 0>);
inline constexpr kernel_param_desc_t parameters[] = {{ {parameters} }};
template <> struct KernelInfo<{name}_detail::kernel> {{
    static constexpr unsigned getNumParams() {{ return sizeof(parameters) / sizeof(parameters[0]); }}
    static constexpr const kernel_param_desc_t &getParamDesc(int i) {{ return parameters[i]; }}
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

static std::string spirv;
static Entry entry{{nullptr, "{symbol}", 0, 0, 0}};
static Image image;
static Images images{{1, 1, &image, nullptr, nullptr}};
static const bool registered = [] {{
    std::ifstream file("{spirv}", std::ios::binary);
    spirv.assign(std::istreambuf_iterator<char>(file), {{}});
    const char *const begin = spirv.data(), *const end = begin + spirv.size();
    image = {{3, 4, 2, "spir64", "", "", begin, end, &entry, &entry + 1, nullptr, nullptr}};
    __sycl_register_lib(&images);
    return true;
}}();
"""
#: `sycl::access::target::local`, as the table of parameters numbers it.
LOCAL = 2016


def run_program(source: Source, local_arrays: int, folder: Path) -> str:
    """What a program prints that must end well on the CPU device."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not on this machine: apt-get install g++")
    # With every parameter kept, the table needs no mask of those that the kernel does not use.
    options = (*sycl.STRICT, "-fno-sycl-dead-args-optimization")
    content, log = helper().compile(pick().number, source.text, source.name, as_object=True, options=options)
    assert content is not None, log
    namespace = f"{source.name}_detail"
    symbol = f"_ZTSN{len(namespace)}{namespace}6kernelE"
    parameters, size = _parameters(source, local_arrays)
    files = {
        "main.cpp": source.text.encode(),
        "kernel.spv": sycl.spirv(content),
        "table.hpp": TABLE.format(name=source.name, symbol=symbol, parameters=parameters, size=size).encode(),
        "registration.cpp": REGISTRATION.format(symbol=symbol, spirv=folder / "kernel.spv").encode(),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    runtime, binary = library(), folder / "program"
    command = [compiler, "-std=c++17", "-O1", "-include", str(folder / "table.hpp")]
    command += ["-isystem", str(runtime.parent.parent / "include"), str(folder / "main.cpp")]
    command += [str(folder / "registration.cpp"), str(runtime), f"-Wl,-rpath,{runtime.parent}", "-o", str(binary)]
    sycl.run(command)
    return sycl.run(["env", f"OCL_ICD_FILENAMES={intel_cpu_library() or ''}", str(binary)])


def _parameters(source: Source, local_arrays: int) -> tuple[str, str]:
    """The rows of the table, and the size of the closure: captures lie in the order of the call."""
    (entry,) = source.entry_points
    rows, offset = [], 0
    for argument in entry.arguments:
        size, kind = (8, "pointer") if argument.kind == "buffer" else (4, "std_layout")
        offset = -(-offset // size) * size
        rows.append(f"{{kernel_param_kind_t::kind_{kind}, {size}, {offset}}}")
        offset += size
    end = -(-offset // 8) * 8
    rows += [
        f"{{kernel_param_kind_t::kind_accessor, {LOCAL}, {end} + {number} * accessor_size}}"
        for number in range(local_arrays)
    ]
    return ", ".join(rows), f"{end} + {local_arrays} * accessor_size"
