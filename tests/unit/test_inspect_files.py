"""What `gemmgen inspect FILE` reads in the head of an emitted file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen import candidates, driver
from gemmgen.inspect.jobs import Job, file_jobs, jobs
from gemmgen.inspect.machine import choose


@pytest.mark.parametrize("name", ["naive", "block_read_32x2_1x8", "dpas_32x2_1x8", "dpas_40x4_1x8_k64"])
def test_the_head_names_the_build_options(name: str, tmp_path: Path) -> None:
    """All that the preset is compiled with, whether or not the line is so long that it goes on in the next."""
    preset = candidates.load(name)
    file = tmp_path / f"{name}.cl"
    file.write_text(driver.emit(preset.spec, preset.schedule, "opencl").text)
    machines = choose(["dg2-g10"])
    (of_preset,), (of_file,) = jobs(preset.spec, preset.schedule, machines), file_jobs(file, name, machines)
    assert isinstance(of_preset, Job) and isinstance(of_file, Job)
    assert sorted(of_preset.source.options) == sorted(of_file.source.options)
