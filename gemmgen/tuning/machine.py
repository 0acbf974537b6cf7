"""constants"""

from __future__ import annotations
from dataclasses import dataclass, replace
from gemmgen.ir.dtypes import DType
from gemmgen.ir.target import Target


@dataclass(frozen=True, slots=True)
class Machine:
    cores: int = 132
    clock: float = 1755.0
    shared: float = 232448.0
    memory: float = 4.0e6
    cached: float = 2.0e7
    cache: float = 4.0e7
    fetch: float = 64.0
    shared_rate: float = 128.0
    latency: float = 700.0
    begin: float = 500.0
    launch: float = 1.0
    store: float = 60.0
    store_element: float = 0.12
    store_single: float = 0.6
    packed: float = 2.4e6
    copy: float = 0.11
    copy_single: float = 0.25
    copy_across: float = 0.55
    torn: float = 1.0
    sum_group: float = 240.0
    step: float = 40.0
    meeting: float = 0.8
    busy: float = 256.0
    wgmma: float = 2000.0
    mma: float = 900.0
    fma: float = 115.0

    def rate(self, atom: str, dtype: DType) -> float:
        if atom.startswith("wgmma"):
            return self.wgmma * 2 / dtype.size
        if atom.startswith("mma"):
            return self.mma * 2 / dtype.size
        return self.fma


def machine_of(target: Target) -> Machine:
    return Machine(cores=target.cores, shared=float(target.local_bytes))
