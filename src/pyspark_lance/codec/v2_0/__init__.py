"""The page encodings of files 2.0."""
