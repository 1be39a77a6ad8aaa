"""One command a file, each with a function `run` that takes its options."""
