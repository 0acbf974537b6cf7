"""The tiling IR: expressions, statements, kernels, and the one semantics that backends must have."""
