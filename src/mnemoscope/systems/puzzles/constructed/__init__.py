"""Models of the puzzles with weights set by hand: the claimed circuits, and others that solve the same task."""
