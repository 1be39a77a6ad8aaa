r"""The simplified transformer, and the gradient of one of its memories: what one gradient step stores.

Logits and gradients of the simplified transformer at a few positions, in the basis of its embeddings.

Two attention-only layers of one head without normalisation and biases: what the second layer reads is a combination of
the embeddings of tokens and positions and of their images through W_V W_O of the first layer, 2 (N + T) vectors. Scores
and logits are therefore sums over entries of four small tables, whatever the width. That is exact and makes large
samples cheap; only the other positions are left out.

It returns what the model itself would, to rounding. A model with an MLP, normalisation, biases or more heads is
refused.

The gradient of a linear associative memory in closed form, and what one gradient step from zero stores.

Inputs :math:`e_z` are read by a matrix W whose scores for the outputs :math:`u_k` are logits. For the cross-entropy
:math:`L(W) = E_{z,y}[\ell(y, (u_k^T W e_z)_k)]`,

.. math:: \nabla L(W) = \sum_k E_z[(p_W(k|z) - p(k|z))\, u_k e_z^T],

so that one step of gradient descent adds associations of each input with the outputs that follow it more often than
is predicted (Bietti et al. 2023, "Birth of a Transformer: A Memory Viewpoint", lemma 1 and the section on gradients as
memories). Vectors are rows here, as in TransformerLens: the scores are :math:`e_z W u_k^T`, and the gradient is the
transpose of the paper's.

If every input z of N is equally likely and is followed by f(z), f a random function, one step from the zero matrix on
the whole distribution gives, whatever its size,

    W ~ sum_z e_z^T (u_f(z) - mean of u) / N

Recall is the share of inputs z whose f(z) is the argmax over k of e_z W u_k^T. With embeddings that are orthogonal it
is 1; with random unit vectors in d dimensions other associations interfere, by about sqrt(2/d + N/d^2).

*Shows* that the formula is the gradient, to rounding; and how much one step stores when embeddings are nearly
orthonormal, and where they no longer are.

*Does not show* what training finds: inside a transformer, inputs are sums of embeddings, and other matrices move too.
Nor how much the matrix could store: later steps correct mistakes (see memory capacity).
"""

import math
from collections.abc import Sequence

import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope import Batch, HookedModel, InputError, generator
from mnemoscope.core import in_range

CHUNK = 512
"""Sequences at once; the tables of more do not stay in the cache."""


def tables(model: HookedModel, n_pos: int) -> tuple[Tensor, ...]:
    """Scores of the first and of the second layer, direct logits, and logits through the second layer.

    They are over basis vectors: tokens, then the first `n_pos` positions (the first table), then their images (the
    others). Raises InputError for a model of another shape.
    """
    config = model.cfg
    if not (config.n_layers == 2 and config.n_heads == 1 and config.attn_only and config.normalization_type is None):
        raise InputError("the model must have two attention-only layers of one head and no normalisation")
    first, second = (block.attn for block in model.blocks)
    named = dict(model.named_parameters())
    unembedding = named["unembed.W_U"]
    basis = torch.cat([named["embed.W_E"], named["pos_embed.W_pos"][:n_pos]])
    both = torch.cat([basis, basis @ first.W_V[0] @ first.W_O[0]])
    scale = math.sqrt(config.d_head)
    return (
        basis @ first.W_Q[0] @ first.W_K[0].T @ basis.T / scale,
        both @ second.W_Q[0] @ second.W_K[0].T @ both.T / scale,
        both @ unembedding,
        both @ second.W_V[0] @ second.W_O[0] @ unembedding,
    )


def logits(
    found: Sequence[Tensor],
    tokens: Int[Tensor, "batch pos"],
    rows: Int[Tensor, " asked"],
    positions: Int[Tensor, " asked"],
) -> Float[Tensor, "asked d_vocab"]:
    """Logits from `tables`, at one position of one of the sequences each."""
    first, second, direct, output = found
    n_pos, n_tokens = tokens.shape[1], direct.shape[1]
    causal = torch.ones(n_pos, n_pos, dtype=torch.bool, device=tokens.device).tril()
    place = torch.eye(n_pos, dtype=first.dtype, device=tokens.device).expand(len(tokens), -1, -1)
    embedded = torch.cat([torch.nn.functional.one_hot(tokens, n_tokens).to(first.dtype), place], -1)
    by_basis = first[tokens] + first[n_tokens:]
    scores = by_basis.gather(2, tokens[:, None].expand(-1, n_pos, -1)) + by_basis[..., n_tokens:]
    mixed = scores.masked_fill(~causal, -math.inf).softmax(-1) @ embedded
    read = torch.cat([embedded, mixed], -1)
    query, keys = read[rows, positions], read[rows]
    match = ((query @ second)[:, None] @ keys.mT)[:, 0].masked_fill(~causal[positions], -math.inf)
    moved = (match.softmax(-1)[:, None] @ keys)[:, 0]
    return query @ direct + moved @ output


def gradient(model: HookedModel, parameter: Tensor, batch: Batch) -> Tensor:
    """Gradient of the mean cross-entropy at the scored positions for a parameter of the model that requires one."""
    n = int(batch.scored.sum())
    if n == 0:
        raise InputError("batch must have a scored position; it has none")
    exact = tables(model, batch.inputs.shape[1])
    leaves = tuple(table.detach().requires_grad_() for table in exact)
    totals = [torch.zeros_like(leaf) for leaf in leaves]
    for start in range(0, len(batch), CHUNK):
        part = batch.select(slice(start, start + CHUNK))
        rows, positions = part.scored.nonzero().T
        if not len(rows):
            continue
        targets = part.targets[rows, positions]
        lost = torch.nn.functional.cross_entropy(logits(leaves, part.inputs, rows, positions), targets, reduction="sum")
        for total, each in zip(totals, torch.autograd.grad(lost, leaves), strict=True):
            total += each / n
    moving = [(table, total) for table, total in zip(exact, totals, strict=True) if table.requires_grad]
    (found,) = torch.autograd.grad([table for table, _ in moving], parameter, [total for _, total in moving])
    return found


MOST = 24
"""Largest number of inputs, outputs or dimensions of a random problem."""


def association_gradient(
    matrix: Float[Tensor, "d_in d_out"],
    inputs: Float[Tensor, "input d_in"],
    outputs: Float[Tensor, "output d_out"],
    joint: Float[Tensor, "input output"],
) -> Float[Tensor, "d_in d_out"]:
    """Gradient of the mean cross-entropy by the formula; W acts on rows, and scores are logits.

    `joint` is p(z, k), and adds up to one.
    """
    _check(joint)
    predicted = (inputs @ matrix @ outputs.T).softmax(1)
    return inputs.T @ (joint.sum(1, keepdim=True) * predicted - joint) @ outputs


def loss(
    matrix: Float[Tensor, "d_in d_out"],
    inputs: Float[Tensor, "input d_in"],
    outputs: Float[Tensor, "output d_out"],
    joint: Float[Tensor, "input output"],
) -> Float[Tensor, ""]:
    """Mean cross-entropy in nats; arguments as for `association_gradient`."""
    _check(joint)
    return -(joint * (inputs @ matrix @ outputs.T).log_softmax(1)).sum()


def against_autograd(*, seed: int, n: int = 8) -> xr.Dataset:
    """The formula and automatic differentiation on random problems, in float64; their sizes are drawn as well.

    Over `problem`: `difference`, the largest difference of an entry relative to the largest entry of the gradient;
    `difference_without_predictions`, the same for a wrong formula that leaves out p_W.
    """
    in_range("n", n, 1, float("inf"))
    rows = [_compare(generator(seed, "problem", i)) for i in range(n)]
    data = {name: ("problem", [row[name] for row in rows]) for name in rows[0]}
    attrs = {"unit": "share of the largest entry of the gradient", "n": n, "dtype": "float64"}
    return xr.Dataset(data, coords={"problem": range(n)}, attrs=attrs)


def _compare(draws: torch.Generator) -> dict[str, float]:
    n_in, n_out, d_in, d_out = torch.randint(2, MOST + 1, (4,), generator=draws).tolist()

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draws, dtype=torch.double)

    inputs, outputs = normal(n_in, d_in) / d_in**0.5, normal(n_out, d_out) / d_out**0.5
    matrix = normal(d_in, d_out).requires_grad_()
    joint = normal(n_in * n_out).softmax(0).view(n_in, n_out)
    (exact,) = torch.autograd.grad(loss(matrix, inputs, outputs, joint), matrix)
    matrix = matrix.detach()
    formula = association_gradient(matrix, inputs, outputs, joint)
    observed = inputs.T @ joint @ outputs
    found = {"difference": formula, "difference_without_predictions": -observed}
    return {name: float((value - exact).abs().max() / exact.abs().max()) for name, value in found.items()}


def _check(joint: Float[Tensor, "input output"]) -> None:
    if joint.min() < 0 or abs(float(joint.sum()) - 1) > 1e-6:
        raise InputError(f"joint must be probabilities that add up to 1; they add up to {float(joint.sum()):g}")


def one_step(
    inputs: Float[Tensor, "input d_in"],
    outputs: Float[Tensor, "output d_out"],
    answers: Int[Tensor, " input"],
) -> Float[Tensor, "d_in d_out"]:
    """The matrix after one gradient step of size 1 from zero, inputs equally likely; answers are numbers of outputs."""
    joint = torch.zeros(len(inputs), len(outputs), dtype=inputs.dtype)
    joint[torch.arange(len(inputs)), answers] = 1 / len(inputs)
    return -association_gradient(inputs.new_zeros(inputs.shape[1], outputs.shape[1]), inputs, outputs, joint)


def recalled_after_one_step(n: int, d: int, *, seed: int, permuted: bool = False) -> float:
    """The share of n inputs, random unit vectors of dimension d, whose answer, one of n outputs, one step stores.

    With `permuted` the answers are those of a random other order of the inputs, which one step does not store.
    """
    in_range("n", n, 2, float("inf"))
    in_range("d", d, 1, float("inf"))
    draws = generator(seed, "one step", n, d)
    inputs, outputs = (
        torch.nn.functional.normalize(torch.randn(n, d, generator=draws, dtype=torch.double), dim=1) for _ in range(2)
    )
    answers = torch.randint(n, (n,), generator=draws)
    best = (inputs @ one_step(inputs, outputs, answers) @ outputs.T).argmax(1)
    asked = answers[torch.randperm(n, generator=draws)] if permuted else answers
    return float((best == asked).double().mean())


def one_step_recall(n: Sequence[int], d: Sequence[int], *, seeds: Sequence[int]) -> xr.Dataset:
    """`recall` after one step, over (n, d, draw): numbers of inputs, widths and draws."""
    shares = [[[recalled_after_one_step(i, j, seed=seed) for seed in seeds] for j in d] for i in n]
    coords = {"n": list(n), "d": list(d), "draw": list(seeds)}
    attrs = {"unit": "share of inputs", "embeddings": "random unit vectors", "start": "zero", "n_steps": 1}
    return xr.Dataset({"recall": (("n", "d", "draw"), shares)}, coords=coords, attrs=attrs)
