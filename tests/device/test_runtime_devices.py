"""Which devices are found, and how one is chosen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyopencl as cl
import pytest

from gemmgen.errors import DeviceError
from gemmgen.ir.target import FEATURES
from gemmgen.runtime import icd, opencl_devices
from gemmgen.runtime.opencl_devices import DeviceInfo, devices, info_of, own_queue, pick, raw_info, resolve, target_of
from gemmgen.runtime.opencl_devices import _probed_sub_group_size as probed_sub_group_size
from tests.device.naive import DEVICES

LIST = "from gemmgen.runtime.opencl_devices import devices; print(*[d.platform for d in devices()], sep='\\n')"


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own: a loader reads its environment once."""
    environment = {**{k: v for k, v in os.environ.items() if not k.startswith("OCL_ICD")}, **variables}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_is_described(device: DeviceInfo) -> None:
    assert device.features <= set(FEATURES)
    assert device.local_bytes > 0
    assert device.max_group > 0
    assert ("sub_groups" in device.features) == bool(device.sub_group_sizes)
    target = target_of(device.handle)
    assert (target.features, target.sub_group_sizes) == (device.features, device.sub_group_sizes)
    assert (target.max_group, target.local_bytes) == (device.max_group, device.local_bytes)
    assert str(device).startswith(f"{device.number}: {device.name}")
    assert info_of(device.handle) == device


@pytest.mark.parametrize("device", DEVICES)
def test_a_later_process_compiles_no_probe_of_vectors(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    found = opencl_devices._loads_sixteen(device.handle)
    monkeypatch.delattr(opencl_devices, "_probe")
    assert opencl_devices._loads_sixteen(device.handle) == found


@pytest.mark.parametrize("device", DEVICES)
def test_sub_groups_need_a_language_that_has_them(device: DeviceInfo) -> None:
    """PoCL 5.0 lists Intel's extension, but compiles no OpenCL C 2.0."""
    names = {"sub_groups", "intel_sub_groups", "required_sub_group_size", "block_read", "image_block_read"}
    program = cl.Program(cl.Context([device.handle]), "__kernel void probe(__global int *x) { *x = 1; }")
    try:
        program.build("-cl-std=CL2.0")
    except cl.RuntimeError:
        assert not device.features & names
    else:
        assert ("sub_groups" in device.features) == bool(device.features & names)


@pytest.mark.parametrize("device", DEVICES)
def test_sub_group_sizes(device: DeviceInfo) -> None:
    assert raw_info(device.handle, 0x102B)  # CL_DEVICE_NAME, which every device knows
    assert raw_info(device.handle, 0xFFFF) == ()
    if device.sub_group_sizes:
        assert set(probed_sub_group_size(device.handle)) <= set(device.sub_group_sizes)


@pytest.mark.parametrize("device", DEVICES)
def test_every_way_of_naming_a_device(device: DeviceInfo) -> None:
    queue = own_queue(device.handle)
    assert resolve(queue) is queue
    assert resolve(device) is queue
    assert resolve(device.handle) is queue
    assert resolve(device.number) is queue
    assert resolve(queue.context).context == queue.context
    assert device.name.lower() in resolve(device.name.upper()).device.name.lower()
    with pytest.raises(DeviceError, match="type float"):
        resolve(1.5)


@pytest.mark.parametrize("device", DEVICES)
def test_picking(device: DeviceInfo) -> None:
    everything = devices()
    assert pick(device=device.number) == device
    assert pick(device=str(device.number)) == device
    assert pick(platform=device.platform[:8].upper(), type=device.type).platform == device.platform
    assert pick(requires=device.features).features >= device.features
    handles = list(dict.fromkeys(d.handle.platform for d in everything))
    number = handles.index(device.handle.platform)
    assert pick(platform=number).handle.platform == device.handle.platform
    assert pick(platform=str(number), device=0).handle.platform == device.handle.platform


@pytest.mark.parametrize("device", DEVICES[:1])
def test_nothing_matches(device: DeviceInfo) -> None:
    for wish in (
        {"platform": "nobody"},
        {"device": "nobody"},
        {"device": 99},
        {"device": -1},
        {"platform": 99},
        {"device": ""},
        {"platform": " "},
    ):
        with pytest.raises(DeviceError, match="no device matches") as caught:
            pick(**wish)
        assert str(device) in str(caught.value)
        assert "part of a name (type and platform are in parentheses) among" in str(caught.value)
    with pytest.raises(DeviceError, match="use one of cpu, gpu"):
        pick(type="abacus")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system with two runtimes, one of them dead, and an environment with Intel's."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("OPENCL_VENDOR_PATH", str(tmp_path / "vendors"))
    monkeypatch.delenv(icd.VENDORS, raising=False)
    for path, text in {
        "lib/libintelocl.so": "",
        "vendors/pocl.icd": "libpocl.so.2\n",
        "vendors/dead.icd": "/no/such/libdead.so",
        "etc/OpenCL/vendors/intel64.icd": "/opt/anaconda/lib/libintelocl.so\n",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


linux = pytest.mark.skipif(sys.platform != "linux", reason="ocl-icd's loader")


@linux
def test_the_environments_runtime_joins_the_systems(environment: Path) -> None:
    library = str(environment / "lib/libintelocl.so")
    assert list(icd.additions().values()) == ["libpocl.so.2", library]
    with icd.visible():
        folder = Path(os.environ[icd.VENDORS])
        assert sorted(p.read_text() for p in folder.iterdir()) == sorted(["libpocl.so.2\n", library + "\n"])
    assert icd.VENDORS not in os.environ
    assert not folder.exists()


@linux
def test_a_users_own_choice_stays(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(icd.VENDORS, "/mine")
    with icd.visible():
        assert os.environ[icd.VENDORS] == "/mine"


@linux
def test_a_runtime_is_not_listed_twice(environment: Path) -> None:
    (environment / "vendors/oneapi.icd").write_text(str(environment / "lib/libintelocl.so"))
    assert icd.additions() == {}


@pytest.mark.parametrize("device", DEVICES[:1])
def test_nothing_is_left_in_the_environment(device: DeviceInfo) -> None:
    result = python(LIST + "; import os; print('OCL_ICD_VENDORS' in os.environ)")
    assert result.stdout.splitlines()[-1] == "False", result.stderr
    assert set(result.stdout.splitlines()[:-1]) == {d.platform for d in devices()}


def test_no_platform_names_the_command() -> None:
    code = "from gemmgen.runtime import icd; icd.additions = dict\n" + LIST
    result = python(code, OPENCL_VENDOR_PATH="/nowhere", OCL_ICD_VENDORS="")
    if result.returncode == 0:
        pytest.skip("pyopencl brings a runtime of its own here")
    assert 'pip install "gemmgen[cpu]"' in result.stderr
    result = python(LIST, OCL_ICD_VENDORS="/nowhere")
    assert "OCL_ICD_VENDORS=/nowhere finds no OpenCL platform: unset it" in result.stderr
    assert 'pip install "gemmgen[cpu]"' in result.stderr


def test_without_pyopencl_the_error_names_the_command() -> None:
    code = """
import importlib.util, gemmgen
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pyopencl" else find(name, *rest)
for use in (lambda: gemmgen.compile(), lambda: gemmgen.devices(), lambda: gemmgen.CompiledKernel):
    try:
        use()
    except gemmgen.DeviceError as error:
        print(error)
"""
    result = python(code)
    assert result.stdout.count('pip install "gemmgen[cpu]"') == 3, result.stderr


def test_every_error_of_a_device_is_one_of_ours() -> None:
    from gemmgen.runtime.opencl_driver import translated

    with pytest.raises(DeviceError, match="INVALID_VALUE"), translated():
        raise cl.LogicError(cl._cl._ErrorRecord("", cl.status_code.INVALID_VALUE, "clAnything"))
