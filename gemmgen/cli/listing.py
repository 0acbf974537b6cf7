"""`gemmgen presets`, `gemmgen fields` and `gemmgen devices`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, TypeAlias

from gemmgen.backends import NAMED
from gemmgen.cli.declared import Text, complete_backends, complete_targets, flag, option
from gemmgen.cli.output import document, examples, say
from gemmgen.cli.request import Request, backend_problems, speaking
from gemmgen.errors import DeviceError, attempt
from gemmgen.records import dataclass

if TYPE_CHECKING:
    from gemmgen.ir.target import Target
    from gemmgen.presets import Preset
    from gemmgen.runtime.cuda_devices import CudaDeviceInfo
    from gemmgen.runtime.opencl_devices import DeviceInfo
    from gemmgen.runtime.sycl_devices import SyclDeviceInfo
    from gemmgen.schedule import Schedule
    from gemmgen.spec import GemmSpec

    Info: TypeAlias = DeviceInfo | CudaDeviceInfo | SyclDeviceInfo

PRESETS_EXAMPLES = examples(
    "gemmgen presets",
    "gemmgen presets --backend cuda --dtype bfloat16",
    "gemmgen presets --target sm_90a --names",
    "gemmgen presets --names | grep block_read",
    "gemmgen emit --preset naive",
)
FIELDS_EXAMPLES = examples("gemmgen fields", "gemmgen emit --method slm --set stages=2")
DEVICES_EXAMPLES = examples(
    "gemmgen devices",
    "gemmgen devices --json",
    "gemmgen run -d 0 -k naive -v",
    "gemmgen run -d xeon -k naive -v",
)


def presets(
    names: Annotated[bool, flag("--names", "Only the names, one a line.")] = False,
    backend: Annotated[Text, option("--backend", "NAME", f"Those of {NAMED}.", complete_backends)] = None,
    dtype: Annotated[Text, option("--dtype", "TYPE", "Those that multiply this type.")] = None,
    target: Annotated[Text, option("--target", "TARGET", "Those that a target can have.", complete_targets)] = None,
    device: Annotated[
        Text, option("-d --device", "D", "Those that a device runs: a number or part of its name.")
    ] = None,
    as_json: Annotated[bool, flag("--json", "One JSON document.")] = False,
) -> None:
    """List the presets: ready-made schedules, with a line about each."""
    from gemmgen import presets as library

    chosen = _chosen(backend, dtype, target, device)
    if as_json:
        say(document("presets", [_preset(preset, spec) for preset, spec in chosen]))
        return
    wide = max((len(preset.name) for preset in map(library.load, library.names())), default=0)
    lines = (p.name if names else f"{p.name:<{wide}}  {p.summary}" for p, _ in chosen)
    # One line each, whatever the terminal's width, so that grep can search it.
    say("".join(f"{line}\n" for line in lines))


def _chosen(
    backend: str | None, dtype: str | None, target: str | None, device: str | None
) -> list[tuple[Preset, GemmSpec]]:
    """The presets that match the options, and the spec of each: with its own type, or the named one.

    Raises: UserError with every problem, or if no preset matches.
    """
    from gemmgen import presets as library
    from gemmgen.errors import UserError
    from gemmgen.options import build_spec

    problems = backend_problems(backend)
    if target is not None and device is not None:
        problems.append(f"--target {target} and --device {device} exclude one another: drop one")
    attempt(problems, build_spec, dtype=dtype)
    wanted = None if problems else attempt(problems, _wanted, backend, dtype, target, device)
    if problems:
        raise UserError(problems)
    chosen = []
    for preset in map(library.load, library.names()):
        spec = preset.spec if dtype is None else attempt([], build_spec, dtype=dtype, base=preset.spec)
        if spec is not None and (wanted is None or wanted(spec, preset.schedule)):
            chosen.append((preset, spec))
    if not chosen:
        given = {"backend": backend, "dtype": dtype, "target": target, "device": device}
        said = " ".join(f"--{name} {value}" for name, value in given.items() if value is not None)
        raise UserError(f"no preset is left by {said}: leave one of them out")
    return chosen


def _wanted(
    backend: str | None, dtype: str | None, target: str | None, device: str | None
) -> Callable[[GemmSpec, Schedule], bool] | None:
    """A test whether a preset matches the options; None without options. Raises: UserError."""
    from gemmgen import driver
    from gemmgen.passes.validate import is_possible

    if device is not None:
        from gemmgen.runtime.selection import pick

        there = pick(backend or "opencl", device=device).target
        return lambda spec, schedule: is_possible(spec, schedule, there)
    if target is not None:
        language = backend or speaking(target) or "opencl"
        there = driver.expected_target(language, Request(target=target).chosen_target(language))
        return lambda spec, schedule: is_possible(spec, schedule, there)
    if backend is not None:
        return lambda spec, schedule: not driver.refusals(spec, schedule, backend)
    return None if dtype is None else lambda spec, schedule: bool(_takers(spec, schedule))


def _takers(spec: GemmSpec, schedule: Schedule) -> list[str]:
    """The backends that can emit a schedule."""
    from gemmgen import driver
    from gemmgen.backends import BACKENDS

    return [name for name in BACKENDS if not driver.refusals(spec, schedule, name)]


def _preset(preset: Preset, spec: GemmSpec) -> dict[str, object]:
    """As JSON has it."""
    from gemmgen.methods import flatten

    shown = ("tile", "group", "block_k", "sub_group", "stages", "atom")
    fields = {key: value for key, value in flatten(preset.schedule).items() if key in shown}
    return {
        "name": preset.name,
        "summary": preset.summary,
        "method": preset.schedule.method,
        "dtype": spec.dtype.name,
        "c_dtype": spec.result.name,
        "backends": _takers(spec, preset.schedule),
        **{key: fields[key] for key in shown},
    }


# --- fields ---------------------------------------------------------------------------------------


def fields_of_schedules() -> None:
    """List the fields of a schedule, as --set and TOML name them: by axis and member, with what each may hold."""
    from gemmgen.schedule import AXES, KEYS, Operand

    lines = []
    for axis, members in {**AXES, "operand (a and b)": (Operand,)}.items():
        for member in members:
            about = " ".join((member.__doc__ or "").partition("\n\n")[0].split())
            lines.append(f"{axis} {member.__name__}: {about}")
            for key, field in KEYS.items():
                if member in field.members and not key.startswith("b."):
                    name = key.replace("a.", "a.|b.") if "." in key else key
                    lines.append(f"    {name:<18} {field.help} ({field.values})")
            lines.append("")
    say("\n".join(lines))


# --- devices --------------------------------------------------------------------------------------


#: What lists a backend's devices.
_LISTS = {"opencl": "devices", "cuda": "cuda_devices", "sycl": "sycl_devices"}


@dataclass(frozen=True, slots=True)
class _Device:
    """A device of a backend, as text and as JSON."""

    text: str
    record: dict[str, object]


def devices(
    as_json: Annotated[bool, flag("--json", "One JSON document, with the presets that each runs.")] = False,
) -> None:
    """List the devices of OpenCL and SYCL and the GPUs of CUDA, what they offer and which presets they run."""
    from gemmgen.runtime import cuda_driver

    there = {"opencl": True, "cuda": cuda_driver.is_there(), "sycl": _has_sycl()}
    problems: list[str] = []
    found = [
        each
        for backend, is_there in there.items()
        if is_there
        for each in attempt(problems, _devices_of, backend) or ()
    ]
    if not found:
        raise DeviceError(problems)
    say(document("devices", [each.record for each in found]) if as_json else "\n".join(each.text for each in found))


def _has_sycl() -> bool:
    from gemmgen.runtime.sycl_library import library

    try:
        return library().is_file()
    except DeviceError:
        return False


def _devices_of(backend: str) -> list[_Device]:
    """Raises: DeviceError if there are none."""
    found: Callable[[], Sequence[Info]] = vars(import_module(f"gemmgen.runtime.{backend}_devices"))[_LISTS[backend]]
    return [_device(backend, info) for info in found()]


def _device(backend: str, info: Info) -> _Device:
    """What the runtime says of a device, and the presets that it runs."""
    lacks = getattr(info, "lacks", None)
    lines = {**info.about, "presets": _runs(info.target) if lacks is None else f"none, as {lacks}"}
    body = "".join(f"   {key:<13} {value}\n" for key, value in lines.items())
    said = {x.name: getattr(info, x.name) for x in fields(info) if x.name not in ("handle", "backend")}
    plain = {key: sorted(value) if isinstance(value, frozenset) else value for key, value in said.items()}
    record = {"backend": backend, **plain, "lacks": lacks, "presets": [] if lacks else _running(info.target)}
    kind = said.get("type", "gpu") + ("" if backend == "opencl" else f", --backend {backend}")
    return _Device(f"{info.number}  {info.name} ({kind})\n{body}", record)


def _running(target: Target) -> list[str]:
    """The presets that a target can run."""
    from gemmgen import presets as library
    from gemmgen.passes.validate import is_possible

    every = map(library.load, library.names())
    return [preset.name for preset in every if is_possible(preset.spec, preset.schedule, target)]


def _runs(target: Target) -> str:
    """The number of presets of each method that the target can run, for methods with any."""
    from gemmgen import presets as library

    methods = {name: library.load(name).schedule.method for name in library.names()}
    everything, fitting = Counter(methods.values()), Counter(methods[name] for name in _running(target))
    by_method = ", ".join(f"{method} {fitting[method]} of {everything[method]}" for method in everything & fitting)
    return f"runs {fitting.total()} of {everything.total()}" + (f" ({by_method})" if by_method else "")
