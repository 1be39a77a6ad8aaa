"""Measurements on models of factual recall: what they know of a fact, from which step on, and where it is stored."""
