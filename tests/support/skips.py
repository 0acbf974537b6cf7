"""The reasons to skip a test that stay where all that a package index or Debian holds is installed."""

from __future__ import annotations

GPU = "needs an NVIDIA GPU"
ICPX = "needs icpx"
#: It is another project's, and no package.
EMULATOR = "needs an emulator of AMD's GPUs"
#: Its default build brings gigabytes of CUDA's libraries: `.ci/run` installs a build for CPUs if the index has one.
TORCH = "torch is not installed"
#: The CI's job with icpx runs what needs that.
ALLOWED = (GPU, ICPX, EMULATOR, TORCH)
