"""Measurements on models of the puzzles, one module per puzzle; `adversarial` searches for wrong answers of any."""
