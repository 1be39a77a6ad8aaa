"""Edges between the parts of a model, cut, patched or left live: many choices in one batch."""
