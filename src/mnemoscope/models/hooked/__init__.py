"""A hooked transformer with the names and numbers of TransformerLens 3.9, for releases that no longer have one."""
