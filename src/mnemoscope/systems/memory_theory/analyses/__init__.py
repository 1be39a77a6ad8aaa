"""Measurements of how many random associations are stored, and of how that grows with the number of parameters.

`associations` are the problems, `training` trains many of them together, and `search` finds the largest number that is
stored. `capacity` puts these together for trained matrices and MLPs. `outer_product` has the sum that is not trained
and what theory predicts of it, and `exponents` fits lines.
"""
