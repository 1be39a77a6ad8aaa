"""The formation of induction heads: a few exemplars with labels, and parts of the circuit held ideal (system S13).

`tasks` has the sequences, their split, latents and minimal pairs; `presets` the recipes, and one for every condition of
training; `constructed` models set by hand; `ideal_parts` the parts that a clamp can hold; `analyses` heads alone and
together, wiring, subcircuits and the smoothness of a course; `claims` I1 to I6; `report` the page on runs.
"""
