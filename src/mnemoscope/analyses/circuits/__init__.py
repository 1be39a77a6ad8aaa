"""OV and QK circuits and composition, read from the weights, and how well the reads predict what happens."""
