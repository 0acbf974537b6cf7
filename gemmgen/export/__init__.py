"""Libraries in C around emitted kernels: `gemmgen export`."""
