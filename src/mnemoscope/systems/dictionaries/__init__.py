"""Dictionaries on trial: are sparse features more right than neurons, on models whose circuits are known?

The system trains no transformers: its claims are about the runs of other systems, by the names of their presets.
`answers` reads what an MLP writes where a question is answered, `units` takes it apart into neurons, features or
rotated neurons alike, and `constructed` has tasks and models whose memory is set by hand. `circuits` has a known
circuit of features for *Methods on trial*.
"""
