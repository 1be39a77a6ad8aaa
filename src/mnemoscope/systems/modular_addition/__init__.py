"""Modular addition: clocks, pizzas, and attention mixed with a constant (system S11)."""
