"""The worth of each part of a model for each skill, when any of the others may be missing too.

`game`: Shapley values and interactions of any game, exact or estimated. `play`: a model as such a game.
`values`: the values of its components by skill. `against_removal`: whether removing one part at a time agrees.
"""
