"""The small models that the community took apart (S10): six puzzles, each explained from one trained model.

One module per puzzle in each of `tasks`, `presets`, `constructed`, `analyses` and `claims`: palindrome, first unique
letter, sum, sorted list, running sum, and balanced brackets; `report` has their pages.
"""
