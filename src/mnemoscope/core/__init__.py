"""Values and pure functions: no files, no TransformerLens, no plots."""
