"""The live explorer: one page that holds a run's weights and a forward pass, to touch the model without a server.

*Shows* what TransformerLens computes, for any sequence and intervention that a reader chooses (tested to 1e-4).

*Does not show* that what holds for the sequence on the screen holds for others, or for other seeds.
"""
