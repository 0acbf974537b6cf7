"""Where a checkout has its `gemmgen.generated`: beside the package. A wheel has it inside, in place of this module."""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[1] / "generated")]
