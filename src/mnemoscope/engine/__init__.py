"""The transformer as a function of its parameters, which can be resumed at any layer, half-layer and position.

Everything that runs without a model's own hooks runs here: training, recordings, patching, edges, circuits and set
patterns. From the parts to the whole: `norms` and `mlp`, `attention`, `changes` at hook points, `block`, `lookup` (the
first layer from tables), `transformer`, `architecture` (from a model to its transformer). `budget` counts bytes.
"""
