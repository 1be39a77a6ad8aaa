"""Claims about language models."""
