"""Each claim and its rivals on what is planted."""
