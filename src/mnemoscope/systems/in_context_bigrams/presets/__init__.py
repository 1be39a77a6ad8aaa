"""Configurations of both systems and what `reproduce` trains for them."""
