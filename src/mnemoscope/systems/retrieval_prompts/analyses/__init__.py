"""Measurements on a language model with these questions."""
