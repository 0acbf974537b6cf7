"""Compiling emitted sources and running them on arrays. `gemmgen.runtime.api` is the way in."""
