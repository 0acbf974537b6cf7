"""Schedules of work-items with vectors drawn by hypothesis: sweeps of every order, B in place or copied."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from gemmgen.fuzz.warpgroups import orders
from gemmgen.ir.dtypes import F32, F64
from gemmgen.ir.target import Target
from gemmgen.passes.vectors import WIDTHS
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec


@st.composite
def sweeping(draw: st.DrawFn, target: Target) -> tuple[GemmSpec, Schedule]:
    """Small tiles, blocks and sweeps, so that small matrices have many; and a spec that goes with them."""
    dtype = draw(st.sampled_from((F32, F64)))
    vector = draw(st.sampled_from([width for width in WIDTHS if width * dtype.size <= target.vector_bytes]))
    along_k, copied = draw(st.booleans()), draw(st.booleans())
    rows, vectors = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    depths = [vector, 2 * vector] if along_k else [1, 3, 8, 32]
    schedule = Schedule(
        tile=(rows, vectors if along_k else vectors * vector),
        group=(1, 1),
        vector=vector,
        along_k=along_k,
        sweep=(draw(st.integers(1, 4)), draw(st.integers(1, 3))),
        even=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        k_block=draw(st.sampled_from(depths if copied else [0, *depths])),
        m_block=draw(st.integers(0, 3)) if copied or along_k else 0,
        split=draw(st.sampled_from([1, 1, 2, 3])),
        b=Operand(memory="private") if copied else Operand(),
    )
    a_order, b_order, c_order = draw(orders), draw(orders), draw(orders)
    if along_k or not copied:
        # Only a copy turns B.
        b_order = "row" if along_k == copied else "col"
    a_order = "row" if along_k else a_order
    if copied and not along_k:
        k_step = draw(st.sampled_from([step for step in (1, 2, 4) if schedule.k_block % step == 0]))
        asks = "cache_prefetch" in target.features
        b_prefetch = draw(st.sampled_from([0, 1, 8])) if asks else 0
        c_prefetch = asks and c_order == "row" and draw(st.booleans())
        schedule = replace(schedule, k_step=k_step, b_prefetch=b_prefetch, c_prefetch=c_prefetch)
    return GemmSpec(dtype=dtype, a_order=a_order, b_order=b_order, c_order=c_order), schedule
