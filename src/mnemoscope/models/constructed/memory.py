"""A function of the current token, stored in an MLP, in the OV circuit of a head, or in the embeddings alone."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.seeding import generator as stream
from mnemoscope.models.constructed.circuit import SURE, Circuit, attend, blank, blocks, directions, embed, move
from mnemoscope.models.lens import HookedTransformer


def associative_memory_circuit(mapping: Sequence[int], *, d_embed: int | None = None) -> Circuit:
    """Names of what `associative_memory` consists of; the key of a neuron is the token that it recognises."""
    width = len(mapping) if d_embed is None else d_embed
    neurons = {(token,): (token,) for token in range(len(mapping))}
    return Circuit(dims=blocks(token=width, answer=width), heads={}, neurons=neurons)


@torch.no_grad()
def associative_memory(
    mapping: Sequence[int], *, n_ctx: int = 8, margin: float = 20.0, d_embed: int | None = None, seed: int = 0
) -> HookedTransformer:
    """One layer whose MLP is a key/value memory; attention and positional embeddings are zero.

    - Residual stream: `token`, the embeddings e_i, and `answer`, the unembeddings u_j.
    - Neuron i: key e_i, value `u_mapping[i]`. It is active for token i, with activation 1, and for no other.

    One-hot embeddings: the logit of `mapping[token]` is `margin`, those of the others 0. With `d_embed` below the
    number of tokens, e and u are random unit vectors in superposition: the bias of each neuron is minus the largest
    overlap of two embeddings, and values are scaled so that the right logit is at least `margin` above the others.

    `mapping[i]` is the answer to token i; tokens are 0 to len(mapping) - 1. `d_embed` is the dimension of the
    embeddings (none: one-hot); random ones come from the seed's stream `embeddings`. Raises InputError where the
    mapping names a token that does not exist, or two random vectors nearly coincide.
    """
    circuit, n = associative_memory_circuit(mapping, d_embed=d_embed), len(mapping)
    _check(mapping)
    model = blank(circuit, d_vocab=n, n_ctx=n_ctx)
    token, answer = torch.eye(n), torch.eye(n)
    if d_embed is not None:
        draws = stream(seed, "embeddings")
        token, answer = (_unit_vectors(n, d_embed, draws) for _ in range(2))
    threshold, overlap = _overlap(token), _overlap(answer)
    mlp, dims = model.blocks[0].mlp, circuit.dims
    model.embed.W_E[:, dims["token"]] = token
    mlp.W_in[dims["token"]] = token.T / (1 - threshold)
    model.get_parameter("blocks.0.mlp.b_in").fill_(-threshold / (1 - threshold))
    mlp.W_out[:, dims["answer"]] = margin / (1 - overlap) * answer[list(mapping)]
    model.unembed.W_U[dims["answer"]] = answer.T
    return model


def attention_memory_circuit(mapping: Sequence[int], *, n_ctx: int = 8) -> Circuit:
    """Names of what `attention_memory` consists of."""
    n = len(mapping)
    return Circuit(dims=blocks(token=n, position=n_ctx, answer=n), heads={"memory": (0, 0)})


@torch.no_grad()
def attention_memory(mapping: Sequence[int], *, n_ctx: int = 8, margin: float = 20.0) -> HookedTransformer:
    """One layer, two heads, no MLP: the function is stored in the OV circuit of head 0.

    - Residual stream: `token` and `position` one-hot from the embeddings, `answer` read by the unembedding.
    - Head 0 attends from every position to itself; its OV circuit sends `token` i to `answer` `mapping[i]`, times
      `margin`.
    - Head 1 has zero weights.

    `mapping[i]` is the answer to token i; tokens are 0 to len(mapping) - 1. The context is at most twice as long as the
    mapping: a head has half the width of the residual stream. Raises InputError where it is longer, or the mapping
    names a token that does not exist.
    """
    _check(mapping)
    in_range("n_ctx", n_ctx, 1, 2 * len(mapping))
    circuit = attention_memory_circuit(mapping, n_ctx=n_ctx)
    model = blank(circuit, d_vocab=len(mapping), n_ctx=n_ctx)
    embed(model, circuit)
    model.unembed.W_U[circuit.dims["answer"]] = torch.eye(len(mapping))
    token, position, answer = (directions(model, block) for block in circuit.dims.values())
    attend(model, circuit.heads["memory"], (position, SURE * position))
    move(model, circuit.heads["memory"], (token, margin * answer[:, list(mapping)]))
    return model


def bigram_table(logits: Float[Tensor, "token next"], n_ctx: int) -> HookedTransformer:
    """One layer whose heads write nothing: embedding and unembedding alone look the current token up in a table.

    With the identity it says the same token again, with log-probabilities it predicts global bigrams. It is what a
    model can know without its context. `logits` are finite.
    """
    circuit = Circuit(dims=blocks(token=len(logits)), heads={})
    model = blank(circuit, d_vocab=len(logits), n_ctx=n_ctx)
    with torch.no_grad():
        embed(model, circuit)
        model.unembed.W_U[circuit.dims["token"]] = logits
    return model


def memory_batch(n: int, mapping: Sequence[int], *, n_ctx: int = 8, generator: torch.Generator) -> Batch:
    """Uniform random tokens; the target at every position is the mapping of the token there."""
    inputs = torch.randint(len(mapping), (n, n_ctx), generator=generator, device=generator.device)
    answers = torch.tensor(mapping, device=inputs.device)
    return Batch(inputs=inputs, targets=answers[inputs], scored=torch.ones_like(inputs, dtype=torch.bool))


def _check(mapping: Sequence[int]) -> None:
    in_range("the number of tokens of mapping", len(mapping), 2, float("inf"))
    for answer in mapping:
        in_range("an answer of mapping", answer, 0, len(mapping) - 1)


def _unit_vectors(n: int, width: int, draws: torch.Generator) -> Float[Tensor, "n width"]:
    vectors = torch.randn(n, width, generator=draws)
    return vectors / vectors.norm(dim=1, keepdim=True)


def _overlap(vectors: Float[Tensor, "n width"]) -> float:
    """The largest cosine of two of the unit vectors, at least 0."""
    largest = float((vectors @ vectors.T).fill_diagonal_(0).max())
    if largest > 0.95:
        raise InputError(f"two random vectors nearly coincide (cosine {largest:.3f}); choose a larger d_embed")
    return largest
