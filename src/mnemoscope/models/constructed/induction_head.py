"""The two-layer induction circuit on any tokens."""

import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import in_range
from mnemoscope.core.seeding import generator as stream
from mnemoscope.models.constructed.circuit import SURE, Circuit, attend, blank, blocks, directions, embed, move
from mnemoscope.models.lens import HookedTransformer


def induction_circuit(n_tokens: int, n_ctx: int) -> Circuit:
    """Names of what `induction` consists of."""
    dims = blocks(token=n_tokens, position=n_ctx, previous=n_tokens, answer=n_tokens)
    return Circuit(dims=dims, heads={"previous": (0, 0), "induction": (1, 0)})


@torch.no_grad()
def induction(
    n_tokens: int, n_ctx: int, *, margin: float = 20.0, noise: float = 0.0, seed: int = 0
) -> HookedTransformer:
    """Two layers, two heads each, attention only: predicts the token that followed the current one before.

    - Residual stream: `token` and `position` one-hot from the embeddings; `previous`: the token one place earlier;
      `answer`, read by the unembedding.
    - L0H0, the previous-token head, attends from position t to t - 1 (from 0 to itself) and copies the token it
      finds into `previous`.
    - L1H0, the induction head, matches the query's `token` with the key's `previous` (K-composition with L0H0), so
      that it attends to the token after the earlier occurrence of the current one; it copies that token into
      `answer`, `margin` times its share. Position 0 is excluded by the query's bias: nothing precedes it.
    - L0H1 and L1H1 have zero weights: they attend everywhere alike and write nothing.

    Where the current token occurred once before, its successor has the logit `margin` and every other token 0.
    Where it occurred more often, the margin is shared equally between the successors. Where it did not, the head
    attends to the positions 1 to t alike, and each token there gets its share of the margin; at position 0 it
    attends to itself.

    `noise` is the standard deviation of normal noise on the weights of all heads, from the seed's stream `noise`. With
    it no head is exactly idle, and every composition score is defined (those of a head with zero weights are 0 / 0).
    """
    circuit = induction_circuit(n_tokens, n_ctx)
    model = blank(circuit, d_vocab=n_tokens, n_ctx=n_ctx, n_layers=2)
    embed(model, circuit)
    model.unembed.W_U[circuit.dims["answer"]] = torch.eye(n_tokens)
    token, position, previous, answer = (directions(model, block) for block in circuit.dims.values())

    attend(model, circuit.heads["previous"], (position[:, 1:], SURE * position[:, :-1]))
    move(model, circuit.heads["previous"], (token, previous))

    attend(model, circuit.heads["induction"], (token, SURE * previous))
    model.blocks[1].attn.b_Q[0, -1] = model.cfg.attn_scale
    model.blocks[1].attn.W_K[0, :, -1] = -2 * SURE * position[:, 0]
    move(model, circuit.heads["induction"], (token, margin * answer))

    draws = stream(seed, "noise")
    for block in model.blocks:
        for weight in (block.attn.W_Q, block.attn.W_K, block.attn.W_V, block.attn.W_O):
            weight += noise * torch.randn(weight.shape, generator=draws)
    return model


def induction_batch(n: int, *, n_tokens: int, n_ctx: int, generator: torch.Generator) -> Batch:
    """Random distinct tokens, shown twice: in the second half every token occurred exactly once before.

    `n` sequences have the length `n_ctx`, rounded down to an even number. They are scored in the second half. The
    latent `attended` (batch, pos) is the position after the earlier occurrence; -1 where there is none. Raises
    InputError where there are fewer tokens than half the length.
    """
    half = n_ctx // 2
    in_range("n_tokens", n_tokens, half, float("inf"))
    scores = torch.rand(n, n_tokens, generator=generator, device=generator.device)
    shown = scores.argsort(1)[:, :half]
    inputs = torch.cat((shown, shown), 1)
    place = torch.arange(2 * half, device=inputs.device).expand(n, -1)
    attended = torch.where(place >= half, place - half + 1, -1)
    return Batch(inputs=inputs, targets=inputs.roll(-1, 1), scored=place >= half, known={"attended": attended})
