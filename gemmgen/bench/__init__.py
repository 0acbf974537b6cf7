"""`gemmgen bench`: kernels against libraries, in one process, interleaved, correctness first."""
