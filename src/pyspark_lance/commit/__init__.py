"""Making the next version, once."""
