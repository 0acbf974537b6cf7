"""What each vendor's own compiler makes of a kernel, read from machine code: no device is needed."""
