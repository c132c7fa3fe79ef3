"""What a table is: immutable values and their protobuf form; no I/O."""
