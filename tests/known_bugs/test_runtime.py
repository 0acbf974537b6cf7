"""What other libraries got wrong around their kernels: events, workspaces, images, and calls that are repeated."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import gemmgen
from gemmgen import GemmSpec, presets
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo, own_context
from tests.device.naive import DEVICES, devices_that
from tests.support.cli import printed
from tests.support.problems import Problem

on_all = pytest.mark.parametrize("device", DEVICES)
on_one = pytest.mark.parametrize("device", DEVICES[-1:])
#: A kernel for the parts of K, another that adds them up, and a workspace between.
SPLIT = presets.load("lds_8x8_16x16_k8").schedule.but(split_k=3)


@on_all
def test_an_event_covers_the_first_kernel_only(device: DeviceInfo, rng: np.random.Generator) -> None:
    """On a queue that keeps no order, nothing but events says that the second kernel is through. It has a wide C to add
    up from parts of a short K: waiting for the first kernel alone leaves most of it NaN.
    """
    context = own_context(device.handle)
    queue = cl.CommandQueue(context, device.handle, cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
    other = cl.CommandQueue(context, device.handle)
    gemm = gemmgen.compile(GemmSpec(), SPLIT, device=device.handle)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((900, 3), (3, 900)))
    left, right = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
    c = cl_array.to_device(queue, np.full((900, 900), np.nan, np.float32))
    queue.finish()
    _, event = gemm(left, right, c, return_event=True)
    event.wait()
    result = np.empty((900, 900), np.float32)
    cl.enqueue_copy(other, result, c.base_data)
    assert np.array_equal(result, a @ b)


@on_all
def test_two_queues_share_what_parts_of_k_are_summed_in(device: DeviceInfo, rng: np.random.Generator) -> None:
    """Different products by one kernel at once, each with a workspace of its own."""
    gemm = gemmgen.compile(GemmSpec(), SPLIT, device=device.handle)
    context = own_context(device.handle)
    queues = [cl.CommandQueue(context, device.handle) for _ in range(2)]
    problems = [Problem.integers(rng, 150, 130, 60) for _ in range(2)]

    def several(number: int) -> bool:
        one = problems[number]
        return all(np.array_equal(gemm(one.a, one.b, queue=queues[number]), one.expected) for _ in range(6))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(several, range(2))) == [True, True]


@on_all
def test_a_workspace_keeps_sums_of_the_call_before(device: DeviceInfo, rng: np.random.Generator) -> None:
    """A long K, then one of fewer steps than there are parts."""
    gemm = gemmgen.compile(GemmSpec(), SPLIT, device=device.handle)
    for k in (90, 1, 7, 90, 2):
        problem = Problem.integers(rng, 33, 45, k)
        assert np.array_equal(gemm(problem.a, problem.b, problem.c), problem.expected)


@pytest.mark.parametrize("device", devices_that(lambda device: "image_block_read" in device.features))
def test_an_image_whose_lines_have_a_pitch(device: DeviceInfo, rng: np.random.Generator) -> None:
    """Slices of wider matrices, whose lines begin at odd places; images have pitches of their own."""
    preset = presets.load("block_read_16x2_1x8")
    gemm = CompiledKernel.from_source(gemmgen.emit(preset.spec, preset.schedule), device)
    for m, n, k in ((33, 35, 37), (16, 16, 8), (5, 3, 1)):
        wide = [rng.integers(-8, 9, (rows, cols + 5)).astype(np.float32) for rows, cols in ((m, k), (k, n))]
        a, b = (matrix[:, 3:-2] for matrix in wide)
        assert np.array_equal(gemm(a, b), a @ b)
        left, right = (cl_array.to_device(gemm.queue, matrix)[:, 3:-2] for matrix in wide)
        assert np.array_equal(gemm(left, right).get(), a @ b)


@on_one
def test_a_tuner_runs_a_kernel_again_that_adds_to_its_result(device: DeviceInfo) -> None:
    """`run` with beta 1 computes C several times to time it; what it checks is one product added to C."""
    said = printed("run", "-k", "naive", "-d", str(device.number), "--beta", "1", *"-M 33 -N 17 -K 9 -i 3 -v".split())
    assert "validation passed" in said
