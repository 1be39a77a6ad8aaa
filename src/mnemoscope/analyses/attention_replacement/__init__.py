"""Attention replaced by mechanisms: one head, all heads, path by path, and what the learned attention is made of."""
