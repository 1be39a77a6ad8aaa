"""One analysis a file: from a model and a batch to labelled arrays."""
