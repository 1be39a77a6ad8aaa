"""Training of small dictionaries: sparse autoencoders and transcoders of one activation of one layer.

The rows are the activations of fresh sequences at all positions. With x and y, what is read and what is reconstructed,
whitened over the rows, a dictionary minimises

    E |y - W_dec^T f - b_dec - skip x|² + l1 E sum f,   f = activation(W_enc x + b_enc),   E |y|² = 1

by Adam. Rows of W_dec have unit norm by construction: without that, small features with long directions would evade the
penalty (Bricken et al. 2023, "Towards monosemanticity"). TopK has no penalty (Gao et al. 2024, "Scaling and evaluating
sparse autoencoders"). Whitening gives every direction one weight: one direction may have 99 % of the variance of an
activation, and the model still needs the others. Afterwards it is moved into the weights, so that the dictionary takes
activations as they are.

Seeds of a dictionary share the rows; each has its own initial weights and order. The same seed gives the same numbers.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from mnemoscope.core.batch import Batch
from mnemoscope.core.dictionary import Dictionary, activate, activation_hook
from mnemoscope.core.dictionary_recipe import DictionaryRecipe
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import HookedModel, ModelLike, Task, resolve_model
from mnemoscope.core.runtime import progress
from mnemoscope.core.seeding import fixed_defaults, generator
from mnemoscope.interventions.recordings import record_activations
from mnemoscope.interventions.replacements import position_mask

_FLOOR = 1e-3
"""Share of the mean variance that whitening adds to that of every direction."""
_WARM_UP = 0.05
"""Share of the updates over which the learning rate rises: a high one at first leaves more features dead."""
_MAX_ROWS, _MAX_NUMBERS = 2**17, 2**26
"""Rows, and numbers in them, that are kept for training."""


@fixed_defaults()
def train_dictionary(
    model: ModelLike,
    data: Task | Batch | None = None,
    *,
    recipe: DictionaryRecipe,
    pos: int | str | None = None,
    seed: int = 0,
) -> Dictionary:
    """Train one dictionary of a model.

    Args:
        model: A run, a subject or any hooked model.
        data: The task that sequences are drawn from (its training split), or a batch, such as `task.enumerate` gives,
            whose weights count; None: the task of the run or subject.
        recipe: Kind, size and training.
        pos: Position whose activations count, -1 the last, or a latent that holds one a sequence; None: all. Where
            activations of positions that answer nothing are far larger, those of the others are lost in them.
        seed: Of initial weights and order; 0 to 2**63 - 1.

    Returns:
        A dictionary on the device of the model, in float32.

    Raises:
        InputError: The model has no such layer or no MLP, there is no task, `k` exceeds the features, or the activation
            does not vary.

    >>> recipe = ms.DictionaryRecipe(width=1, n_steps=20)
    >>> found = ms.train_dictionary(run, recipe=recipe)
    >>> found.n_features, found.reads, found.writes
    (64, 'mlp_in', 'mlp_out')
    """
    hooked = resolve_model(model)
    places = [activation_hook(kind, recipe.layer, hooked.cfg) for kind in (recipe.reads, recipe.writes)]
    n = round(recipe.width * (hooked.cfg.d_model if recipe.kind == "sae" else hooked.cfg.d_mlp))
    if recipe.activation == "topk":
        in_range("k of a dictionary", recipe.k, 1, n)
    if data is None:  # a subject has a task, and a run one in its specification
        data = getattr(model, "task", None) or getattr(getattr(model, "spec", None), "task", None)
    if data is None:
        raise InputError("data must be a task or a batch, since a model alone has no task; or give a run")
    x, y = _rows(hooked, data, places, pos)
    with torch.enable_grad():
        return _fit(x, y, recipe, n, seed)


def _rows(model: HookedModel, data: Task | Batch, places: Sequence[str], pos: int | str | None = None) -> list[Tensor]:
    """Activations at several hook points, a row for each of these positions that is no padding, drawn by weight."""
    draws = generator(0, "dictionary", "rows")
    n = min(_MAX_ROWS, _MAX_NUMBERS // model.cfg.d_model)
    if not isinstance(data, Batch):
        data = data.sample(max(1, n // data.n_ctx), split="train", generator=draws)
    found = record_activations(model, data, {*places}, by_engine=True)
    where = data.real if pos is None else data.real & position_mask(pos, data).to(data.real.device)
    rows = [found[place][where.to(found[place].device)].float() for place in places]
    if data.weights is None:
        return rows
    weights = data.weights.cpu()[:, None].expand(data.real.shape)[where.cpu()]
    chosen = torch.multinomial(weights, n, replacement=True, generator=draws)
    return [part[chosen.to(part.device)] for part in rows]


def _whitening(rows: Float[Tensor, "row d"]) -> tuple[Tensor, Tensor, Tensor]:
    """The mean, the matrix that whitens rows, and its inverse; both are symmetric."""
    mean = rows.mean(0)
    values, axes = torch.linalg.eigh(torch.cov((rows - mean).T.double()).reshape(len(mean), len(mean)))
    if values.mean() <= 0:
        raise InputError("the activation does not vary over the sequences, so that there is nothing to reconstruct")
    scale = (values.clamp(min=0) + _FLOOR * values.mean()).sqrt()
    return mean, ((axes / scale) @ axes.T).float(), ((axes * scale) @ axes.T).float()


def _fit(
    x: Float[Tensor, "row d_in"], y: Float[Tensor, "row d_out"], recipe: DictionaryRecipe, n: int, seed: int
) -> Dictionary:
    draws, device, (d_in, d_out) = generator(seed, "dictionary"), x.device, (x.shape[1], y.shape[1])
    mean_in, white_in, _ = _whitening(x)
    mean_out, white_out, colour = _whitening(y)
    white_out, colour = white_out / d_out**0.5, colour * d_out**0.5  # the expected length is 1
    inputs, targets = (x - mean_in) @ white_in, (y - mean_out) @ white_out
    first, other = (F.normalize(torch.randn(n, d, generator=draws, dtype=torch.float32)) for d in (d_out, d_in))
    initial = first.clone() if recipe.kind == "sae" else other, torch.zeros(n), first, torch.zeros(d_out)
    w_enc, b_enc, w_dec, b_dec = (part.to(device).requires_grad_() for part in initial)
    skip = torch.zeros(d_out, d_in, device=device).requires_grad_() if recipe.kind == "skip-transcoder" else None
    params = [w_enc, b_enc, w_dec, b_dec, *([] if skip is None else [skip])]
    optimiser, k = torch.optim.Adam(params, fused=True), recipe.k if recipe.activation == "topk" else None
    for step in progress(range(recipe.n_steps)):
        done = (step + 1) / recipe.n_steps
        optimiser.param_groups[0]["lr"] = recipe.learning_rate * min(1, done / _WARM_UP, 2 - 2 * done)
        chosen = torch.randint(len(x), (recipe.batch_size,), generator=draws).to(device)
        features = activate(F.linear(inputs[chosen], w_enc, b_enc), recipe.activation, k=k)
        written = torch.addmm(b_dec, features, F.normalize(w_dec))
        written = written if skip is None else written + F.linear(inputs[chosen], skip)
        loss = (written - targets[chosen]).square().sum(-1).mean()
        loss = loss + recipe.l1 * features.sum(-1).mean() if k is None else loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    w_enc, b_enc, w_dec, b_dec, *skips = (part.detach() for part in params)
    w_enc, skip = w_enc @ white_in, colour @ skips[0] @ white_in if skips else None
    shift = mean_out if skip is None else mean_out - skip @ mean_in
    return Dictionary(
        **{"name": f"{recipe.kind} {seed}", "layer": recipe.layer, "reads": recipe.reads, "writes": recipe.writes},
        **{"w_enc": w_enc, "b_enc": b_enc - w_enc @ mean_in, "skip": skip, "activation": recipe.activation, "k": k},
        **{"w_dec": F.normalize(w_dec) @ colour, "b_dec": b_dec @ colour + shift},
    )
