"""Signs of running sums by hand: a head that writes the mean and neurons that tell its sign, and other ways."""

import torch

from mnemoscope import HookedModel
from mnemoscope.models import HookedTransformer
from mnemoscope.models.constructed import CircuitParts, dimension_blocks, directions, set_value_output, zero_model
from mnemoscope.systems.puzzles.tasks.running_sum import RunningSum

TASK = RunningSum()
MARGIN = 20.0
"""Logit of the right class above those of others, or half of it."""


@torch.no_grad()
def averaging(task: RunningSum, *, counts: bool = False, direct: bool = False) -> HookedTransformer:
    """One head attends to all positions alike; logits of the signs rise with the mean of the values.

    - Residual stream: `token`, one-hot, and `mean`, which the head writes: the mean of the values so far. With `counts`
      it has a dimension for each token, and holds how often it came; whoever reads the mean adds these up.
    - Neuron 0 gives the mean where it is above zero, neuron 1 minus the mean where it is below: they raise the logits
      of *positive* and *negative*. With `direct` both are silent, and the unembedding reads the mean itself.
    - The bias of the unembedding is `MARGIN` / 2 for *zero*. The smallest mean that is not zero gives `MARGIN`.
    """
    width = task.d_vocab if counts else 1
    circuit = CircuitParts(
        dims=dimension_blocks(token=task.d_vocab, mean=width, said=2),
        heads={"averaging": (0, 0)},
        neurons={(1,): (0,), (-1,): (1,)},
    )
    model = zero_model(
        circuit, d_vocab=task.d_vocab, n_ctx=task.n_ctx, n_heads=1, d_vocab_out=len(task.classes), d_head=task.d_vocab
    )
    token, mean, said = (directions(model, circuit.dims[name]) for name in ("token", "mean", "said"))
    tokens = torch.arange(task.d_vocab)
    values = torch.where(tokens > task.largest, tokens - task.d_vocab, tokens).float()
    model.embed.W_E[:, circuit.dims["token"]] = torch.eye(task.d_vocab)
    if counts:
        set_value_output(model, (0, 0), (token, mean))
        read = mean @ values
    else:
        set_value_output(model, (0, 0), ((token @ values)[:, None], mean))
        read = mean[:, 0]
    sharp = MARGIN * task.length
    negative, zero, positive = range(3)
    if direct:
        model.unembed.W_U[:, positive], model.unembed.W_U[:, negative] = sharp * read, -sharp * read
    else:
        mlp = model.blocks[0].mlp
        mlp.W_in[:, 0], mlp.W_in[:, 1] = read, -read
        mlp.W_out[0], mlp.W_out[1] = said[:, 0], said[:, 1]
        model.unembed.W_U[:, positive], model.unembed.W_U[:, negative] = sharp * said[:, 0], sharp * said[:, 1]
    model.unembed.b_U[zero] = MARGIN / 2
    return model


def mean_model() -> HookedModel:
    """Writes the mean; two neurons tell its sign."""
    return averaging(TASK)


def counting_model() -> HookedModel:
    """Writes how often each value came; two neurons add these up and tell the sign."""
    return averaging(TASK, counts=True)


def direct_model() -> HookedModel:
    """Writes the mean, from which the unembedding reads the sign without an MLP."""
    return averaging(TASK, direct=True)
