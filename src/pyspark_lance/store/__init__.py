"""Where bytes live: knows nothing of Lance."""
