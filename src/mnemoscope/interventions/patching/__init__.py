"""Activation patching: cells of a grid, from one run into another, through hooks or along the residual stream."""
