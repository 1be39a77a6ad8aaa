r"""Measurements on models of factual recall: what they know of a fact, from which step on, and where it is stored.

Stages of knowing a fact in training: nothing, the relation alone, or subject and relation.

With A_r the answers to relation r, the loss of a fact a = a(s, r) has two parts,

.. math:: -\ln p(a) = \underbrace{-\ln p(A_r)}_{\text{relation}}\; \underbrace{-\ln p(a \mid A_r)}_{\text{subject}}

the first of which is ln R where nothing is known, and the second ln D as long as the subject plays no part. A model
that answers by the relation alone says p(a | r), how often a is right for r over all subjects; KL(p(. | r) || model)
tells how far it is from that. The paper calls the phase of training in which it does so hallucination: answers of the
right kind that have nothing to do with the subject (Nichani, Lee & Bietti 2025, "Understanding factual recall in
transformers via associative memories"). Beside it KL(p(. | s) || model): a model that answers by the subject alone.

*Shows* what the predictions depend on, over sequences. *Does not show* where subject and relation are read.

Facts that are still answered once the learned patterns of attention are replaced.

The rows of the query are replaced in all heads at once. *No noise*: a head's own attention to subject and relation
stays, scaled up to one, and nothing goes to noise. *Mean*: on top of that every fact gets the head's mean over all
facts, so that a head no longer tells subjects or relations apart. *Uniform*: every token gets the same.

*Shows* which part of the patterns the answers rest on: that noise is left out, or that heads choose by fact. *Does not
show* what is done with what they fetch; that is for `routes` and `fact_memories`.

Routes of an answer: straight from attention, or from attention through the MLP; fact by fact.

One of two parts is removed from what the logits read at the query: the output of the MLP, or what heads add directly
(the MLP reads them all the same). A fact whose answer is right without the MLP is stored by attention; one that is
right without the direct part is stored by attention and MLP together.

A part is replaced by its mean over all facts, which leaves one guess that is right for a few of them, or by the
activation of another sequence, which argues for another fact. *Shows* what is enough, given the rest of the model as it
is. *Does not show* how a part does it.

Memories of facts in the weights: memory-recall scores at the OV circuits and at the MLP.

A head h gives subject and relation of a fact the attention :math:`\alpha_h(s)` and :math:`\alpha_h(r)`, in the mean
over places and noise. It writes :math:`x_h = \alpha_h(s)\, e_s W_{OV}^h + \alpha_h(r)\, e_r W_{OV}^h`. The OV circuits
recall the fact if :math:`\sum_h x_h` is nearest to the answer's unembedding, among all answers; the MLP does if
:math:`\mathrm{ReLU}(\sum_h x_h W_{in} + b_{in}) W_{out}` is; the sum of both is what the model says but for noise.
(Nichani, Lee & Bietti 2025, section 4; scores as in `mnemoscope.analyses.recall_score`.)

*Shows* which memory the answer can be read from. *Does not show* that the model does: attention differs from sequence
to sequence, and noise is left out. `routes` is the causal test.

The number of facts that models of growing width learn, and its growth with the number of their parameters.

For every width d the largest S = R is searched for at which a model answers 99 % (Nichani, Lee & Bietti 2025, section
5). It has heads of width :math:`\alpha d / H` and :math:`\beta d` neurons. Parameters count as published,
:math:`4 H d_h d + 2 m d`. The exponent b is that of :math:`S R \propto P^b`, fitted on logarithms over the widths;
theory has b = 1 up to logarithms.

Scaled down: d from 8 to 32, without an MLP from 16 to 45, by half powers (published to 181); S = R from 3 to 48 (8 to
512), batches of 256 (1,024), at most 2,048 steps (16,384), one rate (the best of three), 32 noise tokens at every size
(S + R).

*Shows* how many facts this training finds. *Does not show* how many could be stored. A model counts as soon as it
answers 254 of the 256 sequences that it is watched on, which one of 98 % sometimes does.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from mnemoscope import (
    Batch,
    Edge,
    HookedModel,
    InputError,
    Intervention,
    Mean,
    Named,
    ParamSite,
    Resample,
    SetPattern,
    Site,
    Task,
    generator,
    run_with,
)
from mnemoscope.analyses import (
    Association,
    embedding_vectors,
    layer_attention,
    log_probs,
    mlp_block,
    recall_score,
    threshold_onset,
    weight_matrix,
    weight_product,
)
from mnemoscope.core import Mechanism, in_range, metrics, one_of
from mnemoscope.run import SizeSearch, Sweep, search_sweep
from mnemoscope.systems.factual_recall.tasks import FactualRecall

N_FOLLOWED = 1024
"""Sequences of a trajectory."""
NEAR = 0.1
"""KL divergence from p(a | r), in nats, up to which a model counts as answering by the relation alone."""


def facts_task(task: Task) -> FactualRecall:
    """The task, if it is factual recall; else an `InputError`."""
    if not isinstance(task, FactualRecall):
        raise InputError(f"this analysis reads models of {FactualRecall.name}; got one of {task.name}")
    return task


@torch.no_grad()
def split_loss(model: HookedModel, task: Task, batch: Batch) -> xr.Dataset:
    """The two parts of the loss, and the divergence of predictions from what relation or subject alone say.

    Scalars are means over the sequences, in nats: `loss`, which is `loss_relation` plus `loss_subject`, `kl_relation`
    and `kl_subject`; and `accuracy`.
    """
    task = facts_task(task)
    predicted = log_probs(model, task, batch)[:, -1, : task.d_vocab_out]
    right = batch.targets[:, -1:]
    of_relation = torch.arange(task.d_vocab_out, device=right.device) // task.n_answers == right // task.n_answers
    loss = -predicted.gather(1, right).mean()
    relation = -predicted.masked_fill(~of_relation, -torch.inf).logsumexp(1).mean()
    found = {"loss": loss, "loss_relation": relation, "loss_subject": loss - relation}
    for name in ("relation", "subject"):
        found[f"kl_{name}"] = metrics.kl_divergence(task.reference(batch, name)[:, -1], predicted).mean()
    found["accuracy"] = (predicted.argmax(1, keepdim=True) == right).double().mean()
    attrs = {"unit": "nats; accuracy: share", "n_sequences": len(batch)}
    return xr.Dataset({name: float(value) for name, value in found.items()}, attrs=attrs)


def trajectory(model: HookedModel, task: Task, *, seed: int) -> xr.Dataset:
    """`split_loss` of one checkpoint, on the same sequences at every step of a run."""
    batch = facts_task(task).sample(N_FOLLOWED, split="test", generator=generator(seed, "stages"))
    return split_loss(model, task, batch)


def stages(followed: xr.Dataset, *, n_relations: int, n_answers: int, near: float = NEAR) -> xr.Dataset:
    """The steps at which relation and fact are known, and the phase in which the relation alone answers.

    `followed` comes from `evaluate --checkpoints`, over step, and seed or not. The relation alone answers where the
    divergence is at most `near` nats: `hallucinates_from` and `hallucinates_until` are the first and last such step
    (NaN: none). `relation_known` and `fact_known` are the first steps from which the part of the loss stays below half
    of what guessing costs, ln(R) / 2 and ln(D) / 2 (NaN: never). `share` is that of the steps between the former two
    among the steps until the fact is known, or among all if it never is (0 where there are none).
    """
    in_range("near", near, 0, np.inf)
    if "kl_relation" not in followed:
        raise InputError(
            "followed must be the trajectory of factual recall, with kl_relation; `evaluate --checkpoints` makes it"
        )
    step = followed.step
    close = followed.kl_relation <= near
    found = xr.Dataset(
        {
            "relation_known": threshold_onset(followed.loss_relation, np.log(n_relations) / 2, direction="fall").by,
            "fact_known": threshold_onset(followed.loss_subject, np.log(n_answers) / 2, direction="fall").by,
            "hallucinates_from": step.where(close).min("step"),
            "hallucinates_until": step.where(close).max("step"),
        },
        attrs={"unit": "steps; share: share of the steps until the fact is known", "near": near},
    )
    end = found.fact_known.fillna(step.max())
    lasts = (found.hallucinates_until - found.hallucinates_from).fillna(0)
    return found.assign(share=lasts / end.clip(min=1))


PATTERNS = ("own", "no noise", "mean", "uniform")
Rows = Float[Tensor, "batch head_index key"]


@torch.no_grad()
def attending(model: HookedModel, task: Task, *, n_each: int = 8, seed: int = 0) -> xr.DataArray:
    """The accuracy of a one-layer model with softmax attention on each fact, with the patterns of all heads replaced.

    It is over (pattern, subject, relation); each fact has `n_each` sequences with places and noise of their own.
    """
    task = facts_task(task)
    in_range("n_each", n_each, 1, np.inf)
    if model.cfg.n_layers != 1:
        raise InputError(f"patterns are replaced in models of one layer; this one has {model.cfg.n_layers}")
    batch = task.every_fact(n_each, generator=generator(seed, "attending"))
    own = layer_attention(model, 0, batch)[:, :, -1]
    shape = (n_each, task.n_subjects, task.n_relations)
    right = []
    for rows in _rows(own, batch).values():
        interventions = [] if rows is None else [_set(head, rows) for head in range(model.cfg.n_heads)]
        answers = run_with(model, batch, interventions, seed=seed)[:, -1, : task.d_vocab_out]
        right.append(metrics.is_correct(answers, batch.targets[:, -1]).double().view(shape).mean(0).numpy())
    return xr.DataArray(
        np.stack(right),
        dims=("pattern", "subject", "relation"),
        coords={"pattern": list(PATTERNS)},
        name="accuracy",
        attrs={"unit": "share", "n_each": n_each},
    )


def _rows(own: Rows, batch: Batch) -> dict[str, Rows | None]:
    """The attention of the query, by pattern; None: as in the model."""
    where = torch.stack([batch.latents[f"{kind}_pos"] for kind in ("subject", "relation")], -1)
    where = where[:, None].expand(-1, own.shape[1], 2)
    found = own.gather(-1, where)
    shares = found, found.mean(0, keepdim=True).expand_as(found)
    no_noise, mean = (torch.zeros_like(own).scatter(-1, where, each / each.sum(-1, keepdim=True)) for each in shares)
    uniform = torch.full_like(own, 1 / own.shape[-1])
    return dict(zip(PATTERNS, (None, no_noise, mean, uniform), strict=True))


def _set(head: int, rows: Rows) -> Intervention:
    """Sets what the query, the last position, attends to, and nothing else."""

    def pattern(batch: Batch) -> Float[Tensor, "batch query key"]:
        n_pos = batch.inputs.shape[1]
        found = torch.full((len(batch), n_pos, n_pos), torch.nan, dtype=rows.dtype)
        found[:, -1] = rows[:, head]
        return found

    mechanism = Mechanism(name=f"query of head {head}", pattern=pattern)
    return SetPattern(site=Site(kind="pattern", layer=0, head=head), mechanism=mechanism)


Removed = Literal["mean", "resample"]
ROUTES = ("both", "attention", "mlp", "neither")
STORES = ("attention", "mlp", "either", "only both", "neither")
"""Places of a fact: one route is enough, each of them is, it takes both, or it is not known."""


@torch.no_grad()
def routes(model: HookedModel, task: Task, *, n_each: int = 8, removed: Removed = "mean", seed: int = 0) -> xr.Dataset:
    """The accuracy of each route alone on each fact, in a model of one layer of heads and an MLP, or heads alone.

    `accuracy` is over (route, subject, relation), from `n_each` sequences of each fact. Route `both` is the model as it
    is, `attention` without the MLP, `mlp` without what heads add to the logits directly, `neither` without either.
    """
    task = facts_task(task)
    one_of("removed", removed, ("mean", "resample"))
    in_range("n_each", n_each, 1, np.inf)
    if model.cfg.n_layers != 1:
        raise InputError(f"routes are those of one layer; the model has {model.cfg.n_layers}")
    batch = task.every_fact(n_each, generator=generator(seed, "routes"))
    direct: list[Site | Edge] = [Edge(writer=Site(kind="z", layer=0, head=head)) for head in range(model.cfg.n_heads)]
    through: list[Site | Edge] = [] if model.cfg.attn_only else [Site(kind="mlp_out", layer=0)]
    taken = {"both": [], "attention": through, "mlp": direct, "neither": [*direct, *through]}
    source = Named(name="all facts", value=batch)
    shape = (n_each, task.n_subjects, task.n_relations)
    right = []
    for route in ROUTES:
        interventions = [_removal(removed, site, source) for site in taken[route]]
        answers = run_with(model, batch, interventions, seed=seed)[:, -1, : task.d_vocab_out]
        right.append(metrics.is_correct(answers, batch.targets[:, -1]).double().view(shape).mean(0).numpy())
    return xr.Dataset(
        {"accuracy": (("route", "subject", "relation"), np.stack(right))},
        coords={"route": list(ROUTES)},
        attrs={"unit": "share", "removed": removed, "n_each": n_each},
    )


def _removal(kind: Removed, site: Site | Edge, source: Named) -> Intervention:
    return Mean(site=site, source=source) if kind == "mean" else Resample(site=site, source=source)


def stores(found: xr.Dataset, *, enough: float = 0.5) -> xr.DataArray:
    """The share of the facts that each place stores, from `routes`; accuracy `enough` makes a fact answered.

    Over store (`STORES`): facts for which that route alone is enough, either is, both are needed, and those not
    answered at all. The shares add up to one.
    """
    in_range("enough", enough, 0, 1)
    whole, attention, mlp = (found.accuracy.sel(route=route, drop=True) >= enough for route in ROUTES[:3])
    kinds = {
        "attention": attention & ~mlp,
        "mlp": mlp & ~attention,
        "either": attention & mlp,
        "only both": whole & ~attention & ~mlp,
        "neither": ~whole & ~attention & ~mlp,
    }
    shares = [kinds[name].mean(("subject", "relation")) for name in STORES]
    return xr.concat(shares, xr.DataArray(list(STORES), dims="store", name="store")).rename("share")


MEMORIES = ("OV", "MLP", "both")


@torch.no_grad()
def fact_memories(model: HookedModel, task: Task, *, n_each: int = 8, seed: int = 0) -> xr.Dataset:
    """The share of the facts that the weights of a one-layer model without LayerNorm recall.

    Attention is averaged over `n_each` sequences of each fact. Over memory (without an MLP only OV): `recall`;
    `permuted`, the same for permuted answers; `chance`.
    """
    task = facts_task(task)
    if model.cfg.n_layers != 1 or model.cfg.normalization_type is not None:
        raise InputError("memories of facts are read from models of one layer without normalisation")
    written = _written(model, task, n_each, seed)
    inputs, matrices = {"OV": written}, {"OV": torch.eye(written.shape[1]).to(written)}
    if not model.cfg.attn_only:
        before = written @ weight_matrix(model, ParamSite(name="W_in", layer=0)) + mlp_block(model, 0).mlp.b_in
        hidden, out = before.relu(), weight_matrix(model, ParamSite(name="W_out", layer=0))
        inputs |= {"MLP": hidden, "both": torch.cat((written, hidden), 1)}
        matrices |= {"MLP": out, "both": torch.cat((matrices["OV"], out))}
    answers = embedding_vectors(model, "W_U", list(task.answers))
    found = []
    for name in inputs:
        association = Association(name=name, inputs=inputs[name], outputs=answers, targets=task.table().flatten())
        found.append(recall_score(matrices[name], association, seed=seed)[["recall", "permuted", "chance"]])
    result = xr.concat(found, xr.DataArray(list(inputs), dims="memory", name="memory"))
    assert isinstance(result, xr.Dataset)
    return result


def _written(model: HookedModel, task: FactualRecall, n_each: int, seed: int) -> Float[Tensor, "fact d_model"]:
    """The sum of what all heads write at the query of each fact, noise aside; subject by subject."""
    batch = task.every_fact(n_each, generator=generator(seed, "fact memories"))
    name = "blocks.0.attn.hook_pattern"
    pattern = model.run_with_cache(batch.inputs, names_filter=name)[1][name][:, :, -1].double()
    written = torch.zeros(task.n_subjects, task.n_relations, model.cfg.d_model, dtype=torch.double)
    for kind, size, axis in (("subject", task.n_subjects, 1), ("relation", task.n_relations, 0)):
        place = batch.latents[f"{kind}_pos"][:, None, None].expand(-1, model.cfg.n_heads, 1)
        each = pattern.gather(-1, place).view(n_each, task.n_subjects, task.n_relations, -1).mean(0)
        first = task.first[kind]
        vectors = embedding_vectors(model, "W_E", list(range(first, first + size)))
        for head in range(model.cfg.n_heads):
            moved = vectors @ weight_product(model, "OV", layer=0, head=head)
            written += each[..., head, None] * moved.unsqueeze(axis)
    return written.flatten(0, 1)


WIDTHS = (8, 11, 16, 23, 32)
WITHOUT_MLP = (16, 23, 32, 45)
"""Widths of models without an MLP: smaller ones hardly learn anything."""
N_HEADS = 4
ALPHA, BETA = 2.0, 2.0
"""With an MLP: heads of width d/2 and 2 d neurons, 12 d² parameters. Without one heads have width d: 16 d²."""
FACTS = SizeSearch(fields=("task.n_subjects", "task.n_relations"), between=(3, 48), per_octave=4)
TRAINING = {
    "recipe.n_steps": 2**11,
    "recipe.batch_size": 256,
    "recipe.stop_at": 0.99,
    "recipe.checkpoint_steps": (),
    "task.n_noise": 32,
}


def scaling_sweep(
    draws: Sequence[int], *, mlp: bool, widths: Sequence[int] | None = None, learning_rate: float = 1e-2
) -> Sweep:
    """The sweep that is searched; widths are by default `WIDTHS`, without an MLP `WITHOUT_MLP`; draws are seeds."""
    if widths is None:
        widths = WIDTHS if mlp else WITHOUT_MLP
    axis = tuple(_sizes(width, mlp) for width in widths)
    changes = {**TRAINING, "model.n_heads": N_HEADS, "model.mlp": mlp, "recipe.learning_rate": learning_rate}
    return Sweep(preset="facts", seeds=tuple(draws), axes={"width": axis}, changes=changes, largest=FACTS)


def _sizes(width: int, mlp: bool) -> dict[str, int]:
    alpha = ALPHA if mlp else N_HEADS
    return {"model.d_model": width, "model.d_head": round(alpha * width / N_HEADS), "model.d_mlp": round(BETA * width)}


def capacity(sweep: Sweep, out: Path | None = None, *, jobs: int = 1) -> xr.Dataset:
    """The largest number of facts, S R, over (width, draw), and `parameters` over width, counted as in the paper.

    A search continues from the runs in `out`; without a directory its runs are deleted.
    """
    with TemporaryDirectory() as directory:
        found = search_sweep(sweep, Path(directory) if out is None else out, jobs=jobs).rename(seed="draw")
    return xr.Dataset({"facts": found.largest**2, "parameters": n_parameters(sweep)}, attrs=found.attrs)


def n_parameters(sweep: Sweep) -> xr.DataArray:
    """The parameters over width, as they are counted in the paper: embeddings and biases are left out."""
    models = [sweep.spec(cell, sweep.seeds[0]).model for cell in sweep.cells().values()]
    counted = [4 * m.n_heads * m.head_width * m.d_model + 2 * m.mlp * m.mlp_width * m.d_model for m in models]
    return xr.DataArray(counted, dims="width", coords={"width": [m.d_model for m in models]}, name="parameters")


def exponents(found: xr.Dataset) -> xr.DataArray:
    """The exponent b of S R ∝ P^b by draw, from `capacity` over at least two widths: least squares on logarithms.

    NaN where some width learns not even the least number of facts.
    """
    if found.sizes["width"] < 2:
        raise InputError(f"an exponent needs at least two widths; got {found.sizes['width']}")
    logs = np.log(found.facts.where(found.facts > 0)).transpose("width", "draw")
    size = np.log(found.parameters)
    size = size - size.mean()
    return ((logs * size).sum("width", skipna=False) / (size**2).sum()).rename("exponent")
