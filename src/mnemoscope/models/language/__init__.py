"""Language models with real weights: their sources, conversion and comparison, and prompts from tables."""
