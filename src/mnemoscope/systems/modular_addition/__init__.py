"""Modular addition: clocks, pizzas, and attention mixed with a constant (system S11).

`tasks` has the sums, their split and minimal pairs; `presets` the recipes by share of the softmax in attention;
`constructed` a clock, a pizza and a table by hand; `analyses` circles, gradients and one map for all; `originals`
loads the models that others published; `claims` C1 to C6.
"""
