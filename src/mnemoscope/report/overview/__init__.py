"""`index.html`: what there is in a directory of runs and results, to be browsed."""
