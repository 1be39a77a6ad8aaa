"""Results to figures, attention views and self-contained pages; nothing here runs a model."""
