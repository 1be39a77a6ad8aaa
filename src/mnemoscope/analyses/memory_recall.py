r"""The memory-recall score of a matrix for a list of associations.

A matrix W that should map each input :math:`e_i` to its output :math:`u_i` is an associative memory of the pairs. It
recalls pair i if the right output scores highest: :math:`e_i W u_i^T > e_i W u_j^T` for every other candidate j. The
score R(W) is the share of pairs that it recalls. Vectors are rows here, as in TransformerLens; the paper's matrix is
the transpose. Bietti et al. 2023, "Birth of a Transformer: A Memory Viewpoint".

Two baselines stand beside it: chance, k in the number of candidates, and the score of the same matrix for permuted
targets, which is higher where a matrix prefers frequent outputs whatever the input.

The score depends on how many candidates compete: among few, half of the pairs is reached sooner. `recall_among` makes
matrices comparable: the expected score if the right output competes with as many random others in each of them.
`chance_threshold` is the share that guessing among the candidates does not reach (exact binomial).

*Shows* that the associations can be read off the matrix by taking the best candidate. A positive factor changes
nothing, so a matrix may recall everything long before it is large enough to matter: the margin is the graded measure.

*Does not show* that the input ever arrives at the matrix as this vector, that what else is in the residual stream
leaves the order as it is, or that the model makes use of it. That takes an intervention.

*Which matrices.* `weight_matrix`, `weight_product` and `embedding_vectors` give matrices of a model, and the vectors
that they should map. Everything is read as the next reader sees it: the gain and the centring of LayerNorm are folded
into the matrices that read the residual stream (see `circuits.weights`), in a copy in float64. Sigma, by which
LayerNorm divides, and biases are left out. Where the candidates are logits, sigma is one positive factor for all of
them; where they are keys or queries, each has another sigma, so that the model's own order may be another one. Matrices
act on rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import xarray as xr
from jaxtyping import Float, Int
from scipy.stats import binom, hypergeom
from torch import Tensor

from mnemoscope.analyses.head_weights import check_indices, effective_weights
from mnemoscope.analyses.units import keys_before_norm, mlp_block
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.numerics import to_numpy
from mnemoscope.core.protocols import HookedModel, ModelLike, resolve_model
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import ParamSite

Product = Literal["QK", "OV", "MLP"]
Embedding = Literal["W_E", "W_pos", "W_U"]
BY_HEAD = ("W_Q", "W_K", "W_V", "W_O")
CHUNK = 2**24
"""Scores that are held at a time (128 MiB)."""
ROUNDING = 1e-12
"""In the product of the norms of input, matrix and output: scores that differ by no more tie."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Association:
    """Pairs of input and output, called `name` in results.

    `inputs` holds one vector per pair. `outputs` are the candidates: the right outputs, and what else should score
    lower. Equal ones tie, and a tie is not recalled; an output that several inputs share is given once. `targets` says
    which output is right for each input; none: output i belongs to input i. `labels` name the pairs (a token, a
    position); none: their numbers.

    >>> mine = ms.analyses.Association(name="tokens", inputs=torch.eye(4), outputs=torch.eye(4))
    >>> ms.analyses.recall_score(torch.eye(4), mine).recall.item()
    1.0
    """

    name: str
    inputs: Float[Tensor, "association d_in"]
    outputs: Float[Tensor, "candidate d_out"]
    targets: Int[Tensor, " association"] | None = None
    labels: tuple[int | str, ...] | None = None

    def __post_init__(self) -> None:
        n, n_candidates = len(self.inputs), len(self.outputs)
        in_range(f"the number of inputs of {self.name}", n, 1, float("inf"))
        in_range(f"the number of outputs of {self.name}", n_candidates, 2, float("inf"))
        for side in ("inputs", "outputs"):
            if not getattr(self, side).isfinite().all():
                raise InputError(f"{side} of {self.name} must be finite; they hold NaN or infinity: check the weights")
        if self.labels is not None and len(self.labels) != n:
            raise InputError(f"labels of {self.name} must be one per input, {n}; got {len(self.labels)}")
        if self.targets is None and n != n_candidates:
            raise InputError(
                f"{self.name} has {n} inputs and {n_candidates} outputs; say with targets= which output belongs to "
                "each input"
            )
        if self.targets is None:
            if len(torch.unique(self.outputs, dim=0)) < n_candidates:
                raise InputError(
                    f"outputs of {self.name} must differ, since equal ones tie; give each once and say with targets= "
                    "which inputs it belongs to"
                )
        elif len(self.targets) != n:
            raise InputError(f"targets of {self.name} must be one per input, {n}; got {len(self.targets)}")
        else:
            for extreme in (self.targets.min(), self.targets.max()):
                in_range(f"a target of {self.name}", int(extreme), 0, n_candidates - 1)


@torch.no_grad()
def recall_score(
    matrix: Float[Tensor, "d_in d_out"],
    association: Association,
    *,
    k: int = 1,
    weights: Float[Tensor, " association"] | None = None,
    n_draws: int = 200,
    seed: int = 0,
) -> xr.Dataset:
    """The share of the associations that a matrix recalls.

    Args:
        matrix: Acts on rows: inputs @ matrix is compared with the outputs.
        association: What it should map to what.
        k: Among how many of the best candidates the right one must be. A candidate that scores the same as the right
            one counts as better.
        weights: How much each association counts (how often it occurs, say); none: all the same.
        n_draws: How many permutations of the targets the control's interval is taken over.
        seed: They come from this seed's stream `permutations`.

    Returns:
        Over association, float64: `score` of the right output; `margin`, that less the best other candidate; `rank`,
        the number of candidates that score at least as high, itself included; `recalled`, rank of at most k. Without
        dimensions: `recall`, the weighted share; `mean_margin`; `chance`, k in the number of candidates; `permuted`,
        the expected recall for targets permuted among the inputs (exact), and `permuted_low`, `permuted_high`, between
        which 95 % of such permutations lie.

    Raises:
        InputError: Widths do not fit, the matrix is not finite, `k` does not leave a candidate out, or weights are no
            weights.

    >>> tokens, logits = (ms.analyses.embedding_vectors(model, name) for name in ("W_E", "W_U"))
    >>> same = ms.analyses.Association(name="same token", inputs=tokens, outputs=logits)
    >>> found = ms.analyses.recall_score(ms.analyses.weight_product(model, "OV", layer=0, head=1), same)
    >>> round(found.chance.item(), 2)
    0.17
    """
    _check(matrix, association)
    n, n_candidates = len(association.inputs), len(association.outputs)
    in_range("k", k, 1, n_candidates - 1)
    in_range("n_draws", n_draws, 2, float("inf"))
    targets = torch.arange(n) if association.targets is None else association.targets
    draws = generator(seed, "permutations")
    orders = torch.stack([torch.randperm(n, generator=draws) for _ in range(n_draws)], 1)
    counts = _counts(weights, n).to(matrix.device)
    columns, hits = [], matrix.new_zeros(1 + n_draws, dtype=torch.double)
    step = max(1, CHUNK // n_candidates)
    for rows in (slice(start, start + step) for start in range(0, n, step)):
        own_rival_rank, permuted = _rows(matrix, association, targets.to(matrix.device), orders, rows, k)
        columns.append(own_rival_rank)
        hits += counts[rows] @ permuted
    own, rival, rank = torch.cat(columns, 1)
    hits /= counts.sum()
    low, high = hits[1:].quantile(hits.new_tensor([0.025, 0.975]))
    each = {"score": own, "margin": own - rival, "rank": rank.long(), "recalled": rank <= k}
    whole = {
        "recall": float(counts @ (rank <= k).double() / counts.sum()),
        "mean_margin": float(counts @ (own - rival) / counts.sum()),
        "chance": k / n_candidates,
        "permuted": float(hits[0]),
        "permuted_low": float(low),
        "permuted_high": float(high),
    }
    return xr.Dataset(
        {**{name: ("association", to_numpy(values)) for name, values in each.items()}, **whole},
        coords={"association": list(range(n) if association.labels is None else association.labels)},
        attrs={
            "unit": "share; score and margin in that of the matrix's products",
            "target": association.name,
            "n": n,
            "n_candidates": n_candidates,
            "k": k,
            "n_draws": n_draws,
            "ties": "not recalled",
        },
    )


def recall_among(found: xr.Dataset, n_candidates: int) -> float:
    """The expected recall if the right output competes with others drawn at random, without replacement.

    With w of n - 1 other candidates worse than the right one, a pair is recalled among m candidates with the
    probability C(w, m - 1) / C(n - 1, m - 1). Chance is 1/m.

    All associations that `recall_score` `found` count the same. `n_candidates` is m, the right one included. Raises
    InputError where there are fewer.

    >>> mine = ms.analyses.Association(name="tokens", inputs=torch.eye(4), outputs=torch.eye(4))
    >>> ms.analyses.recall_among(ms.analyses.recall_score(torch.eye(4), mine), 2)
    1.0
    """
    n = int(found.attrs["n_candidates"])
    in_range("n_candidates", n_candidates, 2, n)
    drawn = n_candidates - 1
    return float(hypergeom.pmf(drawn, n - 1, n - found["rank"].to_numpy(), drawn).mean())


def chance_threshold(n: int, chance: float, *, p: float = 0.01) -> float:
    """The smallest share of `n` associations that guessing reaches with a probability below `p`; above 1 if none is.

    Associations are taken as independent, and `chance` is the probability of recalling one of them by guessing. The
    test is exact binomial, one-sided. Raises InputError where there is no association, or chance or p is no probability
    between 0 and 1.

    >>> ms.analyses.chance_threshold(20, 0.25)
    0.55
    """
    in_range("n", n, 1, float("inf"))
    for name, value in (("chance", chance), ("p", p)):
        if not 0 < value < 1:
            raise InputError(f"{name} must lie between 0 and 1; got {value!r}")
    return float(binom.isf(p, n, chance) + 1) / n


def _rows(
    matrix: Float[Tensor, "d_in d_out"],
    association: Association,
    targets: Int[Tensor, " association"],
    orders: Int[Tensor, "association draw"],
    rows: slice,
    k: int,
) -> tuple[Float[Tensor, "3 row"], Float[Tensor, "row expected_and_draw"]]:
    """Score of the right candidate, score of the best other one, and rank, for some of the associations.

    The second tensor says whether the target that a permutation gives is recalled: the mean over all permutations, then
    each draw.
    """
    matrix = matrix.double()
    inputs, outputs = association.inputs[rows].to(matrix), association.outputs.to(matrix)
    scores = inputs @ matrix @ outputs.T
    slack = (ROUNDING * inputs.norm(dim=1) * matrix.norm() * outputs.norm(dim=1).max())[:, None]
    right = targets[rows, None]
    own = scores.gather(1, right)
    rival = scores.scatter(1, right, -torch.inf).amax(1)
    best = (scores - slack > scores.topk(k + 1).values[:, -1:]).double()
    frequency = targets.bincount(minlength=len(outputs)).double() / len(targets)
    permuted = torch.cat([(best @ frequency)[:, None], best.gather(1, targets[orders[rows].to(targets.device)])], 1)
    return torch.stack([own[:, 0], rival, (scores >= own - slack).sum(1).double()]), permuted


def _check(matrix: Float[Tensor, "d_in d_out"], association: Association) -> None:
    given = (association.inputs.shape[1], association.outputs.shape[1])
    if matrix.shape != given:
        raise InputError(
            f"matrix must lead from the width of the inputs to that of the outputs, {given[0]} by {given[1]}; got "
            f"{tuple(matrix.shape)}; transpose it if it acts on columns"
        )
    if not matrix.isfinite().all():
        raise InputError("matrix must be finite; it holds NaN or infinity: check the weights")


def _counts(weights: Float[Tensor, " association"] | None, n: int) -> Float[Tensor, " association"]:
    if weights is None:
        return torch.ones(n, dtype=torch.double)
    weights = weights.double()
    if len(weights) != n or not weights.isfinite().all() or weights.min() < 0 or weights.sum() == 0:
        raise InputError(
            f"weights must be one per association, {n}, finite, none negative, not all zero; got {weights}"
        )
    return weights


@torch.no_grad()
def weight_matrix(model: ModelLike, site: ParamSite) -> Float[Tensor, "d_in d_out"]:
    """One weight matrix of a model, LayerNorm folded into those that read.

    A `site` with a head gives the matrix of that head. W_in and W_out lead to and from the neurons, W_Q, W_K and W_V to
    the inside of the head, W_O from there. Attention scores and logits must be products of weight matrices. Raises
    InputError where the model is not supported, or the site is a bias, names no head, does not exist or is not finite.

    >>> ms.analyses.weight_matrix(model, ms.ParamSite(name="W_in", layer=0)).shape
    torch.Size([32, 64])
    """
    model = resolve_model(model)
    if not site.is_matrix:
        raise InputError(f"site must be a matrix, not a bias; got {site}; name one of the W_ weights")
    if site.name in ("W_in", "W_out"):
        assert site.layer is not None
        is_key, layer = site.name == "W_in", site.layer
        found = keys_before_norm(model, layer)[0].T if is_key else mlp_block(model, layer).mlp.W_out
        return found.detach().double()
    weights = effective_weights(model, [site.layer or 0])
    if site.name in BY_HEAD:
        return getattr(weights, site.name)[0, _head(model, site.head, str(site))]
    if site.name == "W_pos" and weights.W_pos is None:
        raise InputError("the model adds no positions to the residual stream (rotary, say): take one that does")
    return getattr(weights, site.name)


@torch.no_grad()
def weight_product(
    model: ModelLike, name: Product, *, layer: int, head: int | None = None
) -> Float[Tensor, "d_in d_out"]:
    """A product of two weight matrices, from the residual stream to the residual stream.

    `QK` is W_Q W_K^T / attn_scale, from the query's side to the key's, in attention scores. `OV` is W_V W_O. `MLP` is
    W_in W_out, as if the activation function were the identity. Errors are those of `weight_matrix`.

    >>> ms.analyses.weight_product(model, "OV", layer=0, head=1).shape
    torch.Size([32, 32])
    """
    model = resolve_model(model)
    one_of("name", name, get_args(Product))
    if name == "MLP":
        if head is not None:
            raise InputError(f"an MLP has no heads; leave head out, got {head}")
        return weight_matrix(model, ParamSite(name="W_in", layer=layer)) @ weight_matrix(
            model, ParamSite(name="W_out", layer=layer)
        )
    weights = effective_weights(model, [layer])
    of = (0, _head(model, head, name))
    if name == "OV":
        return weights.W_V[of] @ weights.W_O[of]
    return weights.W_Q[of] @ weights.W_K[of].T / weights.attn_scale[0]


@check_arguments
@torch.no_grad()
def embedding_vectors(
    model: ModelLike, name: Embedding, chosen: Sequence[int] | None = None
) -> Float[Tensor, "chosen d_model"]:
    """Embeddings of tokens (`W_E`) or positions (`W_pos`), or the directions that logits read (`W_U`), as rows.

    Without `chosen` all of them. Raises InputError as `weight_matrix`, and where an index is out of range.

    >>> ms.analyses.embedding_vectors(model, "W_U", range(3)).shape
    torch.Size([3, 32])
    """
    model = resolve_model(model)
    one_of("name", name, get_args(Embedding))
    matrix = weight_matrix(model, ParamSite(name=name))
    rows = matrix.T if name == "W_U" else matrix
    return rows[check_indices("chosen", chosen, len(rows))]


def _head(model: HookedModel, head: int | None, name: str) -> int:
    if head is None:
        raise InputError(f"{name} is one matrix per head; name the head, from 0 to {model.cfg.n_heads - 1}")
    in_range(f"the head of {name}", head, 0, model.cfg.n_heads - 1)
    return head
