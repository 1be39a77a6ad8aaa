"""Claims T1 to T25."""
