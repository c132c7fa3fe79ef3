"""Value encodings, one file each."""
