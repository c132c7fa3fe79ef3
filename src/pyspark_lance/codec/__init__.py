"""How values become bytes: numpy and Arrow in, bytes out; no I/O."""
