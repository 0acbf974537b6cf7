"""The reasons to skip a test that stay where all that a package index or Debian holds is installed."""

from __future__ import annotations

GPU = "needs an NVIDIA GPU"
ICPX = "needs icpx"
#: The CI's job with icpx runs what needs that.
ALLOWED = (GPU, ICPX)
