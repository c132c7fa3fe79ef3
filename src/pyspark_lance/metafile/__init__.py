"""Reading and writing metadata files."""
