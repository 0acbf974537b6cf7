"""Emitted kernels, by backend: text to read, copy or include, and callables to import."""
