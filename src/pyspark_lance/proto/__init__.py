"""Generated code; see protos/."""
