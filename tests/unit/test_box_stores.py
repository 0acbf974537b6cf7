"""Stores of C by TMA: what is refused, what a host is told, what is printed, and what the compiler makes of it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.explain import explain
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import BF16, F32, F64, I8, DType
from gemmgen.ir.expr import Const, Var
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.operands import staged_store, stored_tma_tile
from gemmgen.ir.show import show_stmt
from gemmgen.ir.stmt import Alloc, TmaCopy
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.launch import tensor_maps
from gemmgen.methods import defaults
from gemmgen.runtime import cuda_launch
from gemmgen.schedule import Schedule
from gemmgen.simulator.lanes import Lanes
from gemmgen.simulator.races import Accesses
from gemmgen.source import Source
from gemmgen.spec import GemmSpec
from tests.support.tools import nvcc, tool

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, ld_multiple=8)
BOXES = defaults("wgmma").but(epilogue_stages=1)
WHOLE = replace(SPEC, alpha=1.0, beta=0.0, multiple_of=(1, 8, 1))


def emitted(spec: GemmSpec = SPEC, schedule: Schedule = BOXES) -> Source:
    return driver.emit(spec, schedule, "cuda", SM_90A)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "changes", "said"),
    [
        (
            replace(SPEC, a_order="col", a_dtype=I8, c_order="col"),
            {"a": replace(BOXES.a, memory="private"), "epilogue_stages": 1, "tile": (2, 16)},
            "bfloat16 for a column-major C, but where A's bytes are transposed on their way to registers",
        ),
        (SPEC, {"split_k": 2}, "split_k = 2 leaves sums of its parts: use epilogue_stages 0"),
        (
            SPEC,
            {"epilogue_stages": 3},
            "245,824 B > 232,448 B on this target: use 2 epilogue_stages instead of 3, or 3 stages inste",
        ),
        (SPEC, {"epilogue_stages": 1, "stages": 5}, "use 4 stages instead of 5, or a smaller tile"),
        (
            replace(SPEC, ld_multiple=4),
            {},
            "lines of bfloat16 that begin on multiples of 16 bytes, but leading dimensi",
        ),
    ],
    ids=["columns", "parts of K", "slots", "stages", "lines"],
)
def test_what_is_refused(spec: GemmSpec, changes: dict[str, object], said: str) -> None:
    with pytest.raises(ScheduleError) as error:
        emitted(spec, BOXES.but(**changes))
    assert said in "\n".join(error.value.problems)


def test_only_warpgroups_store_boxes() -> None:
    with pytest.raises(ScheduleError, match="epilogue_stages = 1 means nothing to mainloop Direct"):
        driver.emit(GemmSpec(), Schedule.of(epilogue_stages=1))


def test_no_instruction_puts_down_wider_elements() -> None:
    for transposed in (False, True):
        with pytest.raises(LoweringError, match="nothing puts down float64"):
            staged_store(F64, transposed)


@pytest.mark.parametrize(
    ("cols", "dtype", "transposed", "box"),
    [
        (256, BF16, False, (16, 64)),
        (48, BF16, False, (16, 48)),
        (256, BF16, True, (64, 16)),
        (144, BF16, True, (48, 16)),
        (80, BF16, True, (40, 16)),
        (88, BF16, False, (16, 64)),
        (88, BF16, True, (64, 16)),
        (24, BF16, True, (24, 16)),
        (256, F32, True, (32, 16)),
        (80, F32, True, (16, 16)),
    ],
)
def test_boxes_of_columns_are_alike_where_they_can(
    cols: int, dtype: DType, transposed: bool, box: tuple[int, int]
) -> None:
    """Else the last one has fewer columns."""
    assert stored_tma_tile(cols, dtype, transposed) == box


@pytest.mark.parametrize(
    ("box", "lines", "said"),
    [((16, 64), 8, "is not what c_shared is made of"), ((16, 36), 64, "not what"), (None, 64, "c has no TMA tiles")],
)
def test_the_verifier_knows_boxes(box: tuple[int, int] | None, lines: int, said: str) -> None:
    m, n, pitch = Var("m"), Var("n"), Var("ldc")
    c = Buffer("c", BF16, Space.GLOBAL, Layout.pitched(m, n, pitch), tma_tile=box)
    shared = Buffer("c_shared", BF16, Space.LOCAL, replace(Layout.packed(lines, 64), swizzle=128))
    zero = Const(0)
    store = TmaCopy(c, (zero, zero), shared, (zero, zero))
    kernel = Kernel("kk", (m, n, c, pitch), (Alloc(shared), store), (32, 4), (Const(1), Const(1)), 32)
    assert show_stmt(store) == "c[0, 0] <- tma_store c_shared[0, 0]"
    with pytest.raises(LoweringError, match=said):
        verify(kernel, SM_90A)
    with pytest.raises(LoweringError, match="needs tensor_maps, which sm_80 lacks"):
        verify(kernel, TARGETS["sm_80"])


# --- what a host is told --------------------------------------------------------------------------


def test_a_map_of_c_and_c_itself_where_it_is_addressed() -> None:
    (entry,) = emitted().entry_points
    assert [x.name for x in entry.arguments][-4:] == ["beta", "c_map", "c", "ldc"]
    c = entry.maps[-1]
    assert (c.name, c.operand, c.box, c.pitch, c.swizzle) == ("c_map", "c", (16, 64), Var("ldc"), 128)
    (entry,) = emitted(WHOLE).entry_points
    assert [x.name for x in entry.arguments] == ["m", "n", "k", "a_map", "b_map", "c_map"]


@pytest.mark.parametrize("name", [name for name in candidates.names() if candidates.load(name).schedule.by_warpgroups])
def test_the_runtime_knows_every_maps_type(name: str) -> None:
    """Those of sums in whole numbers, too."""
    preset = candidates.load(name)
    kernels = driver.lower_program(preset.spec, preset.schedule, SM_90A).kernels
    assert {x.dtype.name for kernel in kernels for x in tensor_maps(kernel)} <= cuda_launch.MAP_TYPES.keys()


def test_a_launcher_makes_the_map_of_c_whatever_k_is() -> None:
    text = " ".join(emitted().text.split())
    assert "k > 0 ? make_tensor_map(&b_map" in text
    assert "if (const cudaError_t error = make_tensor_map(&c_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, c, m," in text


def test_the_head_says_how_c_is_stored() -> None:
    assert "1 stage in shared memory, stored by TMA" in " ".join(emitted().text.replace("//", "").split())
    two = emitted(schedule=BOXES.but(epilogue_stages=2))
    assert "2 stages in shared memory, stored by TMA" in " ".join(two.text.replace("//", "").split())


def test_explain_tells_the_way_out() -> None:
    two = explain(SPEC, BOXES.but(tile=(4, 32), epilogue_stages=2), SM_90A)
    assert "registers acc ──> local c_shared ──> global c: 4 stores of a TMA tile of 16x64, by 2 slots" in two
    assert "the way of C" not in explain(SPEC, BOXES.but(epilogue_stages=0), SM_90A)


# --- what is printed ------------------------------------------------------------------------------


def test_nothing_but_what_is_used() -> None:
    """Of whole parts of 16 bytes no store but the boxes'; one slot for one box needs no wait but the last."""
    text = emitted(replace(WHOLE, multiple_of=(1, 64, 1)), BOXES.but(tile=(2, 16))).text
    assert text.count("cp_async_bulk_wait_group_read<") == 1
    assert "ldc" not in text[text.index("__global__") : text.index("#ifndef", text.index("__global__"))]
    assert "copy2" not in text


@pytest.mark.parametrize(
    "spec",
    [WHOLE, replace(SPEC, c_dtype=F32), replace(WHOLE, c_order="col", multiple_of=(8, 1, 1))],
    ids=["folded", "float32", "columns"],
)
def test_what_the_compiler_makes_of_it(spec: GemmSpec, tmp_path: Path) -> None:
    """No spills, no matrix instructions that wait for each other (C7510, C7515), and the stores that were meant."""
    report = nvcc(emitted(spec).text, "sm_90a", tmp_path)
    assert " 0 bytes spill stores" in report
    assert "C75" not in report
    listing = disassembled(tmp_path)
    boxes = 256 * spec.result.size // 128
    assert listing.count("UTMASTG.2D") == boxes
    assert listing.count("FENCE.VIEW.ASYNC") >= boxes, "and those for mbarriers"
    put = "STSM.16.M88.4" if spec.c_order == "row" else "STSM.16.MT88.4"
    assert listing.count(put) == (16 if spec.result == BF16 else 0)
    assert listing.count(" STG.E") == (128 if spec.result == F32 else 0)


@pytest.mark.parametrize("shape", [{"tile": (2, 54)}, {"tile": (4, 32), "group": (32, 4)}], ids=str)
@pytest.mark.parametrize("cluster", [(2, 1), (1, 4)], ids=str)
def test_clusters_have_no_instruction_wait(
    cluster: tuple[int, int], shape: dict[str, tuple[int, int]], tmp_path: Path
) -> None:
    """Their loop has the four of a step, and waits for those of the step before."""
    schedule = BOXES.but(cluster=cluster, stages=4, **shape)
    report = nvcc(emitted(replace(SPEC, beta=0.0), schedule).text, "sm_90a", tmp_path)
    assert "C75" not in report and " 0 bytes spill stores" in report
    listing = disassembled(tmp_path)
    loop = listing[listing.index("HGMMA") : listing.rindex("HGMMA")]
    assert "WARPGROUP.DEPBAR" not in loop


def disassembled(folder: Path) -> str:
    command = [tool("nvdisasm"), "-c", "kernel.cubin"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "name", [name for name in candidates.names() if candidates.load(name).schedule.epilogue_stages]
)
def test_presets_leave_slots_as_large_as_they_say(name: str) -> None:
    preset = candidates.load(name)
    kernel = driver.lower(preset.spec, preset.schedule, SM_90A)
    slots = next(s.buffer for s in kernel.body if isinstance(s, Alloc) and s.buffer.name == "c_shared")
    across = preset.schedule.block_tile[1] * preset.spec.result.size
    line = min(128, across)
    boxes = across // line * (preset.schedule.tile[0] // 2)
    of_a_warp, warps = 16 * line, preset.schedule.group[0] // 8
    assert slots.bytes == min(boxes, preset.schedule.epilogue_stages) * warps * of_a_warp


# --- who met whom ---------------------------------------------------------------------------------


def test_sub_groups_that_met_are_in_order_with_themselves_alone() -> None:
    """What lane 3 wrote, lane 5 of its four may read; lane 1 of the other four may not, and is told of lane 0."""
    accesses = Accesses(2)
    place, everyone = np.array([0]), np.ones(8, np.bool_)
    assert accesses.write(place, np.array([3]), 7) is None
    conflict = accesses.read(place, np.array([2]), 8)
    assert conflict is not None and conflict.lane == 3
    accesses.meet(everyone, 4)
    assert accesses.read(place, np.array([2]), 8) is None
    conflict = accesses.read(place, np.array([5]), 8)
    assert conflict is not None and (conflict.lane, conflict.wrote) == (0, True)


def test_all_work_items_are_counted() -> None:
    kernel = driver.lower(SPEC, BOXES, SM_90A)
    assert Lanes(kernel, (1, 2, 3)).grid_items == 6 * 384
