"""What programs read of the command line: `--json`, `presets` by what they are for, `cache`, and flags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer.main

from gemmgen import __version__, driver, presets
from gemmgen.cli import application
from gemmgen.cli.cache import Cache
from gemmgen.cli.request import FLAGS
from gemmgen.ir.dtypes import BF16
from gemmgen.ir.target import TARGETS
from gemmgen.options import FIELDS
from gemmgen.passes.validate import is_possible
from tests.support.cli import gemmgen, printed, refused

LOADED = tuple(map(presets.load, presets.names()))
COMMANDS = typer.main.get_command(application()).commands  # type: ignore[attr-defined]


def document(*arguments: str) -> dict[str, object]:
    found = json.loads(printed(*arguments), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert isinstance(found, dict) and found["gemmgen"] == __version__
    return found


# --- JSON -----------------------------------------------------------------------------------------


def test_presets() -> None:
    records = document("presets", "--json")["presets"]
    assert isinstance(records, list)
    assert [record["name"] for record in records] == list(presets.names())
    (record,) = (record for record in records if record["name"] == "block_read_32x2_1x8")
    expected = {
        "method": "block_read", "dtype": "float32", "c_dtype": "float32", "backends": ["opencl"], "tile": [32, 2],
        "group": [1, 8], "sub_group": 8, "stages": 1, "atom": "fma",
    }  # fmt: skip
    assert expected.items() <= record.items()
    assert record.keys() == {*expected, "name", "summary", "block_k"}


def test_devices() -> None:
    pytest.importorskip("pyopencl")
    records = document("devices", "--json")["devices"]
    assert isinstance(records, list) and records
    lines = printed("devices").splitlines()
    for record in records:
        assert {"backend", "number", "name", "presets", "lacks"} <= record.keys()
        assert any(line.startswith(f"{record['number']}  {record['name']} (") for line in lines)
        assert set(record["presets"]) <= set(presets.names())
        assert "naive" in record["presets"] or record["lacks"]


def test_run() -> None:
    pytest.importorskip("pyopencl")
    found = document(*"run -k naive -k tile_8x8 -M 20 -N 30 -K 40 -i 3 -v --json".split())
    assert found["backend"] == "opencl" and str(found["device"])
    assert isinstance(found["kernels"], list)
    assert [record["kernel"] for record in found["kernels"]] == ["naive", "tile_8x8"]
    for record in found["kernels"]:
        assert (record["m"], record["n"], record["k"], record["products"]) == (20, 30, 40, 1)
        assert len(record["milliseconds"]) == 3 and min(record["milliseconds"]) == record["best_milliseconds"] > 0
        assert record["gflops"] == pytest.approx(2 * 20 * 30 * 40 / record["best_milliseconds"] / 1e6)
        assert record["validation"]["passed"] and 0 <= record["validation"]["of_bound"] <= 1
    kernels = document(*"run -k naive -i 0 --json".split())["kernels"]
    assert isinstance(kernels, list)
    (built,) = kernels
    assert (built["milliseconds"], built["gflops"], built["validation"]) == ([], None, None)


def test_a_failed_run_is_a_document_too() -> None:
    """NaN and infinities, which JSON lacks, are null."""
    pytest.importorskip("pyopencl")
    result = gemmgen("run", "-k", "naive", "--epilogue", "expr: log(acc)", *"-M 9 -N 9 -K 9 -i 1 -v --json".split())
    assert result.returncode == 1 and result.stderr == ""
    (record,) = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["kernels"]
    assert record["validation"]["passed"] is False


# --- presets by what they are for -----------------------------------------------------------------


def names(*arguments: str) -> list[str]:
    return printed("presets", "--names", *arguments).splitlines()


def test_presets_of_a_backend() -> None:
    for backend in ("opencl", "cuda", "sycl"):
        loaded = map(presets.load, presets.names())
        assert names("--backend", backend) == [
            p.name for p in loaded if not driver.refusals(p.spec, p.schedule, backend)
        ]
    assert "block_read_32x2_1x8" not in names("--backend", "cuda")


def test_presets_of_a_type_and_a_target() -> None:
    found = names("--backend", "cuda", "--dtype", "bfloat16")
    assert {"mma_8x16_16x8", "wgmma_128x256_s4", "naive"} <= set(found)
    assert not {name for name in found if name.startswith(("mma_f64", "mma_s8", "cpu_"))}
    assert found == names("--backend", "cuda", "--dtype", "bf16")
    kept = set(names("--target", "sm_90a"))
    assert kept == {
        n for n in presets.names() if is_possible(presets.load(n).spec, presets.load(n).schedule, TARGETS["sm_90a"])
    }
    assert all(presets.load(name).spec.dtype == BF16 or "wgmma" not in name for name in names("--dtype", "bfloat16"))


def test_presets_of_a_device() -> None:
    pytest.importorskip("pyopencl")
    records = document("devices", "--json")["devices"]
    assert isinstance(records, list)
    first = next(record for record in records if record["backend"] == "opencl")
    assert names("--device", str(first["number"])) == first["presets"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--backend", "cda", "--dtype", "floot32"], ["did you mean cuda", "did you mean float32"]),
        (["--target", "skl"], ["--backend opencl --target intel"]),
        (["--target", "intel", "-d", "0"], ["exclude one another"]),
        (["--backend", "opencl", "--target", "sm_90a"], ["use --backend cuda"]),
        (["--backend", "opencl", "--dtype", "float8_e5m2"], ["no preset is left", "leave one of them out"]),
    ],
)
def test_presets_that_there_are_none_of(arguments: list[str], parts: list[str]) -> None:
    text = refused("presets", *arguments)
    assert all(part in text for part in parts), text


# --- the cache ------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with something of every kind, and with something else."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "cupy"))
    monkeypatch.delenv("GEMMGEN_BLAS_CACHE", raising=False)
    files = (
        "gemmgen/answers/choice-1", "gemmgen/opencl/naive-1", "gemmgen/cuda/naive-1", "gemmgen/inspect/b.json",
        "gemmgen/sycl/kernels/a.bin", "gemmgen/hypothesis/c/d", "gemmgen/of_tomorrow/e",
        "gemmgen_blas/mine.txt",
        "gemmgen_blas/tile-0123456789abcdef.bin", "pyopencl/pyopencl-compiler-cache-v2/f", "cupy/g.cubin",
        "cupy/mine.txt", "gemmgen/calibration/numpy-1",
    )  # fmt: skip
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(10))
    return tmp_path


def test_what_is_kept(home: Path) -> None:
    records = document("cache", "--json")["caches"]
    assert isinstance(records, list)
    found = {record["name"]: record for record in records}
    mine = {"answers", "opencl", "cuda", "sycl", "calibration", "inspect", "hypothesis", "blas"}
    own = mine | {"of_tomorrow"}
    assert found.keys() == own | {"pyopencl", "cupy"}
    assert all((record["files"], record["bytes"]) == (1, 10) for record in records)
    assert {name for name, record in found.items() if record["shared"]} == {"pyopencl", "cupy"}
    assert str(home / "gemmgen" / "answers") in printed("cache")


def test_clearing(home: Path) -> None:
    text = printed("cache", "--clear", "answers,cuda,cupy")
    assert text.count("1 file deleted from") == 3
    assert not (home / "gemmgen/cuda/naive-1").exists()
    assert not (home / "gemmgen/answers/choice-1").exists() and not (home / "cupy/g.cubin").exists()
    assert (home / "gemmgen/inspect/b.json").exists()
    printed("cache", "--clear", "all")
    left = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    # Other programs' files, and what lies in a folder that an environment variable names, are not gemmgen's to delete.
    assert left == ["cupy/mine.txt", "gemmgen_blas/mine.txt", "pyopencl/pyopencl-compiler-cache-v2/f"]
    assert "0 files deleted" in printed("cache", "--clear", "all")
    text = refused("cache", "--clear", "anwers,nothing")
    assert "did you mean answers?" in text and "'nothing' is no cache: give one of" in text


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "precious")
    Cache("inside", tmp_path / "inside", "").clear()
    assert not (tmp_path / "inside" / "link").exists()
    (tmp_path / "linked").symlink_to(tmp_path / "precious")
    Cache("linked", tmp_path / "linked", "").clear()
    assert (tmp_path / "precious" / "file").read_text() == "mine"


# --- flags and letters ----------------------------------------------------------------------------


def test_flags_of_a_schedule() -> None:
    expected = printed("emit", "--method", "slm", "--set", "prefetch=true", "--set", "a.pad=4")
    for said in (["--prefetch"], ["--set", "prefetch"], ["--prefetch", "--set", "prefetch=true"]):
        assert printed("emit", "--method", "slm", "--set", "a.pad=4", *said) == expected
    wgmma = ("emit", "--backend", "cuda", "--target", "sm_90a", "--preset", "wgmma_tf32_128x256_s4_held")
    assert printed(*wgmma, "--no-persistent") == printed(*wgmma, "--set", "persistent=false") != printed(*wgmma)
    assert "prefetch is given twice, as" in refused("emit", "--method", "slm", "--no-prefetch", "--set", "prefetch")
    assert "--set stages says no value: give one, --set stages=2" in refused("emit", "--set", "stages")


def test_every_flag_is_an_option() -> None:
    flags = {key for key, field in FIELDS.items() if field.kind == "bool"}
    assert set(FLAGS) == flags
    for name in ("emit", "explain", "inspect", "run"):
        options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        assert {f"--{key.replace('_', '-')}" for key in flags} <= options


def test_flags_are_not_shown_to_take_a_value() -> None:
    for name in (*COMMANDS, None):
        assert "bool" not in printed(*([] if name is None else [name]), "--help")


def test_v_validates_and_nothing_else() -> None:
    """Verbosity, where a command should ever have it, is --verbose."""
    meant = {name: parameter.opts for name, c in COMMANDS.items() for parameter in c.params if "-v" in parameter.opts}
    assert meant == {"run": ["-v", "--validate", "--validation"]}


def test_the_sample_s_long_options() -> None:
    pytest.importorskip("pyopencl")
    short = "run -t all -d 0 -M 24 -K 16 -N 20 -i 1 -k naive -v".split()
    long = (
        "run --type all --device 0 --size1 24 --size2 16 --size3 20 --iterations 1 --kernel naive --validation".split()
    )
    a, b = printed(*short), printed(*long)
    assert "24 x 20 x 16" in a and "24 x 20 x 16" in b and "validation passed" in a and "validation passed" in b
    text = gemmgen(*(word if word != "all" else "acc" for word in short)).stderr
    assert "does not exist" not in text
    assert "type 'accelerator'" in text or not text
