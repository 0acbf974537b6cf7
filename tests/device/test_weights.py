"""Weights in fewer bits: rounding, files that strangers made, and `gemm` with them as `b`."""

from __future__ import annotations

import json
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

import gemmgen
from gemmgen import Packed, prepack
from gemmgen.choose import choose
from gemmgen.errors import DtypeError, SpecError
from gemmgen.ir.numeric import in_pairs
from gemmgen.ir.target import TARGETS
from gemmgen.spec import GemmSpec
from tests.device.naive import found
from tests.support import cuda
from tests.support.tensors import need_torch

if not found():
    pytest.skip('no OpenCL device here: pip install "gemmgen[cpu]"', allow_module_level=True)

Numbers = npt.NDArray[Any]
K, N = 300, 70
FORMS = [(group, zero_points) for group in (None, 32, 64, 128) for zero_points in (False, True)]
BITS = pytest.mark.parametrize("bits", [8, 4])


@pytest.fixture
def w(rng: np.random.Generator) -> Numbers:
    """Normal numbers; a column of zeros, one of large numbers, one of positive numbers."""
    made = rng.standard_normal((K, N)).astype(np.float32)
    made[:, 3], made[:, 4], made[:, 5] = 0, 1e4 * made[:, 4], np.abs(made[:, 5]) + 1
    return made


@BITS
@pytest.mark.parametrize(("group", "zero_points"), FORMS)
def test_rounding(group: int | None, zero_points: bool, bits: int, w: Numbers) -> None:
    """Each element is within half a step of its weight, and a weight of 0 stays 0."""
    packed = prepack(w, bits, group, zero_points)
    steps = packed.scales if group is None else np.repeat(packed.scales, group, axis=0)[:K]
    assert np.all(np.abs(packed.dequantized() - w) <= 0.502 * steps)
    assert not packed.dequantized()[:, 3].any()
    assert packed.shape == (K, N) and packed.bits == bits and packed.nbytes < (bits + 5) / 32 * w.nbytes
    assert (packed.zeros is not None) == zero_points


def exact(rng: np.random.Generator, k: int, n: int, bits: int, group: int | None, zero_points: bool) -> Packed:
    """Weights whose scales are powers of two."""
    scales = 2.0 ** rng.integers(-2, 3, (n,) if group is None else (-(-k // group), n))
    values = rng.integers(-4, 5, (k, n)).astype(np.int8)
    zeros = rng.integers(-3, 4, scales.shape).astype(np.int8) if zero_points else None
    stored = values if bits == 8 else np.asfortranarray(in_pairs(values, 0))
    packed = Packed(stored, scales.astype(np.float32), zeros, group, k)
    whole = np.repeat(scales.reshape(-1, n), group or k, axis=0)[:k]
    shifts = 0 if zeros is None else np.repeat(zeros.reshape(-1, n), group or k, axis=0)[:k]
    assert np.array_equal(packed.dequantized(), (values - shifts) * whole)
    return packed


@pytest.mark.parametrize(
    ("bits", "group", "zero_points"),
    [*((8, *form) for form in FORMS), (4, None, False), (4, 32, True), (4, 128, False)],
)
def test_gemm(bits: int, group: int | None, zero_points: bool, rng: np.random.Generator) -> None:
    """With scales that are powers of two every product is exact, in all types; K is odd."""
    packed = exact(rng, K + 1, N, bits, group, zero_points)
    for rows in (1, 6, 40):
        x = rng.integers(-2, 3, (rows, K + 1)).astype(np.float32)
        answer = x @ packed.dequantized()
        assert np.array_equal(gemmgen.gemm(x, packed), answer)
        half = gemmgen.gemm(x.astype(np.float16), packed, dtype=np.float32)
        assert half.dtype == np.float32 and np.array_equal(half, answer)
        bias = rng.integers(-2, 3, N).astype(np.float32)
        fused = gemmgen.gemm(x, packed, epilogue=["bias", "relu"], bias=bias)
        assert np.array_equal(fused, np.maximum(answer + bias, 0))


@BITS
def test_stacks_vectors_c_and_invariance(bits: int, w: Numbers, rng: np.random.Generator) -> None:
    packed = prepack(w, bits, 64)
    x = rng.standard_normal((2, 5, K)).astype(np.float32)
    c = gemmgen.gemm(x, packed, invariant=True)
    assert np.allclose(c, x @ packed.dequantized(), rtol=1e-4, atol=0.2)
    assert np.array_equal(gemmgen.gemm(x[1, 3], packed, invariant=True), c[1, 3])
    kept = np.ones((5, N), np.float32)
    assert gemmgen.gemm(x[0], packed, kept, alpha=2, beta=3, invariant=True) is kept
    assert np.allclose(kept, 2 * c[0] + 3, rtol=1e-4, atol=0.2)


@BITS
@pytest.mark.parametrize(("group", "zero_points"), FORMS)
def test_files(group: int | None, zero_points: bool, bits: int, w: Numbers, tmp_path: Path) -> None:
    packed = prepack(w[1:], bits, group, zero_points)
    packed.save(tmp_path / "w")
    packed.save(tmp_path / "w")
    read = Packed.load(tmp_path / "w")
    assert [x.name for x in tmp_path.iterdir()] == ["w"]
    assert (read.group, read.bits, read.shape) == (group, bits, (K - 1, N))
    for one, other in ((read.values, packed.values), (read.scales, packed.scales), (read.zeros, packed.zeros)):
        assert np.array_equal(cast("Numbers", one), cast("Numbers", other))


def test_a_file_says_what_it_is(w: Numbers, tmp_path: Path) -> None:
    """As docs/weights.md has it: another program reads it so."""
    prepack(w, group=32, zero_points=True).save(tmp_path / "w")
    data = (tmp_path / "w").read_bytes()
    magic, version, length, checksum = struct.unpack_from("<8sIII", data)
    assert checksum == zlib.crc32(data[20 : 20 + length])
    header = json.loads(data[20 : 20 + length])
    assert (magic, version) == (b"GEMMGENW", 1)
    assert (header["layout"], header["k"], header["n"], header["bits"], header["group"]) == ("col", K, N, 8, 32)
    assert header["arrays"] == {"values": "int8", "scales": "float32", "zeros": "int8"}
    begin = -(-(20 + length) // 64) * 64
    values = np.frombuffer(data, np.int8, K * N, begin).reshape(N, K).T
    assert np.array_equal(values, prepack(w, group=32, zero_points=True).values)


def test_what_can_not_be_written_is_named_as_the_user_does(w: Numbers) -> None:
    """Not the draft that would have become it."""
    for path in ("/proc/weights.gemmgen", "/proc/no/weights.gemmgen"):
        with pytest.raises(OSError, match="/proc") as caught:
            prepack(w).save(path)
        assert caught.value.filename in (path, "/proc/no")


def test_every_problem_of_a_product_at_once(w: Numbers) -> None:
    with pytest.raises(DtypeError) as caught:
        gemmgen.gemm(np.ones((2, K + 1), np.int16), prepack(w), transpose_b=True, alpha="x")  # type: ignore[arg-type]
    assert len(caught.value.problems) == 4


def test_a_file_of_int4_says_what_it_is(w: Numbers, tmp_path: Path) -> None:
    """Version 2: two elements a byte, whose first is the low half; K, which is odd, counts elements."""
    packed = prepack(w[1:], 4, 32, zero_points=True)
    packed.save(tmp_path / "w")
    data = (tmp_path / "w").read_bytes()
    _, version, length, _ = struct.unpack_from("<8sIII", data)
    header = json.loads(data[20 : 20 + length])
    assert (version, header["k"], header["bits"]) == (2, K - 1, 4)
    assert header["arrays"] == {"values": "uint8", "scales": "float32", "zeros": "int8"}
    begin = -(-(20 + length) // 64) * 64
    pairs = np.frombuffer(data, np.uint8, K // 2 * N, begin).reshape(N, K // 2)
    halves = np.stack((pairs & 15, pairs >> 4), -1).reshape(N, K)[:, : K - 1].T.astype(np.int8)
    values = np.where(halves > 7, halves - 16, halves)
    groups = [np.repeat(cast("Numbers", x), 32, axis=0)[: K - 1] for x in (packed.scales, packed.zeros)]
    assert np.array_equal((values.astype(np.float32) - groups[1]) * groups[0], packed.dequantized())


@BITS
def test_every_damage_is_found(bits: int, w: Numbers, tmp_path: Path) -> None:
    """Any byte that is changed, but for padding, and any cut."""
    prepack(w[:40, :6], bits, 32, zero_points=True).save(tmp_path / "w")
    data = (tmp_path / "w").read_bytes()
    length = 20 + struct.unpack_from("<I", data, 12)[0]
    size = 40 * 6 * bits // 8
    arrays = {-(-length // 64) * 64: size}
    arrays[next(iter(arrays)) + -(-size // 64) * 64] = 48
    arrays[[*arrays][-1] + 64] = 12
    places = [*range(length), *(at for begin, size in arrays.items() for at in range(begin, begin + size))]
    unnoticed = 0
    for at in places:
        changed = bytearray(data)
        changed[at] ^= 0x11
        (tmp_path / "w").write_bytes(changed)
        try:
            Packed.load(tmp_path / "w")
            unnoticed += 1
        except SpecError:
            pass
    assert unnoticed == 0
    for size in range(0, len(data), 7):
        (tmp_path / "w").write_bytes(data[:size])
        with pytest.raises(SpecError, match=str(tmp_path / "w")):
            Packed.load(tmp_path / "w")
    (tmp_path / "w").write_bytes(data + b"x")
    with pytest.raises(SpecError, match="1 bytes behind the last array"):
        Packed.load(tmp_path / "w")


def test_files_of_strangers(tmp_path: Path) -> None:
    def written(header: object, version: int = 1, length: int | None = None) -> Path:
        text = json.dumps(header).encode() if not isinstance(header, bytes) else header
        size = len(text) if length is None else length
        (tmp_path / "w").write_bytes(struct.pack("<8sIII", b"GEMMGENW", version, size, zlib.crc32(text)) + text)
        return tmp_path / "w"

    good: dict[str, object] = {"layout": "col", "k": 4, "n": 4, "bits": 8, "group": None, "crc32": {}}
    good["arrays"] = {"values": "int8", "scales": "float32"}
    cases: list[tuple[object, str]] = [
        ({}, "its header has layout = None, which this version does not know"),
        ({**good, "k": 2**40}, "k = 1099511627776"),
        ({**good, "k": -1}, "w: its header has k = -1, which"),
        ({**good, "k": True}, "k = True"),
        ({**good, "bits": 3}, "bits = 3"),
        ({**good, "bits": 4}, "bits = 4"),
        ({**good, "group": 7}, "group = 7"),
        ({key: value for key, value in good.items() if key != "group"}, "group = None"),
        ({**good, "arrays": {"values": "int8"}}, "arrays = "),
        ({**good, "arrays": {"values": "object", "scales": "float32"}}, "values of object"),
        (good, "values of int8"),
        ({**good, "k": 2**30, "n": 2**30}, "end behind the file's"),
        ([1], "no JSON object"),
        (b"{" * 3000, "no JSON"),
        (b"[" * 4000, "no JSON"),
    ]
    for header, message in cases:
        with pytest.raises(SpecError, match=message):
            Packed.load(written(header))
    with pytest.raises(SpecError, match="version 9 of the format, but this gemmgen reads 1 and 2"):
        Packed.load(written(good, 9))
    with pytest.raises(SpecError, match="bits = 8"):
        Packed.load(written(good, 2))
    with pytest.raises(SpecError, match=r"values of int8 and shape \(4, 2\)"):
        Packed.load(written({**good, "bits": 4}, 2))
    with pytest.raises(SpecError, match="a header of 4,294,967,295 bytes"):
        Packed.load(written(good, length=2**32 - 1))
    (tmp_path / "w").write_bytes(b"\x93NUMPY")
    with pytest.raises(SpecError, match="no file of prepacked weights, which begins with GEMMGENW"):
        Packed.load(tmp_path / "w")


def test_what_is_no_regular_file(w: Numbers, tmp_path: Path) -> None:
    """A pipe is not waited for, a device without an end is not read, and one is not replaced by a file."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(SpecError, match=f"^{path}: no file of prepacked weights"):
            Packed.load(path)
    with pytest.raises(FileNotFoundError):
        Packed.load(tmp_path / "missing")
    (tmp_path / "null").symlink_to("/dev/null")
    prepack(w).save(tmp_path / "null")
    assert (tmp_path / "null").is_symlink() and Path("/dev/null").is_char_device()
    (tmp_path / "w").mkdir()
    with pytest.raises(IsADirectoryError, match=f"{tmp_path}/w'"):
        prepack(w).save(tmp_path / "w")
    with pytest.raises(FileNotFoundError, match=f"No such folder: '{tmp_path}/nowhere'"):
        prepack(w).save(tmp_path / "nowhere" / "w")
    assert sorted(x.name for x in tmp_path.iterdir()) == ["null", "pipe", "w"]


def test_threads_save_to_one_file(w: Numbers, tmp_path: Path) -> None:
    """What is read is what one of them wrote."""
    kinds = [prepack(w), prepack(w, 4, 32)]

    def save_and_load(number: int) -> int:
        kinds[number % 2].save(tmp_path / "w")
        return Packed.load(tmp_path / "w").bits

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(save_and_load, range(100))) <= {4, 8}
    assert [x.name for x in tmp_path.iterdir()] == ["w"]


def test_errors(w: Numbers) -> None:
    with pytest.raises(SpecError, match="bits = 3: use 8 or 4") as error:
        prepack(w[None], bits=3, group=5)
    assert "group = 5: use None" in str(error.value)
    assert f"w has shape {w[None].shape}, of no matrix with elements: pass [k, n]" in str(error.value)
    for array, message in (
        (w[:0], r"w has shape \(0, .*, of no matrix with elements"),
        (w.astype(np.int32), r"w is of type int32, not of floats: pass w.astype\(np.float32\)"),
        (w + 1j, r"not of floats: pass w.real.astype\(np.float32\)"),
        (np.ma.array(w, mask=w > 0), r"w is a masked array, and a kernel cannot see the mask: pass w.filled\(0\)"),
    ):
        with pytest.raises(SpecError, match=message):
            prepack(array)
    with pytest.raises(SpecError, match=r"a is of type Packed, not an array: pass a.dequantized\(\)"):
        gemmgen.gemm(prepack(w), w)
    with pytest.raises(SpecError, match=r"a is prepacked as well, and only b may be: pass a.dequantized\(\)"):
        gemmgen.gemm(prepack(w), prepack(w))
    wrong = w.copy()
    wrong[2, 2] = np.nan
    for numbers in (wrong, np.full((2, 2), 1e300)):
        with pytest.raises(SpecError, match="not finite in float32"):
            prepack(numbers)
    with pytest.raises(SpecError, match="zero_points = 'no': use True or False"):
        prepack(w, zero_points="no")  # type: ignore[arg-type]
    packed = prepack(w)
    assert repr(packed) == f"<Packed {w.shape[0]}x{w.shape[1]}, int8, a scale for a column>"
    with pytest.raises(SpecError, match=r"scales are no float32 array of shape \(70,\)"):
        Packed(packed.values, packed.scales[1:])
    of_4 = prepack(w, 4, 32, zero_points=True)
    for change, message in (
        ({"k": K + 1}, "k = 301 is not what 150 rows of 2 elements each hold"),
        ({"k": True}, "k = True is not what"),
        ({"zeros": cast("Numbers", of_4.zeros) + np.int8(8)}, "zeros are beyond the 4 bits of an element"),
        ({"values": of_4.values.astype(np.int16)}, "no int8 or uint8 matrix"),
        ({"values": of_4.values[:1], "k": 1}, "k = 1 of 4 bits is half a byte"),
    ):
        with pytest.raises(SpecError, match=message):
            replace(of_4, **change)
    with pytest.raises(SpecError, match="w has one row, half a byte of 4 bits"):
        prepack(w[:1], 4)
    x = np.ones((2, K), np.float32)
    with pytest.raises(SpecError, match="a has k = 299, the prepacked weights k = 300"):
        gemmgen.gemm(x[:, 1:], of_4)
    lies_across = of_4.values.copy("C")
    with pytest.raises(SpecError, match="b holds pairs of elements along K, and its lines lie across K"):
        gemmgen.gemm(x, lies_across, prologue_b="b * b_factor", b_factor=np.ones(1, np.float32))
    with pytest.raises(DtypeError, match="a of float64 with prepacked weights: cast it to one of float32"):
        gemmgen.gemm(x.astype(np.float64), packed)
    with pytest.raises(SpecError, match="transpose_b does not go with prepacked weights"):
        gemmgen.gemm(x, packed, transpose_b=True)
    with pytest.raises(SpecError, match="a has k = 299"):
        gemmgen.gemm(x[:, 1:], packed)


def test_arrays_of_a_prologue_beside_weights_are_refused(w: Numbers) -> None:
    x, packed = np.ones((2, K), np.float32), prepack(w)
    for name in ("b_scale", "b_zero", "b_shift", "b_scale_32"):
        with pytest.raises(SpecError, match=f"{name} does not go with prepacked weights as b: leave it out"):
            gemmgen.gemm(x, packed, **{name: "nonsense"})  # type: ignore[arg-type]
    with pytest.raises(SpecError) as caught:
        gemmgen.gemm(x, packed, b_scale=w[0], transpose_a=np.array([1, 2]), conjugate_b=True, alpha="x")  # type: ignore[arg-type]
    assert len(caught.value.problems) == 4, caught.value.problems


@BITS
def test_problems_of_an_epilogue_beside_weights(bits: int, w: Numbers) -> None:
    """Nothing is told that the caller did not pass."""
    x, packed = np.ones((2, K), np.float32), prepack(w, bits)
    for epilogue, said in (("swiglu", "swiglu takes no prepacked weights"), ("nope", "no function 'nope'")):
        with pytest.raises(SpecError, match=said) as caught:
            gemmgen.gemm(x, packed, epilogue=epilogue)
        assert len(caught.value.problems) == 1, caught.value.problems
    columns = w.shape[1] // 2 * 2
    even = prepack(w[:, :columns], bits)
    assert gemmgen.gemm(x, even.dequantized(), epilogue="swiglu").shape == (2, columns // 2)


@pytest.mark.parametrize(("option", "value"), [("bits", 8.0), ("group", 32.0), ("bits", [8]), ("group", np.ones(2))])
def test_numbers_that_are_not_whole(option: str, value: object, w: Numbers) -> None:
    with pytest.raises(SpecError, match=f"{option} = "):
        prepack(w, **{option: value})  # type: ignore[arg-type]


@BITS
def test_torch(bits: int, w: Numbers, rng: np.random.Generator) -> None:
    torch = need_torch()
    packed = prepack(torch.nn.Parameter(torch.from_numpy(w).to(torch.bfloat16)), bits, 128)
    x = torch.from_numpy(rng.standard_normal((3, K)).astype(np.float32))
    c = gemmgen.gemm(x, packed)
    assert isinstance(c, torch.Tensor)
    assert torch.allclose(c, x @ torch.from_numpy(packed.dequantized()), rtol=1e-4, atol=0.2)
    for tensor in (torch.empty(4, 4, device="meta"), torch.eye(4).to_sparse()):
        with pytest.raises(SpecError, match=r"w is no array that NumPy can read: .* Use Tensor"):
            prepack(tensor)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_few_rows_are_not_packed_at_each_call(dtype: str, w: Numbers) -> None:
    """On a GPU of CUDA one row is multiplied from the bytes as they are, by one kernel."""
    packed = prepack(w, group=128, zero_points=True)
    assert packed.values.flags.f_contiguous
    formula = "(b - b_zero_128) * b_scale_128"
    spec = GemmSpec(dtype=dtype, b_dtype="int8", b_order="col", prologue_b=formula, ld_multiple=16)
    schedule = choose(spec, (1, 4096, 4096), TARGETS["sm_90a"])
    assert not (schedule.a.prepacked or schedule.b.prepacked)


@pytest.mark.parametrize("bits", ["int8", "int4"])
def test_tensor_cores_take_them_as_they_are_where_that_pays(bits: str) -> None:
    """Warps make elements for few rows, warpgroups for more; of very many rows a kernel before lays B out for them.
    Without these instructions warps make elements of some rows more.
    """
    spec = GemmSpec(dtype="bfloat16", b_dtype=bits, b_order="col", prologue_b="b * b_scale_128", ld_multiple=16)
    expected = {
        "sm_90a": ((1, ("mma", False)), (64, ("wgmma", False)), (512, ("wgmma", False)), (4096, ("wgmma", True))),
        "sm_80": ((3, ("mma", False)), (64, ("mma", False)), (512, ("mma", True))),
    }
    for target, cases in expected.items():
        for rows, wanted in cases:
            schedule = choose(spec, (rows, 4096, 4096), TARGETS[target])
            assert (schedule.atom, schedule.b.prepacked) == wanted


SKIP = cuda.why_no_gpu()


@pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
@BITS
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("group", "zero_points"), FORMS)
def test_a_gpu(dtype: str, group: int | None, zero_points: bool, bits: int, rng: np.random.Generator) -> None:
    import torch

    k, n = 512, 384
    packed = exact(rng, k, n, bits, group, zero_points)
    for rows in (1, 7, 300):
        x = rng.integers(-2, 3, (rows, k)).astype(np.float32)
        there = torch.from_numpy(x).cuda().to(getattr(torch, dtype))
        c = gemmgen.gemm(there, packed, dtype=torch.float32)
        assert np.array_equal(c.cpu().numpy(), x @ packed.dequantized())
