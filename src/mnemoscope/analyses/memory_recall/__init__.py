"""The test whether a matrix holds a memory: the share of a list of associations that it recalls.

`score`: how many associations does a matrix recall, beside chance and permuted targets? `matrices`: which matrices and
vectors of a model can be asked, by name. `memories`: the three memories of an induction head, and the
scores behind them.
"""
