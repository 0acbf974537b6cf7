"""What a step and a block of a design take on a GPU of CUDA whatever the sizes of the product: the part of the prior
(`gemmgen.choice.prior`) that is computed once for a class of products.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gemmgen.choice.columns import FMA, LINE, WGMMA, Designs, Numbers, designs
from gemmgen.choice.epilogue import PROLOGUE, of_prologue
from gemmgen.choice.machine import BLOCKS, REGISTERS, RESERVED, SCHEDULERS, THREADS, WARP, Machine
from gemmgen.ir.dtypes import DType
from gemmgen.spec import GemmSpec

#: Registers of a thread beside its sums; and beside those and its parts of A and B, where it multiplies by itself.
OTHER_REGISTERS, ADDRESSES = 56, 24
#: The part of a line's cost by TMA that it has where threads copy it: their own instructions are counted apart.
BESIDE_COPIES = 0.25


class Rates(NamedTuple):
    """What follows from a design and a device whatever the sizes of the product: cycles of a multiprocessor but for the
    last ones.

    Attributes:
        multiply: to multiply a step's tiles, or to read them from shared memory, with all units busy.
        enough: threads that keep them busy.
        copy: to copy a step's tiles of whole blocks by threads.
        handed: to hand over a step's tiles where no other block is there.
        vector, single: to store an element of C beside neighbours; by itself.
        begin: of a block's beginning.
        line: bytes that a line asks of L2.
        arrive: until a step's tiles have come.
        wait: of a step, by a single block, until what it has asked for is there.
        cores: multiprocessors that blocks find room on.
        resident, unstaged: blocks that a multiprocessor has at once; the same where C is not stored by TMA, as parts of
            K are not.
    """

    multiply: Numbers
    enough: Numbers
    copy: Numbers
    handed: Numbers
    vector: Numbers
    single: Numbers
    begin: Numbers
    line: Numbers
    arrive: Numbers
    wait: Numbers
    cores: Numbers
    resident: Numbers
    unstaged: Numbers


class Weighed(NamedTuple):
    """Designs and their rates: a table of each, a column a design."""

    own: Numbers
    rates: Numbers

    def and_again(self, index: npt.NDArray[np.intp]) -> Weighed:
        """All, then some of them once more."""
        own, rates = (np.concatenate((each, each.take(index, 1)), axis=1) for each in self)
        return Weighed(own, rates)


def weighed(spec: GemmSpec, own: Numbers, machine: Machine) -> Weighed:
    """A table of designs with their rates."""
    return Weighed(own, np.array(_rates(spec, designs(own), machine)))


def _rates(spec: GemmSpec, d: Designs, c: Machine) -> Rates:
    dtype = spec.dtype
    peak, reads, busy, vector, single = _of_units(dtype, c)[:, d.unit.astype(np.intp)]
    (rows, cols), size = d.block, dtype.size
    # Tiles are read from shared memory as often as there are instructions beside one another; TMA writes them there.
    passes = 1 / d.together[0] + 1 / d.together[1] + (1 / rows + 1 / cols) * (d.unit == WGMMA)
    volume = rows * cols * d.depth
    # Elements of fewer than 4 bytes that are copied one by one go through registers.
    alone = np.where(d.across > 1, c.copy_conflicts, np.where(d.across > 0, c.copy_across, c.copy_single))
    each = d.block * np.where(d.copy < 1, d.copy * c.copy, alone * (c.through if size < 4 else 1.0))
    # What is stored otherwise goes through registers, unless a kernel before has laid it out.
    each_element = [_conversions(spec, x, d.unit == WGMMA) for x in "ab"]
    made = c.conversion * np.array(each_element) * c.work / SCHEDULERS / WARP
    copy_a, copy_b = d.depth * (each + np.where(d.packed > 0, 0.0, d.block * made))
    line = LINE * np.where(d.fetched > 0, 1.0, BESIDE_COPIES)
    return Rates(
        multiply=np.maximum(volume / peak, volume * passes * size / reads),
        # A few warps don't keep the units busy; those whose threads have more sums each do so sooner.
        enough=np.where(d.unit == FMA, busy * (64 / d.sums) ** c.own_work, busy),
        copy=copy_a + copy_b,
        handed=c.step + c.paired * (d.cluster[0] * d.cluster[1] > 1),
        vector=vector,
        single=single,
        begin=c.begin
        + np.where(d.fetched > 0, c.own_fetched * (d.sums / 64) ** c.own_more, c.own_copied) * d.sums
        + c.stay * d.stays
        + c.meet * (d.cluster[0] * d.cluster[1] > 1),
        line=line,
        arrive=d.block.sum(0) * d.depth * size / LINE / c.arrive * line,
        wait=np.where(d.stages > 1, c.latency / np.maximum(0.5, d.stages - 1), 0.0),
        cores=np.where(d.cluster.prod(0) > 2, c.in_fours, c.cores),
        resident=_resident(spec, d, d.staged, c),
        unstaged=_resident(spec, d, np.zeros_like(d.staged), c),
    )


def _resident(spec: GemmSpec, d: Designs, staged: Numbers, machine: Machine) -> Numbers:
    """Blocks that a multiprocessor has at once.

    Args:
        staged: stages of the epilogue.
    """
    shared = d.held * spec.dtype.size + staged * d.block[0] * d.block[1] * spec.result.size / 2 + RESERVED
    # What a work-item multiplies next is read while it multiplies.
    other = np.where(d.unit == FMA, ADDRESSES + 2 * d.together.sum(0), OTHER_REGISTERS)
    registers = (d.sums * spec.accumulator.size / 4 + other) * d.threads + d.producers * 32
    most = np.minimum(machine.shared / shared, REGISTERS / registers)
    found: Numbers = np.floor(np.minimum(most, THREADS / (d.threads + d.producers)))
    return np.minimum(np.maximum(found, 1), BLOCKS)


def _conversions(spec: GemmSpec, matrix: str, scaled: npt.NDArray[np.bool_]) -> Numbers:
    """What an element costs that is not stored as it is multiplied, in instructions that convert one.

    Args:
        scaled: whether scales multiply sums.
    """
    formula = spec.prologue_a if matrix == "a" else spec.prologue_b
    each = np.where(scaled, of_prologue(spec, matrix), PROLOGUE) if formula is not None else np.zeros(len(scaled))
    return np.asarray(each + (spec.element(matrix) != spec.dtype), dtype=np.float64)


@cache
def _of_units(dtype: DType, c: Machine) -> Numbers:
    """By what multiplies: multiply-adds of a cycle, bytes read in one, threads that keep it busy, and cycles to store
    an element by vectors and by itself.
    """
    return np.array(
        (
            (c.rate("fma", dtype), c.read_fma, c.busy, c.store_vector, c.store_single),
            (c.rate("mma", dtype), c.read_mma, c.busy, c.store_vector_mma, c.store_single_mma),
            (c.rate("wgmma", dtype), c.read_wgmma, 1.0, c.store_vector_mma, c.store_single_mma),
        )
    ).T
