"""The transformer as a function of its parameters, which can be resumed at any layer, half-layer and position.

Everything that runs without a model's own hooks runs here: training, recordings, patching, edges, circuits and set
patterns. The modules, from the parts to the whole:

    norms, mlp        what acts on each position by itself
    attention         queries, keys and values of one layer, and what heads take from them
    changes           functions at TransformerLens's hook points, which change or observe activations
    block             one layer, and the places at which outputs are wanted
    lookup            the first layer from tables, where a task has few tokens and positions
    transformer       the blocks in their order: from inputs to logits, or from a changed stream on
    architecture      the engine's transformer of a hooked model or a specification, or why there is none
    budget            how many bytes a pass takes, and how many prompts and cells go at once
"""
