"""An induction circuit beside a memory of a noise token that may follow the same tokens."""

from collections.abc import Sequence
from typing import Literal

import torch
from transformer_lens import HookedTransformer

from mnemoscope.core import in_range, one_of
from mnemoscope.models.constructed import SURE, Circuit, attend, blank, blocks, directions, embed, move

Place = Literal["mlp", "head", "induction"]
PLACES: tuple[Place, ...] = ("mlp", "head", "induction")


def noisy_induction_circuit(
    n_tokens: int = 8, n_ctx: int = 64, *, triggers: Sequence[int] = (0, 1, 2), noise_in: Place = "mlp"
) -> Circuit:
    """Names of what `noisy_induction` consists of; a neuron's key is the trigger that it recognises."""
    one_of("noise_in", noise_in, PLACES)
    dims = blocks(token=n_tokens + 1, position=n_ctx, previous=n_tokens + 1, answer=n_tokens + 1)
    heads = {"previous": (0, 0), "induction": (1, 0)} | ({"noise": (2, 0)} if noise_in == "head" else {})
    return Circuit(dims=dims, heads=heads, neurons={(token,): (i,) for i, token in enumerate(triggers)})


@torch.no_grad()
def noisy_induction(
    n_tokens: int = 8,
    n_ctx: int = 64,
    *,
    triggers: Sequence[int] = (0, 1, 2),
    noise_in: Place = "mlp",
    margin: float = 20.0,
) -> HookedTransformer:
    """One head per layer: after a trigger both the token that followed it here before and the noise token are likely.

    The noise token is the last one, `n_tokens`. The residual stream is that of `induction`, and so are L0H0, which
    writes the token one place earlier, and L1H0, the induction head, which adds `margin` times its attention to the
    logits of the tokens that followed the current one. What differs is where the noise token comes from:

    - `mlp`: L1H0 passes over keys at the noise token. In the MLP of layer 1 neuron i is active on trigger i and
      adds `margin` to the logit of the noise token. W_out of that MLP has rank 1.
    - `head`: L1H0 likewise. A third layer has a head that attends to its own position and adds `margin` to the logit
      of the noise token where a trigger stands. All neurons are idle.
    - `induction`: two layers, all neurons idle. L1H0 passes over nothing: the noise token is one of the tokens that
      followed, and gets its share of the margin.

    In the first two cases a trigger whose output has been shown gives the output and the noise token the same logit,
    and all others 0. Where only the noise token followed it so far, L1H0 attends alike to all keys but those.

    Args:
        n_tokens: Symbols, without the noise token.
        n_ctx: Longest input.
        triggers: Symbols that the noise token may follow.
        noise_in: Where the noise token comes from.
        margin: Logit of a predicted token.

    Raises:
        InputError: A trigger is no symbol, or there is no such place.
    """
    for token in triggers:
        in_range("a trigger", token, 0, n_tokens - 1)
    circuit = noisy_induction_circuit(n_tokens, n_ctx, triggers=triggers, noise_in=noise_in)
    n_layers = 1 + max(layer for layer, _ in circuit.heads.values())
    model = blank(circuit, d_vocab=n_tokens + 1, n_ctx=n_ctx, n_layers=n_layers, n_heads=1)
    embed(model, circuit)
    model.unembed.W_U[circuit.dims["answer"]] = torch.eye(n_tokens + 1)
    token, position, previous, answer = (directions(model, block) for block in circuit.dims.values())

    attend(model, circuit.heads["previous"], (position[:, 1:], SURE * position[:, :-1]))
    move(model, circuit.heads["previous"], (token, previous))

    attend(model, circuit.heads["induction"], (token, SURE * previous))
    passed_over = position[:, 0] + (0 if noise_in == "induction" else token[:, -1])
    model.blocks[1].attn.b_Q[0, -1] = model.cfg.attn_scale
    model.blocks[1].attn.W_K[0, :, -1] = -2 * SURE * passed_over
    move(model, circuit.heads["induction"], (token, margin * answer))

    follows = answer[:, -1:].expand(-1, len(triggers))
    if noise_in == "head":
        attend(model, circuit.heads["noise"], (position, SURE * position))
        move(model, circuit.heads["noise"], (token[:, list(triggers)], margin * follows))
    if noise_in == "mlp":
        model.blocks[1].mlp.W_in[:] = token[:, list(triggers)]
        model.blocks[1].mlp.W_out[:] = margin * follows.T
    return model
