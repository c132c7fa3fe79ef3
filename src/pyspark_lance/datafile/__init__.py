"""Reading and writing one .lance file."""
