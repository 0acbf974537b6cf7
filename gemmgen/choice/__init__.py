"""Which schedule a GPU of CUDA computes a product by: candidates, one analytic model, a device's constants."""
