"""Transformers with weights set by hand that predict in-context bigrams by a known circuit.

`trigger_induction`: for a few tokens that are known beforehand. `noisy_induction`: beside a memory of a noise token.
`induction_memories`: as three associative memories, sums of outer products of random vectors.
"""

from collections.abc import Collection, Sequence
from typing import Literal

import torch

from mnemoscope import ModelSpec
from mnemoscope.core import in_range, one_of
from mnemoscope.models import HookedTransformer, build
from mnemoscope.models.constructed import (
    SURE,
    CircuitParts,
    dimension_blocks,
    directions,
    induction,
    induction_circuit,
    set_embeddings,
    set_query_key,
    set_value_output,
    zero_model,
)


@torch.no_grad()
def trigger_induction(n_tokens: int, n_ctx: int, *, triggers: Sequence[int], margin: float = 20.0) -> HookedTransformer:
    """As `induction`, but the second layer matches triggers only, and looks after triggers from everywhere.

    L1H0 attends from a trigger that occurred before to the tokens after its earlier occurrences; from every other token
    to the tokens that follow any trigger, all alike, and evenly to the positions 1 to t where there are none. So it
    predicts what followed a trigger, and cannot continue another token that is repeated.

    The model knows the tokens `triggers`; `margin` is as in `induction`.
    """
    for trigger in triggers:
        in_range("a trigger", trigger, 0, n_tokens - 1)
    model, circuit = induction(n_tokens, n_ctx, margin=margin), induction_circuit(n_tokens, n_ctx)
    attention, previous = model.blocks[1].attn, circuit.dims["previous"]
    others = [token for token in range(n_tokens) if token not in triggers]
    attention.W_K[0, :, others] = 0
    attention.W_K[0, [previous.start + trigger for trigger in triggers], -1] += SURE / 2
    return model


Place = Literal["mlp", "head", "induction"]
PLACES: tuple[Place, ...] = ("mlp", "head", "induction")


def noisy_induction_circuit(
    n_tokens: int = 8, n_ctx: int = 64, *, triggers: Sequence[int] = (0, 1, 2), noise_in: Place = "mlp"
) -> CircuitParts:
    """Names of what `noisy_induction` consists of; a neuron's key is the trigger that it recognises."""
    one_of("noise_in", noise_in, PLACES)
    dims = dimension_blocks(token=n_tokens + 1, position=n_ctx, previous=n_tokens + 1, answer=n_tokens + 1)
    heads = {"previous": (0, 0), "induction": (1, 0)} | ({"noise": (2, 0)} if noise_in == "head" else {})
    return CircuitParts(dims=dims, heads=heads, neurons={(token,): (i,) for i, token in enumerate(triggers)})


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

    The noise token is the last one, number `n_tokens`. The previous-token head L0H0 and the induction head L1H0 are
    those of `induction`, with its `margin`. What differs is where the noise token comes from:

    - `mlp`: L1H0 passes over keys at the noise token. In the MLP of layer 1 neuron i is active on trigger i and adds
      `margin` to the logit of the noise token. W_out of that MLP has rank 1.
    - `head`: L1H0 likewise. A third layer has a head that attends to its own position and adds `margin` to the logit of
      the noise token where a trigger stands. All neurons are idle.
    - `induction`: two layers, all neurons idle. L1H0 passes over nothing: the noise token is one of the tokens that
      followed, and gets its share of the margin.

    In the first two cases a trigger whose output has been shown gives the output and the noise token the same logit,
    and all others 0. Where only the noise token followed it so far, L1H0 attends alike to all keys but those.
    """
    for token in triggers:
        in_range("a trigger", token, 0, n_tokens - 1)
    circuit = noisy_induction_circuit(n_tokens, n_ctx, triggers=triggers, noise_in=noise_in)
    n_layers = 1 + max(layer for layer, _ in circuit.heads.values())
    model = zero_model(circuit, d_vocab=n_tokens + 1, n_ctx=n_ctx, n_layers=n_layers, n_heads=1)
    set_embeddings(model, circuit)
    model.unembed.W_U[circuit.dims["answer"]] = torch.eye(n_tokens + 1)
    token, position, previous, answer = (directions(model, block) for block in circuit.dims.values())

    set_query_key(model, circuit.heads["previous"], (position[:, 1:], SURE * position[:, :-1]))
    set_value_output(model, circuit.heads["previous"], (token, previous))

    set_query_key(model, circuit.heads["induction"], (token, SURE * previous))
    passed_over = position[:, 0] + (0 if noise_in == "induction" else token[:, -1])
    model.blocks[1].attn.b_Q[0, -1] = model.cfg.attn_scale
    model.blocks[1].attn.W_K[0, :, -1] = -2 * SURE * passed_over
    set_value_output(model, circuit.heads["induction"], (token, margin * answer))

    follows = answer[:, -1:].expand(-1, len(triggers))
    if noise_in == "head":
        set_query_key(model, circuit.heads["noise"], (position, SURE * position))
        set_value_output(model, circuit.heads["noise"], (token[:, list(triggers)], margin * follows))
    if noise_in == "mlp":
        model.blocks[1].mlp.W_in[:] = token[:, list(triggers)]
        model.blocks[1].mlp.W_out[:] = margin * follows.T
    return model


MEMORIES = ("previous token", "remapped copy", "copied token")


@torch.no_grad()
def induction_memories(
    n_tokens: int,
    n_ctx: int,
    *,
    d_model: int = 256,
    tokens: Sequence[int] | None = None,
    memories: Collection[str] = MEMORIES,
    margin: float = 20.0,
    seed: int = 0,
) -> HookedTransformer:
    """Two layers, one head each, attention only: what Bietti et al. 2023 predict that training ends in.

    W_Q is the identity; token embeddings e, positions p and unembeddings u are random, and so are W_V of both layers
    and W_O of the first. The first layer turns e_i into its remapped copy r_i = e_i W_V^1 W_O^1. Vectors are rows. Each
    memory is one matrix, up to a factor:

    - `previous token`: W_K^1 = sum over t of p_(t-1)^T p_t, so that position t attends to t - 1;
    - `remapped copy`: W_K^2 = sum over i of r_i^T e_i, so that token i attends to where the token before was i;
    - `copied token`: W_O^2 = sum over i of (e_i W_V^2)^T u_i, so that attending to token i raises its logit.

    Factors give the right key a score of 60 in expectation, and the attended token a logit of `margin`. Vectors are
    orthogonal in expectation only: the wider the model, the fewer the errors. With a width of 256, some 19 of 20
    outputs of 5 fixed triggers are right, of 65 tokens and 128 positions. The first position has none before it to
    attend to, and a token that has not occurred before has no key that matches.

    The remapped copy is about `tokens`, by default all (in the paper the triggers, where they are fixed). Only
    `memories` are set; the matrices of the others stay as random as training finds them.
    """
    for memory in memories:
        one_of("a memory", memory, MEMORIES)
    spec = ModelSpec(d_model=d_model, n_heads=1, n_layers=2, mlp=False, normalization="none", initialisation="memories")
    model = build(spec, d_vocab=n_tokens, n_ctx=n_ctx, seed=seed)
    first, second = (block.attn for block in model.blocks)
    token, position, unembedding = model.embed.W_E, model.pos_embed.W_pos, model.unembed.W_U.T
    chosen = token if tokens is None else token[list(tokens)]
    remapped, attended = chosen @ first.W_V[0] @ first.W_O[0], token @ second.W_V[0]
    found = {
        "previous token": (first.W_K, position[:-1], position[1:]),
        "remapped copy": (second.W_K, remapped, chosen),
        "copied token": (second.W_O, attended, unembedding),
    }
    for memory in memories:
        matrix, inputs, outputs = found[memory]
        recalled = inputs.square().sum(1).mean() * outputs.square().sum(1).mean()
        size = margin if memory == "copied token" else 2 * SURE * model.cfg.attn_scale
        matrix[0] = size / recalled * inputs.T @ outputs
    return model
