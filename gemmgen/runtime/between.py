"""The memory between a source's kernels: how much of it a product takes, and whether the kernels reach all of it."""

from __future__ import annotations

from collections.abc import Mapping

from gemmgen.ir.walk import evaluate
from gemmgen.ir.workspace import Workspace
from gemmgen.runtime.arrays import Request
from gemmgen.runtime.kept import Kept
from gemmgen.runtime.views import SpanError
from gemmgen.source import Source

#: Kinds of calls whose memory is remembered.
REMEMBERED = 256


class Between:
    """The elements that a source's workspaces have, by the sizes of a product."""

    def __init__(self, source: Source) -> None:
        self._workspaces = source.workspaces
        self._known: Kept[tuple[int, ...], tuple[tuple[Workspace, int], ...]] = Kept(REMEMBERED)

    def elements(self, sizes: Mapping[str, int]) -> tuple[tuple[Workspace, int], ...]:
        """Of each. Raises: SpanError for more than the kernels reach."""
        return self._known.get(tuple(sizes.values()), lambda: self._elements(sizes)) if self._workspaces else ()

    def checked(self, request: Request) -> Request:
        """The request. Raises: as `elements`."""
        self.elements(request.sizes)
        return request

    def _elements(self, sizes: Mapping[str, int]) -> tuple[tuple[Workspace, int], ...]:
        found = tuple((workspace, evaluate(workspace.elements, dict(sizes))) for workspace in self._workspaces)
        if problems := [problem for workspace, count in found if (problem := workspace.problem(count))]:
            raise SpanError(problems)
        return found
