"""Hand-set models: the steps by which weights are set, the induction circuit, and memories of one token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.seeding import generator as stream
from mnemoscope.core.specification import ModelSpec
from mnemoscope.models.building import build
from mnemoscope.models.lens import HookedTransformer

SURE = 30.0
"""Difference between two attention scores after which the lower key gets next to nothing (1e-13)."""


@dataclass(frozen=True, kw_only=True)
class CircuitParts:
    """The parts of a constructed model by name.

    `dims` are directions of the residual stream: named blocks of its dimensions. `heads` gives (layer, number) of every
    head that does something; the others have zero weights. `neurons` are those of the MLP that belong together, by what
    they recognise (the model's docstring says what the key means).
    """

    dims: Mapping[str, slice]
    heads: Mapping[str, tuple[int, int]]
    neurons: Mapping[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Dimensions in use."""
        return max(block.stop for block in self.dims.values())

    @property
    def n_neurons(self) -> int:
        """Neurons in use."""
        return sum(len(group) for group in self.neurons.values())


def dimension_blocks(**widths: int) -> dict[str, slice]:
    """Consecutive blocks of dimensions, in the order of the arguments."""
    result, start = {}, 0
    for name, width in widths.items():
        result[name] = slice(start, start + width)
        start += width
    return result


def zero_model(
    circuit: CircuitParts,
    *,
    d_vocab: int,
    n_ctx: int,
    n_layers: int = 1,
    n_heads: int = 2,
    d_output: int | None = None,
    d_vocab_out: int | None = None,
    **fields: Any,
) -> HookedTransformer:
    """A model without normalisation that is large enough; all its weights are zero.

    It holds the `circuit`. With `d_output` it reads vectors of width `d_vocab` and gives some of that width; otherwise
    it reads tokens, and gives logits of the first `d_vocab_out` of them, or of so many classes. `fields` are others of
    `ModelSpec`, such as `d_head` or `attention_dir`.
    """
    spec = ModelSpec(
        d_model=circuit.width + -circuit.width % n_heads,
        n_heads=n_heads,
        n_layers=n_layers,
        mlp=bool(circuit.neurons),
        d_mlp=circuit.n_neurons or None,
        normalization="none",
        **fields,
    )
    model = build(spec, d_vocab=d_vocab, n_ctx=n_ctx, d_vocab_out=d_vocab_out, d_output=d_output, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def set_embeddings(model: HookedTransformer, circuit: CircuitParts) -> None:
    """One-hot tokens in the block `token`, one-hot positions in `position` (where there is one)."""
    model.embed.W_E[:, circuit.dims["token"]] = torch.eye(model.cfg.d_vocab)
    if "position" in circuit.dims:
        model.pos_embed.W_pos[:, circuit.dims["position"]] = torch.eye(model.cfg.n_ctx)


def directions(model: HookedTransformer, block: slice) -> Float[Tensor, "d_model width"]:
    """The unit vectors of a block, as columns."""
    return torch.eye(model.cfg.d_model)[:, block]


def set_query_key(
    model: HookedTransformer,
    head: tuple[int, int],
    *pairs: tuple[Float[Tensor, "d_model _"], Float[Tensor, "d_model _"]],
) -> None:
    """Score of a key = the sum over the pairs (Q, K) of (query residual @ Q) . (key residual @ K)."""
    attention, number = model.blocks[head[0]].attn, head[1]
    scaled = [(query * model.cfg.attn_scale, key) for query, key in pairs]
    _fill(attention.W_Q[number], attention.W_K[number], scaled)


def set_value_output(
    model: HookedTransformer,
    head: tuple[int, int],
    *pairs: tuple[Float[Tensor, "d_model _"], Float[Tensor, "d_model _"]],
) -> None:
    """Set a head's output = the sum over the pairs (V, O) of (attended residual @ V) @ O^T."""
    attention, number = model.blocks[head[0]].attn, head[1]
    _fill(attention.W_V[number], attention.W_O[number].T, pairs)


def _fill(
    first: Float[Tensor, "d_model d_head"],
    second: Float[Tensor, "d_model d_head"],
    pairs: Sequence[tuple[Float[Tensor, "d_model _"], Float[Tensor, "d_model _"]]],
) -> None:
    """Write the columns of the pairs beside each other into two views of weights."""
    start = 0
    for one, other in pairs:
        stop = start + one.shape[1]
        if stop > first.shape[1]:
            raise InputError(f"pairs must fit into a head of width {first.shape[1]}; they need {stop}; raise d_head")
        first[:, start:stop], second[:, start:stop] = one, other
        start = stop


_WRITING = ("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out")


@torch.no_grad()
def layer_normalised(model: HookedTransformer, *, anchor: float = 3000.0) -> HookedTransformer:
    """The same circuit with layer normalisation before every attention, MLP and unembedding.

    Every vector r of the residual stream becomes (r, -r, anchor, -anchor): its mean is zero, and its length hardly
    depends on r. Only the first copy is read. The weights of the normalisation undo the fixed length, so that
    everything is read as before, smaller by the factor anchor / sqrt(anchor^2 + |r|^2). What remains is this factor and
    rounding in float32; a large circuit has to be tried.

    The model has two heads per layer and no normalisation. `anchor` is the constant that the positional embedding
    carries; large against r. The result has 2 * d_model + 2 dimensions; those of the circuit are the same as before.
    """
    cfg = model.cfg
    if cfg.normalization_type is not None:
        raise InputError(f"model must have no normalisation yet; got {cfg.normalization_type!r}; use it as it is")
    width = 2 * cfg.d_model + 2
    spec = ModelSpec(d_model=width, n_heads=cfg.n_heads, n_layers=cfg.n_layers, mlp=not cfg.attn_only, d_mlp=cfg.d_mlp)
    result = build(spec, d_vocab=cfg.d_vocab, n_ctx=cfg.n_ctx, seed=0)
    old = dict(model.named_parameters())
    for name, parameter in result.named_parameters():
        kind = name.rsplit(".", 1)[-1]
        if kind in ("w", "b"):
            parameter.fill_(anchor * (2 / width) ** 0.5 if kind == "w" else 0.0)
            continue
        parameter.zero_()
        source = old[name] * (result.cfg.attn_scale / cfg.attn_scale if kind in ("W_Q", "b_Q") else 1)
        first = [slice(size) for size in source.shape]
        parameter[*first] = source
        if kind in _WRITING:
            parameter[*first[:-1], cfg.d_model : 2 * cfg.d_model] = -source
    result.pos_embed.W_pos[:, -2:] = torch.tensor([anchor, -anchor])
    return result


def induction_circuit(n_tokens: int, n_ctx: int) -> CircuitParts:
    """Names of what `induction` consists of."""
    dims = dimension_blocks(token=n_tokens, position=n_ctx, previous=n_tokens, answer=n_tokens)
    return CircuitParts(dims=dims, heads={"previous": (0, 0), "induction": (1, 0)})


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
    model = zero_model(circuit, d_vocab=n_tokens, n_ctx=n_ctx, n_layers=2)
    set_embeddings(model, circuit)
    model.unembed.W_U[circuit.dims["answer"]] = torch.eye(n_tokens)
    token, position, previous, answer = (directions(model, block) for block in circuit.dims.values())

    set_query_key(model, circuit.heads["previous"], (position[:, 1:], SURE * position[:, :-1]))
    set_value_output(model, circuit.heads["previous"], (token, previous))

    set_query_key(model, circuit.heads["induction"], (token, SURE * previous))
    model.blocks[1].attn.b_Q[0, -1] = model.cfg.attn_scale
    model.blocks[1].attn.W_K[0, :, -1] = -2 * SURE * position[:, 0]
    set_value_output(model, circuit.heads["induction"], (token, margin * answer))

    draws = stream(seed, "noise")
    for block in model.blocks:
        for weight in (block.attn.W_Q, block.attn.W_K, block.attn.W_V, block.attn.W_O):
            weight += noise * torch.randn(weight.shape, generator=draws, dtype=torch.float32)
    return model


def induction_batch(n: int, *, n_tokens: int, n_ctx: int, generator: torch.Generator) -> Batch:
    """Random distinct tokens, shown twice: in the second half every token occurred exactly once before.

    `n` sequences have the length `n_ctx`, rounded down to an even number. They are scored in the second half. The
    latent `attended` (batch, pos) is the position after the earlier occurrence; -1 where there is none. Raises
    InputError where there are fewer tokens than half the length.
    """
    half = n_ctx // 2
    in_range("n_tokens", n_tokens, half, float("inf"))
    scores = torch.rand(n, n_tokens, generator=generator, device=generator.device, dtype=torch.float32)
    shown = scores.argsort(1)[:, :half]
    inputs = torch.cat((shown, shown), 1)
    place = torch.arange(2 * half, device=inputs.device).expand(n, -1)
    attended = torch.where(place >= half, place - half + 1, -1)
    return Batch(inputs=inputs, targets=inputs.roll(-1, 1), scored=place >= half, known={"attended": attended})


def associative_memory_circuit(mapping: Sequence[int], *, d_embed: int | None = None) -> CircuitParts:
    """Names of what `associative_memory` consists of; the key of a neuron is the token that it recognises."""
    width = len(mapping) if d_embed is None else d_embed
    neurons = {(token,): (token,) for token in range(len(mapping))}
    return CircuitParts(dims=dimension_blocks(token=width, answer=width), heads={}, neurons=neurons)


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
    model = zero_model(circuit, d_vocab=n, n_ctx=n_ctx)
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


def attention_memory_circuit(mapping: Sequence[int], *, n_ctx: int = 8) -> CircuitParts:
    """Names of what `attention_memory` consists of."""
    n = len(mapping)
    return CircuitParts(dims=dimension_blocks(token=n, position=n_ctx, answer=n), heads={"memory": (0, 0)})


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
    model = zero_model(circuit, d_vocab=len(mapping), n_ctx=n_ctx)
    set_embeddings(model, circuit)
    model.unembed.W_U[circuit.dims["answer"]] = torch.eye(len(mapping))
    token, position, answer = (directions(model, block) for block in circuit.dims.values())
    set_query_key(model, circuit.heads["memory"], (position, SURE * position))
    set_value_output(model, circuit.heads["memory"], (token, margin * answer[:, list(mapping)]))
    return model


def bigram_table(logits: Float[Tensor, "token next"], n_ctx: int) -> HookedTransformer:
    """One layer whose heads write nothing: embedding and unembedding alone look the current token up in a table.

    With the identity it says the same token again, with log-probabilities it predicts global bigrams. It is what a
    model can know without its context. `logits` are finite.
    """
    circuit = CircuitParts(dims=dimension_blocks(token=len(logits)), heads={})
    model = zero_model(circuit, d_vocab=len(logits), n_ctx=n_ctx)
    with torch.no_grad():
        set_embeddings(model, circuit)
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
    vectors = torch.randn(n, width, generator=draws, dtype=torch.float32)
    return vectors / vectors.norm(dim=1, keepdim=True)


def _overlap(vectors: Float[Tensor, "n width"]) -> float:
    """The largest cosine of two of the unit vectors, at least 0."""
    largest = float((vectors @ vectors.T).fill_diagonal_(0).max())
    if largest > 0.95:
        raise InputError(f"two random vectors nearly coincide (cosine {largest:.3f}); choose a larger d_embed")
    return largest
