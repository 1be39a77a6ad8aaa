"""The guests: one package for each published system, or for a family that shares its data."""
