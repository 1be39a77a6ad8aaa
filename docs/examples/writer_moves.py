"""A method of circuit discovery: an edge scores by how much its writer's output differs, whoever reads it."""

import numpy as np

import mnemoscope as ms


def writer_moves(setting, seed):
    """The distance between the writer's outputs on clean and on corrupted prompts."""
    model, pairs = setting.hooked, setting.pairs
    _, clean = model.run_with_cache(pairs.clean.inputs)
    _, corrupted = model.run_with_cache(pairs.corrupted.inputs)

    def distance(writer):
        moved = clean[writer.hook] - corrupted[writer.hook]
        moved = moved if writer.head is None else moved[:, :, writer.head] @ model.W_O[writer.layer, writer.head]
        return float(moved.norm(dim=-1).mean())

    distances = np.array([distance(edge.writer) for edge in setting.edges])
    return ms.analyses.circuit(setting.edges, ()).astype(float).copy(data=distances)


ms.methods.METHODS.add("writer-moves", writer_moves)
