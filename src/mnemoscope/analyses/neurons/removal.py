"""Sets of neurons of one layer removed, many sets in one pass.

Removing neurons changes what the layer's MLP writes, and nothing before it. So the model runs up to the MLP once, and
from there on once for every set, all sets folded into the batch. After the last layer positions no longer mix: only the
positions at which a skill is tested go on to the final normalisation and the unembedding. Both are exact. What the MLP
writes is computed anew and not corrected by a difference, whose rounding errors would remember the answer. A
model that is no HookedTransformer cannot start at a layer: it runs from the tokens for every set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.analyses.ablation.removal import REPLACEMENTS, Removal, removal
from mnemoscope.analyses.forward import check_fits, normalised
from mnemoscope.analyses.neurons.block import mlp_block
from mnemoscope.analyses.neurons.places import Places, skill_places
from mnemoscope.core import metrics
from mnemoscope.core.batch import CHUNK, Batch
from mnemoscope.core.errors import one_of
from mnemoscope.core.intervention import LowRank
from mnemoscope.core.named import Named
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.site import Site
from mnemoscope.core.skills import Skills
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.replacements import change
from mnemoscope.interventions.writing import check_written, is_classic

_NUMBERS_AT_ONCE = 2**24

Cells = dict[str, Float[Tensor, "set skill"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """A layer's neurons, as they are and as they would be if they were removed.

    Attributes:
        post: Activations as they are. Where `residual` is given, a row of the last layer is a place, with one position;
            otherwise it is a sequence.
        new: What removed neurons are replaced by.
        row: Row that each place is read from.
        column: Position there.
        tokens: The sequences.
        residual: Before the MLP is added; none: the model must run from the tokens.
    """

    model: HookedModel
    layer: int
    post: Float[Tensor, "row pos neuron"]
    new: Float[Tensor, "row pos neuron"]
    row: Int[Tensor, " place"]
    column: Int[Tensor, " place"]
    places: Places
    tokens: Int[Tensor, "batch all_pos"]
    residual: Float[Tensor, "row pos d_model"] | None


@torch.no_grad()
def bench(
    model: HookedModel, batch: Batch, *, skills: Skills, reference: Batch, layer: int, kind: Removal, seed: int = 0
) -> Bench:
    """Record what removals need.

    Args:
        model: With an MLP of two matrices.
        batch: Sequences that test the skills; its weights, if it has them, count within a skill.
        skills: For each skill the positions whose answer it alone gives.
        reference: Sequences that means and resampled activations come from; as long as those of `batch`.
        layer: Whose neurons.
        kind: `zero`, `mean` or `resample`; resampled neurons all take the same other sequence.
        seed: Resampling draws from this seed's stream `resample`.

    Raises:
        InputError: The model has no such neurons or is too small, the reference has another length, another kind,
            or a skill is tested nowhere.
    """
    one_of("the kind of an ablation", kind, REPLACEMENTS)
    mlp_block(model, layer)
    check_fits(model, batch)
    places = skill_places(batch, skills)
    source = Named(name="reference", value=reference)
    intervention = removal(kind, Site(kind="post", layer=layer), source)
    assert not isinstance(intervention, LowRank)
    replaced = change(intervention, batch, Recordings(model), seed)
    names = [f"blocks.{layer}.{name}" for name in ("hook_resid_mid", "mlp.hook_post")]
    parts = []
    for inputs in batch.inputs.split(CHUNK):
        _, cache = model.run_with_cache(inputs, names_filter=names, stop_at_layer=layer + 1)
        parts.append([cache[name] for name in names])
    residual, post = (torch.cat(part) for part in zip(*parts, strict=True))
    new = replaced(post).expand_as(post)
    row, column = places.sequence, places.pos
    if not is_classic(model):
        check_written(model, "post", [layer])
        residual = None
    elif layer == model.cfg.n_layers - 1:
        residual, post, new = (values[row, column][:, None] for values in (residual, post, new))
        row, column = torch.arange(len(row), device=row.device), torch.zeros_like(row)
    return Bench(
        model=model,
        layer=layer,
        post=post,
        new=new,
        row=row,
        column=column,
        places=places,
        tokens=batch.inputs,
        residual=residual,
    )


@torch.no_grad()
def without(on: Bench, sets: Sequence[Int[Tensor, " _"]]) -> Cells:
    """Skills with each set of neurons removed; an empty set removes nothing.

    Returns:
        `accuracy` and `log_prob` (nats), and `accuracy_error` and `log_prob_error`, the standard errors over
        sequences of their drops from the intact model.

    Raises:
        InputError: The logits hold NaN.
    """
    intact = next(_scores(on, [torch.arange(0)]))
    cells: dict[str, list[Tensor]] = {}
    for scores in _scores(on, sets):
        for name, values in scores.items():
            cells.setdefault(name, []).append(on.places.means(values))
            cells.setdefault(f"{name}_error", []).append(on.places.errors(intact[name] - values))
    return {name: torch.cat(parts) for name, parts in cells.items()}


def _scores(on: Bench, sets: Sequence[Tensor]) -> Iterator[dict[str, Float[Tensor, "set place"]]]:
    """Right or wrong, and the answer's log-probability, for chunks of sets."""
    size = on.post[..., 0].numel() * (on.model.cfg.d_model + on.model.cfg.d_vocab)
    step = max(1, _NUMBERS_AT_ONCE // size)
    for start in range(0, len(sets), step):
        chunk = [_replaced(on, neurons) for neurons in sets[start : start + step]]
        logits = _logits(on, chunk)
        at_places = logits.unflatten(0, (len(chunk), -1))[:, on.row, on.column]
        log_probs, target = normalised(at_places), on.places.target.expand(len(chunk), -1)
        yield {
            "accuracy": metrics.correct(log_probs, target).double(),
            "log_prob": metrics.at_target(log_probs, target),
        }


def _logits(on: Bench, posts: Sequence[Float[Tensor, "row pos neuron"]]) -> Float[Tensor, "rows pos d_vocab"]:
    """Of the model with each of these activations in the layer, one after the other."""
    if on.residual is None:
        name, tokens = f"blocks.{on.layer}.mlp.hook_post", on.tokens.repeat(len(posts), 1)
        return on.model.run_with_hooks(tokens, fwd_hooks=[(name, lambda old, hook: torch.cat(list(posts)))])
    mlp = on.model.blocks[on.layer].mlp
    changed = [on.residual + (post @ mlp.W_out + mlp.b_out) for post in posts]
    return on.model(torch.cat(changed), start_at_layer=on.layer + 1)


def _replaced(on: Bench, neurons: Int[Tensor, " _"]) -> Float[Tensor, "row pos neuron"]:
    post = on.post.clone()
    post[..., neurons] = on.new[..., neurons]
    return post
