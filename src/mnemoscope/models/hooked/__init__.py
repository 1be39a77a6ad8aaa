"""A hooked transformer with the names and numbers of TransformerLens 3.9's, for the lines that no longer have one."""
