"""Claims R1 to R9."""
