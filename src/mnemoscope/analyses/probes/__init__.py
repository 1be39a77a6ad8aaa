"""Linear probes: what can be read from an activation, and whether the model reads it there too.

`rows`: the vectors and latents that a probe is fitted to. `linear_probes`: what sites hold, beside controls.
`subspaces`: where in a site it lies. `editing`: that part is erased, steered or swapped in a forward pass; is the skill
lost without it, and does the answer follow another one?
"""
