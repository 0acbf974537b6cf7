"""A few cases that nobody chose, on every OpenCL runtime here: by each way to call, twice, from two threads."""

from __future__ import annotations

import pytest

from gemmgen.fuzz.devices import place_of
from gemmgen.fuzz.search import Search
from gemmgen.runtime.opencl_devices import DeviceInfo
from tests.device.naive import DEVICES


@pytest.mark.parametrize("device", DEVICES)
def test_a_few_cases(device: DeviceInfo) -> None:
    search = Search((place_of("opencl", device),), seed=device.number, seconds=600, most=3)
    assert not search.failures()
    assert search.tried == 3
