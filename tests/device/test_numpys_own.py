"""NumPy's own tests of matmul, as the installed NumPy ships them, over `gemmgen.gemm`. None of their text is here."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

from gemmgen import gemm
from gemmgen.errors import DeviceError
from gemmgen.runtime.opencl_devices import devices

#: What gemm does not do, and why.
BEYOND = {
    "test_out_arg": "wants a message that calls matmul a ufunc; what else it asks is asked by tests of ours",
    "test_array_priority_override": "operands that define @ themselves: for the operator, which gemm is not",
}


def matmul(a: object, b: object, out: object = None) -> object:
    """gemm by matmul's signature."""
    return gemm(a, b, out=out)


def _their_module() -> str:
    """Where NumPy keeps them: its name begins with an underscore since NumPy 2."""
    return f"numpy.{'_core' if find_spec('numpy._core') else 'core'}.tests.test_multiarray"


def _why_not() -> str | None:
    try:
        devices()
        import_module(_their_module())
    except (DeviceError, ImportError) as error:
        return str(error)
    return None


if (reason := _why_not()) is not None:
    pytest.skip(reason, allow_module_level=True)

theirs = import_module(_their_module())


@pytest.fixture(autouse=True)
def _swapped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if (reason := BEYOND.get(request.node.originalname)) is not None:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    # Some of the tests call numpy.matmul by its name.
    monkeypatch.setattr(np, "matmul", matmul)


class TestMatmul(theirs.TestMatmul):  # type: ignore[name-defined,misc]
    matmul = staticmethod(matmul)


class TestMatmulOperator(theirs.TestMatmulOperator):  # type: ignore[name-defined,misc]
    matmul = staticmethod(matmul)
