"""What is measured of a language model with these questions."""
