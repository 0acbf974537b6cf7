"""What a kernel has that SYCL brings by headers: the run-time compiler reads those that it needs, and no others."""

from __future__ import annotations

from collections.abc import Collection

from gemmgen.backends.sycl_types import Elements
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.kernel import Kernel, uses_calls
from gemmgen.ir.meetings import Barrier
from gemmgen.ir.stmt import Alloc, Move
from gemmgen.ir.walk import walk

#: Functions of a sub-group.
LANES = {"broadcast": "group_broadcast", "shuffle_xor": "permute_group_by_xor"}


def block_loads(kernel: Kernel) -> list[Move]:
    """The moves by which a sub-group loads neighbours."""
    return [s for s in walk(kernel.body) if isinstance(s, Move) and s.atom.name == "block_read"]


def local_arrays(kernel: Kernel) -> list[Buffer]:
    """What lies in local memory."""
    return [s.buffer for s in walk(kernel.body) if isinstance(s, Alloc) and s.buffer.space is Space.LOCAL]


def shares_lanes(kernel: Kernel) -> bool:
    """Whether work-items of a sub-group act together."""
    return bool(block_loads(kernel)) or uses_calls(kernel, {"lane_id", *LANES})


def headers(kernel: Kernel, words: Collection[str], elements: Elements) -> list[str]:
    """Those that a kernel needs of the run-time compiler, where they cost more than its own text; `words` are all names
    in its body.
    """
    found = ["builtins.hpp", "ext/oneapi/free_function_kernel_properties.hpp"]
    found += ["ext/oneapi/free_function_queries.hpp", "nd_item.hpp"]
    if any(isinstance(s, Barrier) for s in walk(kernel.body)):
        found.append("group_barrier.hpp")
    if "atomic_add" in words:
        found.append("atomic_ref.hpp")
    if local_arrays(kernel):
        found.append("ext/oneapi/work_group_static.hpp")
    if shares_lanes(kernel):
        found += ["group_algorithm.hpp", "sub_group.hpp"]
    if block_loads(kernel):
        experimental = "ext/oneapi/experimental"
        found += [f"{experimental}/address_cast.hpp", f"{experimental}/group_load_store.hpp"]
    if any(isinstance(s, Alloc) and s.buffer.vector > 1 for s in walk(kernel.body)):
        found.append("vector.hpp")
    found += [header for p in kernel.matrices for header in elements.headers.get(p.dtype.name, ())]
    return sorted(set(found))
