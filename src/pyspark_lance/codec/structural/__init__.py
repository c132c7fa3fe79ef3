"""Page layouts of files 2.1 and 2.2, one file each."""
