"""Disassembly as the tools print it, counted by hand; and anything else, which must be shown and never dropped."""

# ruff: noqa: E501 (lines as the disassemblers print them)
from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmgen.inspect import amd, intel, nvidia
from gemmgen.inspect.code import Access, Compiled, Kind, Listing, Resources
from gemmgen.inspect.machine import machines
from gemmgen.inspect.report import Report, Subject, report

INTEL = """
L0:
/* [0000]  */ (W)     mov (8|M0)               r32.0<1>:ud   r0.0<1;1,0>:ud
/* [0010]  */         mov (8|M0)               r33.0<1>:f    0.0:f
L32:
/* [0020]  */ (W)     add (1|M0)               r6.2<1>:d     r50.1<0;1,0>:d    r5.1<0;1,0>:d    {Compacted}
/* [0028]  */ (W)     send (16|M0)             r64:w    r43     0xA            0x02284301           // wr:1h+0, rd:2; hdc.dc0; oword aligned block read x4
/* [0038]  */         send (8|M0)              r8:f     r8      0xC            0x024060FE           // wr:1+0, rd:4; hdc.dc1; untyped surface read with xyzw
/* [0048]  */         sends (8|M0)             null:ud  r12     r8      0x4C            0x02026EFE           // wr:1+1, rd:0; hdc.dc1; untyped surface write with x
/* [0058]  */ (W)     send (8|M0)              r1       r10     0xA            0x021C0033           // wr:1h+0, rd:1; hdc.dc0; hword scratch block read x1
/* [0068]  */ (W)     mov (1|M0)               r42.0<1>:f    r[a0.0]<0;1,0>:f
/* [0070]  */         mad (8|M0)               r1.0<1>:f     r1.0<0;1>:f       r12.0<8;1>:f      r28.0<0>:f        {Compacted}
/* [0080]  */         mad (8|M0)               acc0.0<1>:d   r1.0<8;1,0>:d     r12.0<8;1,0>:d    r2.0<0;1,0>:d
/* [0090]  */         dpas.8x8 (8|M0)          r10:f         r10:f             r20:hf            r30.0:hf
/* [00a0]  */ (W)     sync.bar                             null
/* [00b0]  */         sync.nop                             null                             {Compacted,I@2}
/* [00c0]  */ (W)     cmp (8|M0)    (lt)f1.0   null<1>:d     r109.1<0;1,0>:d   r118.5<0;1,0>:d
/* [00d0]  */ (W&f1.0) jmpi                                L32
/* [00e0]  */ (W)     send.gtwy (8|M0)         null     r112    null:0  0x0            0x02000010           {EOT,A@1} // wr:1+0, rd:0; end of thread
"""
NVIDIA = """
\t.headerflags\t@"EF_CUDA_SM90"
.text.k:
\t//## File "/tmp/k.cu", line 64
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
\t//## File "/tmp/k.cu", line 65
        /*0010*/              @!PT LDS RZ, [RZ] ;
        /*0020*/                   LDS.128 R4, [R2] ;
        /*0030*/                   LDG.E R8, desc[UR4][R8.64] ;
        /*0040*/                   LDGSTS.E.BYPASS.128.ZFILL [R27+0xc600], desc[UR8][R20.64], P3 ;
        /*0050*/                   STL [R1], R5 ;
        /*0060*/                   FFMA R0, R4, R5, R0 ;
        /*0070*/                   FFMA R1, -RZ, RZ, 0 ;
        /*0080*/                   HMMA.16816.F32 R4, R8, R10, R4 ;
        /*0090*/                   IMAD.MOV.U32 R3, RZ, RZ, R5 ;
        /*00a0*/                   IMAD R3, R4, R5, R6 ;
        /*00b0*/                   UIADD3 UR4, UR4, 0x8, URZ ;
        /*00c0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*00d0*/               @P0 BRA `(.L_x_0) ;
        /*00e0*/                   EXIT ;
.L_x_1:
        /*00f0*/                   BRA `(.L_x_1);
"""
AMD = """
\t.loc\t1 21 1 prologue_end             ; k.cl:21:1
\ts_load_dwordx4 s[0:3], s[8:9], 0x0
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
\t.loc\t1 65 10                         ; k.cl:65:10
\ts_waitcnt lgkmcnt(14)
\tds_read_b128 v[4:7], v1
\tds_read2_b32 v[8:9], v1 offset1:1
\tglobal_load_dwordx4 v[0:3], v[10:11], off
\tbuffer_load_dword v12, off, s[0:3], 0 offset:4 ; 4-byte Folded Reload
\tv_fmac_f32_e32 v203, v138, v132
\tv_pk_fma_f32 v[2:3], v[4:5], v[6:7], v[2:3]
\tv_dual_fmac_f32 v1, v2, v3 :: v_dual_mul_f32 v4, v5, v6
\tv_mfma_f32_32x32x2f32 a[0:31], v0, v1, a[0:31]
\tv_mad_u32_u24 v1, v2, v3, v4
\tv_mov_b32_e32 v1, v2
\tv_readfirstlane_b32 s4, v1
\ts_add_u32 s4, s4, 8
\ts_barrier
\ts_cbranch_scc1 .LBB0_1
\ts_endpgm
"""


def loop_of(listing: Listing, target: str) -> Report:
    return report(machines()[target], Compiled("k", Resources(lanes=8), listing), Subject("k"))


def test_intel() -> None:
    listing = intel.parse(INTEL, 32, {0x28: 7})
    assert not listing.strange
    kinds = [x.kind for x in listing.instructions]
    assert kinds[:2] == [Kind.MOVE, Kind.MOVE]
    assert kinds[2:] == [
        *(Kind.INT, Kind.LOAD, Kind.LOAD, Kind.STORE, Kind.LOAD, Kind.SHUFFLE, Kind.FMA, Kind.INT, Kind.MATRIX),
        *(Kind.BARRIER, Kind.WAIT, Kind.SELECT, Kind.BRANCH, Kind.BRANCH),
    ]
    accesses = [x.access for x in listing.instructions if x.access]
    assert accesses == [
        Access("global", "oword aligned block read x4, 2 regs", 64),
        Access("local", "untyped surface read with xyzw, 4 regs", 128),
        Access("local", "untyped surface write with x, 1 regs", 32),
        Access("scratch", "hword scratch block read x1, 1 regs", 32),
    ]
    assert [x.fmas for x in listing.instructions if x.fmas] == [8, 8 * 8 * 2 * 8]
    assert listing.instructions[3].line == 7
    assert listing.labels == {"L0": 0, "L32": 2}
    assert not listing.instructions[-1].falls_through


def test_intel_without_addresses() -> None:
    """ocloc's own listing leaves them out; labels are byte offsets, and tell that ours are right."""
    text = re.sub(
        r"/\*.*?\*/",
        "",
        """
L0:
/* [0000]  */ (W)     mov (16|M0)              r67.0<1>:ud   r0.0<1;1,0>:ud
/* [0010]  */ (W)     shl (1|M0)               r100.0<1>:d   r67.1<0;1,0>:d    6:w               {Compacted}
L24:
/* [0018]  */         mov (16|M0)              r245.0<1>:ud  0x0:ud                              {Compacted,I@1}
/* [0020]  */         mad (16|M0)              r1.0<1>:f     r1.0<0;1>:f       r12.0<8;1>:f      r28.0<0>:f
""",
    )
    assert "0018" not in text
    lines = intel.parse(text, 64, {0x10: 3, 0x18: 4, 0x20: 5}).instructions
    assert [x.line for x in lines] == [0, 3, 4, 5]


def test_intel_counts_a_transposed_message_by_its_elements() -> None:
    text = "(W) send.ugm (1|M0) r37 r5 null:0 0x0 0x0210D580 {$2} // wr:1+0, rd:1; load.ugm.d32x8t.a64"
    (x,) = intel.parse(text, 64).instructions
    assert x.access == Access("global", "load.ugm.d32x8t", 32)


def test_nvidia_vectors_that_are_added_to_memory() -> None:
    line = "        /*6440*/                   REDG.E.ADD.F32x4.FTZ.RN.STRONG.GPU desc[UR12][R20.64], R4 ;"
    listing = nvidia.parse(line)
    assert not listing.strange
    assert [x.kind for x in listing.instructions] == [Kind.STORE]


def test_nvidia() -> None:
    listing = nvidia.parse(NVIDIA)
    assert not listing.strange
    assert [x.kind for x in listing.instructions] == [
        *(Kind.SCALAR, Kind.OTHER, Kind.LOAD, Kind.LOAD, Kind.LOAD, Kind.STORE, Kind.FMA, Kind.MOVE, Kind.MATRIX),
        *(Kind.MOVE, Kind.INT, Kind.SCALAR, Kind.BARRIER, Kind.BRANCH, Kind.BRANCH, Kind.BRANCH),
    ]
    accesses = [x.access for x in listing.instructions if x.access]
    assert accesses == [
        Access("local", "LDS.128", 512),
        Access("global", "LDG", 128),
        Access("global", "LDGSTS.BYPASS.128", 512),
        Access("scratch", "STL", 128),
    ]
    assert [x.fmas for x in listing.instructions if x.fmas] == [32, 16 * 8 * 16]
    assert listing.instructions[1].line == 65
    assert [x.falls_through for x in listing.instructions[-3:]] == [True, False, False]


def test_a_branch_by_an_operand_may_fall_through() -> None:
    (x,) = nvidia.parse("        /*00d0*/                   BRA.DIV ~URZ, `(.L_x_0) ;").instructions
    assert x.falls_through and x.targets == (".L_x_0",)


def test_a_call_of_a_label_of_its_own_is_a_branch() -> None:
    """As nvcc ends loops for sm_80."""
    row = "        /*29c0*/              @P1 CALL.REL.NOINC `(.L_x_0) ;\n"
    (x,) = nvidia.parse(row).instructions
    assert (x.targets, x.falls_through, x.calls) == ((".L_x_0",), True, False)
    (x,) = nvidia.parse(row.replace("@P1", "   ")).instructions
    assert not x.falls_through
    (x,) = nvidia.parse(row.replace(".L_x_0", "$__internal_0_$sqrt")).instructions
    assert (x.targets, x.falls_through, x.calls) == ((), True, True)


def test_amd() -> None:
    listing = amd.parse(AMD, 64)
    assert not listing.strange
    assert [x.kind for x in listing.instructions] == [
        *(Kind.LOAD, Kind.WAIT, Kind.LOAD, Kind.LOAD, Kind.LOAD, Kind.LOAD, Kind.FMA, Kind.FMA, Kind.FMA, Kind.MATRIX),
        *(Kind.INT, Kind.MOVE, Kind.SHUFFLE, Kind.SCALAR, Kind.BARRIER, Kind.BRANCH, Kind.BRANCH),
    ]
    accesses = [(x.access.space, x.access.bytes) for x in listing.instructions if x.access]
    assert accesses == [("global", 16), ("local", 1024), ("local", 512), ("global", 1024), ("scratch", 256)]
    assert [x.fmas for x in listing.instructions if x.fmas] == [64, 128, 64, 32 * 32 * 2]
    assert listing.instructions[2].line == 65


@pytest.mark.parametrize(
    ("target", "listing"),
    [
        ("skl", intel.parse(INTEL.replace("mad (8|M0)               r1", "madder (8|M0)            r1"), 32)),
        ("skl", intel.parse(INTEL.replace("// wr:1h+0, rd:2; hdc.dc0; oword aligned block read x4", "// ?"), 32)),
        ("skl", intel.parse(INTEL.replace("/* [0020]  */ (W)     add", "/* [0020]  */ 0x17 ???"), 32)),
        ("sm_90", nvidia.parse(NVIDIA.replace("LDG.E R8", "LDNEW.E R8"))),
        ("sm_90", nvidia.parse(NVIDIA.replace("/*0030*/", "what is this"))),
        ("gfx906", amd.parse(AMD.replace("ds_read_b128 v", "zz_read_b128 v"), 64)),
        ("gfx906", amd.parse(AMD.replace("ds_read_b128 v[4:7], v1", "???"), 64)),
    ],
)
def test_what_is_not_known_is_shown_and_nothing_counted(target: str, listing: Listing) -> None:
    found = loop_of(listing, target)
    assert found.loop is None
    assert found.doubts and "`" in found.doubts[0]
    assert found.bound.share is None
    assert found.listing  # the code itself is still shown


def test_what_is_not_known_outside_the_loop_is_a_note() -> None:
    found = loop_of(amd.parse(AMD.replace("s_load_dwordx4", "zz_load_dwordx4"), 64), "gfx906")
    assert found.loop is not None
    assert any("zz_load_dwordx4" in note for note in found.notes)


@pytest.mark.parametrize(
    ("target", "listing"),
    [
        ("skl", intel.parse(INTEL.replace("L32:\n", ""), 32)),
        ("sm_90", nvidia.parse(NVIDIA.replace(".L_x_0:\n", ""))),
        ("gfx906", amd.parse(AMD.replace(".LBB0_1:", "; %bb.1:"), 64)),
    ],
)
def test_a_branch_to_a_label_that_is_gone_is_told_of(target: str, listing: Listing) -> None:
    """As it would be in half of a listing: without it there would be no loop, and nobody would know."""
    found = loop_of(listing, target)
    assert found.loop is None and "lead where no label is" in found.doubts[0]


@pytest.mark.parametrize(
    ("target", "listing", "opcode"),
    [
        ("skl", intel.parse(INTEL.replace("sync.nop                ", "call (8|M0)  r9.0  L0"), 32), "call"),
        ("sm_90", nvidia.parse(NVIDIA.replace("UIADD3 UR4, UR4, 0x8, URZ", "CALL.REL.NOINC `(f)")), "CALL.REL.NOINC"),
        ("gfx906", amd.parse(AMD.replace("s_barrier", "s_swappc_b64 s[30:31], s[4:5]"), 64), "s_swappc_b64"),
    ],
)
def test_a_loop_that_calls_functions_is_not_counted(target: str, listing: Listing, opcode: str) -> None:
    found = loop_of(listing, target)
    assert found.loop is None and any(opcode in doubt for doubt in found.doubts), found.doubts
    assert any("functions are called in" in note for note in found.notes)


def test_halves_that_are_one_number_are_one_multiply_add() -> None:
    rows = ("HFMA2 R7, R2.H0_H0, R7.H0_H0, R7.H0_H0", "HFMA2.MMA R7, R2, R7, R7", "HFMA2 R7, R2.H0_H0, R7, R7")
    found = nvidia.parse("".join(f"        /*00{i}0*/                   {row} ;\n" for i, row in enumerate(rows)))
    assert [x.fmas for x in found.instructions] == [32, 64, 64]


def test_an_opcode_with_small_letters() -> None:
    (x,) = nvidia.parse(
        "        /*6440*/      REDG.E.ADD.F32x4.FTZ.RN.STRONG.GPU desc[UR12][R20.64], R16 ;"
    ).instructions
    assert x.kind is Kind.STORE


def test_what_few_lanes_gather_is_not_a_register() -> None:
    row = "/* [0]  */ (W)     send (1|M0)  r1  r10  0xC  0x0210D5FF  // wr:1+0, rd:1; hdc.dc1; byte gathering read"
    (one,) = intel.parse(row, 32).instructions
    (all_lanes,) = intel.parse(row.replace("1|M0", "8|M0"), 32).instructions
    assert one.access is not None and one.access.bytes is None
    assert all_lanes.access is not None and all_lanes.access.bytes == 32


def test_an_unknown_jump_outside_makes_the_loops_doubtful() -> None:
    found = loop_of(amd.parse(AMD.replace("s_endpgm", "zz_jump .LBB0_1"), 64), "gfx906")
    assert found.loop is None and "zz_jump" in found.doubts[0]


PARSERS: dict[str, Callable[[str], Listing]] = {
    INTEL: lambda text: intel.parse(text, 32),
    NVIDIA: nvidia.parse,
    AMD: lambda text: amd.parse(text, 64),
}


@given(st.sampled_from(list(PARSERS)), st.data())
def test_changed_lines_are_counted_or_shown(text: str, data: st.DataObject) -> None:
    """Whatever a line becomes, it stays an instruction, a label, something that is passed over, or is shown."""
    lines = text.splitlines()
    at = data.draw(st.integers(1, len(lines) - 1))
    line = lines[at]
    place = data.draw(st.integers(0, len(line)))
    junk = data.draw(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6))
    changed = [*lines[:at], line[:place] + junk + line[place + data.draw(st.integers(0, 3)) :], *lines[at + 1 :]]
    before, after = PARSERS[text](text), PARSERS[text]("\n".join(changed))
    kept = len(after.instructions) + len(after.strange) + len(after.labels)
    comments = ("//", ";", "#", ".", "/*")
    if kept < len(before.instructions) + len(before.labels):
        now = changed[at].strip()
        assert not now or now.startswith(comments) or "\n" in junk or line.strip().rstrip(":") in after.labels


@given(st.text(max_size=400))
def test_any_text_is_parsed(text: str) -> None:
    for parse in PARSERS.values():
        report(machines()["skl"], Compiled("k", Resources(lanes=8), parse(text)), Subject("k"))
    for read in (intel.kernels, nvidia.functions, amd.functions, amd.kernels):
        read(text)
    intel.resources(text)
    nvidia.resources(text, "k")
    amd.resources(text, "k")
