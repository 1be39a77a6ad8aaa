"""A head that only looks at its neighbour, beside elimination."""

import torch
from transformer_lens import HookedTransformer

from mnemoscope.models.constructed import SURE, Circuit, attend, blocks, directions, move
from mnemoscope.systems.tiny_recall.constructed.elimination import elimination_head, lookup_model


def local_binding_circuit(n_values: int = 5) -> Circuit:
    """Names of what `local_binding` consists of."""
    values = n_values + 1
    dims = blocks(token=values, position=2 * n_values - 1, answer=values, bound=values)
    return Circuit(dims=dims, heads={"elimination": (0, 0), "binding": (0, 1)})


@torch.no_grad()
def local_binding(n_values: int = 5, *, margin: float = 10.0) -> HookedTransformer:
    """One layer, two heads, no MLP: the heads attend as the published ones are reported to.

    - Head 0 is that of `elimination_only`.
    - Head 1 attends by position alone: from y to itself, from x to the y just before it, from the first x to itself.
      It copies the token that it finds into `bound`, a block of the residual stream that nothing reads.

    So the model eliminates exactly and never recalls, and without head 1 nothing changes: a pattern, and no function.

    Args:
        n_values: V of the task.
        margin: Logit of the unused value above the used ones in the last slot.
    """
    circuit = local_binding_circuit(n_values)
    model = lookup_model(circuit, n_values)
    elimination_head(model, circuit, margin)
    position, y = directions(model, circuit.dims["position"]), slice(1, None, 2)
    next_x = slice(2, None, 2)
    attend(model, circuit.heads["binding"], (position[:, y] + position[:, next_x], SURE * position[:, y]))
    token, bound = (directions(model, circuit.dims[name]) for name in ("token", "bound"))
    move(model, circuit.heads["binding"], (token, bound))
    return model
