"""Claims C1 to C6."""
