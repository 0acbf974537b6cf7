"""Matrix instructions as data: what each lane holds, what they mean, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from gemmgen import candidates, driver
from gemmgen.backends.block_io import dpas_function
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.ir.dtypes import BF16, F16, F32, I8
from gemmgen.ir.instructions import dpas
from gemmgen.ir.stmt import Multiply
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import map_body
from gemmgen.methods import defaults
from gemmgen.module import render_module
from gemmgen.spec import GemmSpec
from tests.support.refusals import Made, made

SPEC = GemmSpec(dtype=F16, c_dtype=F32)


def test_names_are_those_of_the_extension() -> None:
    assert [dpas_function(dpas(dtype, 8)) for dtype in (F16, BF16, I8)] == [
        "intel_sub_group_f16_f16_matrix_mad_k16",
        "intel_sub_group_bf16_bf16_matrix_mad_k16",
        "intel_sub_group_i8_i8_matrix_mad_k32",
    ]
    assert [str(dpas(F16, lanes).a_register) for lanes in (8, 16)] == ["int32", "int16"]


@pytest.mark.parametrize(
    ("spec", "schedule", "problem"),
    [
        (GemmSpec(), defaults("dpas"), "atom dpas multiplies float16 or bfloat16 or int8, not float32"),
        (
            SPEC,
            partial(defaults("dpas").but, sub_group=32),
            "sub_group = 32 means nothing to mainloop Dpas: use sub_group 8",
        ),
        (SPEC, defaults("dpas").but(tile=(20, 2)), "rows are no multiple of 8"),
        (SPEC, defaults("dpas").but(group=(4, 8)), "group 4x8 is not one sub-group, which multiplies alone"),
        (replace(SPEC, dtype=I8, c_dtype=None), defaults("dpas"), "goes 32 deep in int8: use block_k 32"),
        (SPEC, partial(defaults("dpas").but, stages=2), "stages = 2 means nothing to mainloop Dpas"),
        (replace(SPEC, batched=True), defaults("dpas"), "atom dpas multiplies one product, not a batch"),
        (SPEC, defaults("dpas", (64, 4)), "> 512 B on this target: use a smaller tile or large_grf"),
        (SPEC, defaults("dpas", (64, 4)).but(large_grf=True), "registers 1,408 B per work-item > 1,024 B"),
        (
            SPEC,
            partial(defaults("slm").but, large_grf=True),
            "large_grf = true means nothing to mainloop SharedMemory",
        ),
    ],
)
def test_refusals(spec: GemmSpec, schedule: Made, problem: str) -> None:
    with pytest.raises(ScheduleError) as error:
        driver.emit(spec, made(schedule))
    assert problem in str(error.value)


@pytest.mark.parametrize("backend", ["cuda", "sycl"])
def test_other_languages_say_what_they_lack(backend: str) -> None:
    problems = driver.refusals(SPEC, defaults("dpas"), backend)
    assert [problem for problem in problems if "intel_sub_groups: use target intel, or atom fma" in problem]


def test_a_python_module_holds_one_kernel() -> None:
    with pytest.raises(ScheduleError, match="dpas need more: use"):
        render_module(driver.emit(SPEC, defaults("dpas")))


def test_a_file_has_both_the_instruction_and_its_stand_in() -> None:
    source = driver.emit(SPEC, candidates.load("dpas_32x2_1x8").schedule)
    assert [entry.name.removeprefix(source.name) for entry in source.entry_points] == ["_pack", ""]
    assert {w.name: str(w.dtype) for w in source.workspaces} == {"a_packed": "float16", "b_packed": "float16"}
    software, hardware = "-DGEMMGEN_DPAS_SOFTWARE", "-Dcl_intel_subgroup_matrix_multiply_accumulate=1"
    assert source.options(True, True)[-1] == hardware
    assert source.options(False, False)[-1] == software
    head = " ".join(source.text.split("\n\n", 1)[0].replace("//", "").split())
    assert f'Build clBuildProgram(..., "-cl-std=CL2.0 {hardware}", ...)' in head
    assert source.build_options == ("-cl-std=CL2.0",)  # of the file, not of its first kernel
    assert source.text.index("#if defined(GEMMGEN_DPAS_SOFTWARE)") < source.text.index(
        f"#elif defined({hardware[2:-2]})"
    )
    assert "#error" in source.text
    assert "intel_sub_group_shuffle((int)a[i], k / 2)" in source.text
    assert {"intel_sub_groups", "block_read", "fp16"} <= source.requires


def test_twice_the_registers_are_an_option_of_gpus_alone() -> None:
    source = driver.emit(SPEC, candidates.load("dpas_40x4_1x8_k64").schedule)
    assert source.gpu_options == ("-cl-intel-256-GRF-per-thread",)
    assert source.gpu_options[0] not in source.build_options
    assert f"on Intel's GPUs, and only there, the build option {source.gpu_options[0]}\n" in source.text
    assert driver.emit(SPEC, candidates.load("dpas_32x2_1x8").schedule).gpu_options == ()


def test_the_verifier_knows_whose_registers_they_are() -> None:
    kernel = driver.lower(SPEC, candidates.load("dpas_32x2_1x8").schedule)
    wider = dpas(F16, 16)
    other = map_body(kernel.body, lambda s: (replace(s, atom=wider),) if isinstance(s, Multiply) else (s,))
    with pytest.raises(LoweringError, match="differ in type"):
        verify(replace(kernel, body=other), TARGETS["intel"])
    with pytest.raises(LoweringError, match="in other sub-groups"):
        verify(replace(kernel, sub_group=16), TARGETS["intel"])
