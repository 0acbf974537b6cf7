"""Mainloops: how a block of C is summed along K. One module for each."""
