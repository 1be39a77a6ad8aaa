"""Language models with real weights: where they come from, and what is made of them."""
