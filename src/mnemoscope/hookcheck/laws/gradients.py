"""Gradients: derivatives at hook points and of weights are those that differences of runs show, in double precision."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mnemoscope.core.protocols import evaluation_mode
from mnemoscope.hookcheck.law import Family
from mnemoscope.hookcheck.mutants import Faulty, writes_are
from mnemoscope.hookcheck.precision import in_precision
from mnemoscope.interventions.comparison import Comparison
from mnemoscope.interventions.subject import TestSubject

FAMILY = Family(name="gradients", analyses=("discover", "edges"))
_STEPS = (1e-5, 1e-4, 1e-3)
"""Lengths of differences, of which the best counts: short ones round where a model computes in float32, and long ones
go past the corners of a ReLU.
"""
_TOLERANCE = 2e-2
"""Plain modules that round so differ by up to .013."""
_N_STEPS = 12
"""Gradients on the way from one activation to another; their sum misses the difference by less than a hundredth."""


def _steeper(x: Tensor) -> Tensor:
    """The same value, with a gradient that is a tenth too large."""
    return x + 0.1 * (x - x.detach()).nan_to_num() if x.requires_grad else x


def _steeper_writes(kind: str) -> Callable[[Any], Any]:
    return writes_are(kind, lambda old, new: _steeper(new))


def _logits(subject: TestSubject, leaves: Mapping[str, Tensor]) -> Tensor:
    """Logits with a graph from values that are written at hook points."""
    hooks = [(name, lambda x, hook, leaf=leaf: leaf) for name, leaf in leaves.items()]
    with torch.enable_grad(), evaluation_mode(subject.model):
        return subject.call(lambda: subject.model.run_with_hooks(subject.tokens, fwd_hooks=hooks))


def _gradient(subject: TestSubject, point: str, value: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of a fixed linear function of the logits at a value of a hook point, and the function's weights."""
    leaf = value.detach().clone().requires_grad_()
    logits = _logits(subject, {point: leaf})
    weights = subject.noise(logits, 1)
    found = torch.autograd.grad((logits * weights).sum(), leaf, allow_unused=True)[0] if logits.requires_grad else None
    return (torch.zeros_like(leaf) if found is None else found.nan_to_num()), weights


def _by_difference(subject: TestSubject, point: str) -> Comparison:
    """The derivative at a hook point along a random direction, beside the difference of two runs."""
    value = subject.clean.at[point]
    gradient, weights = _gradient(subject, point, value)
    along = torch.where(value.isfinite(), subject.noise(value), 0)

    def moved(by: float) -> Tensor:
        return subject.run(writes={point: value + by * along}, reads=()).logits

    return _derivative(point, gradient, along, weights, moved)


def _derivative(
    point: str, gradient: Tensor, along: Tensor, weights: Tensor, moved: Callable[[float], Tensor]
) -> Comparison:
    """A gradient along a direction beside differences of logits, of which the best counts."""
    size = (gradient.square().sum() * along.square().mean()).sqrt()  # by chance the derivative itself may be small
    found = []
    for step in _STEPS:
        wanted = ((moved(step) - moved(-step)) * weights).sum() / (2 * step)
        got = ((gradient * along).sum() + size)[None]
        found.append(Comparison(point=point, got=got, wanted=(wanted + size)[None], tolerance=_TOLERANCE))
    return min(found, key=lambda each: each.amount)


def _derivatives(subject: TestSubject, *, kinds: tuple[str, ...]) -> Iterator[Comparison]:
    subject = in_precision(subject, torch.float64)
    for kind in kinds:
        for layer in subject.layers_of(kind):
            yield _by_difference(subject, subject.point(kind, layer))


_GROUPS = {
    "embeddings": (("embed", "pos_embed"), "embed"),
    "streams": (("resid_pre", "resid_mid", "resid_post"), "resid_post"),
    "outputs": (("attn_out", "mlp_out"), "attn_out"),
    "heads": (("q", "k", "v", "z"), "z"),
    "patterns": (("scores", "pattern"), "pattern"),
    "neurons": (("pre", "post"), "post"),
}
for _name, (_kinds, _faulty) in _GROUPS.items():
    FAMILY.add(
        f"derivatives-at-{_name}",
        f"The derivative of the logits at {', '.join(_kinds)} is the quotient of small differences.",
        partial(_derivatives, kinds=_kinds),
        reason="Attribution patching multiplies gradients by differences of activations.",
        mutant=_steeper_writes(_faulty),
    )


@FAMILY.law(
    reason="Training under an intervention, and attribution of weights, differentiate by parameters.",
    mutant=lambda good: Faulty(good, output=_steeper),
)
def derivatives_of_weights(subject: TestSubject) -> Iterator[Comparison]:
    """The derivative of the logits by a weight is the quotient of small differences."""
    subject = in_precision(subject, torch.float64, fresh=True)
    named = [(name, weight) for name, weight in subject.model.named_parameters() if weight.ndim > 1][:3]
    for name, weight in named:
        kept, before = weight.requires_grad, weight.data
        weight.requires_grad_(True)
        logits = _logits(subject, {})
        weights, along = subject.noise(logits, 1), subject.noise(weight).detach()
        total = (logits * weights).sum()
        gradient = torch.autograd.grad(total, weight, allow_unused=True)[0] if total.requires_grad else None
        weight.requires_grad_(kept)

        def moved(by: float, weight: Tensor = weight, before: Tensor = before, along: Tensor = along) -> Tensor:
            weight.data = before + by * along
            return subject.run(reads=()).logits

        gradient = torch.zeros_like(before) if gradient is None else gradient
        yield _derivative(name, gradient, along, weights, moved)
        weight.data = before


def _mixed(logits: Tensor) -> Tensor:
    """The same values, whose gradients leak into the next row."""
    other = logits.roll(1, 0)
    return logits + 0.1 * (other - other.detach())


@FAMILY.law(
    reason="Gradients of all prompts come from one pass; each prompt's may not hold another's.",
    mutant=lambda good: Faulty(good, output=_mixed),
)
def the_gradient_of_a_row_is_its_own(subject: TestSubject) -> Iterator[Comparison]:
    """The logits of the first row have no gradient at the activations of other rows."""
    if len(subject.tokens) < 2:
        subject.skip("prompts have one row")
    subject = in_precision(subject, torch.float64)
    point = subject.point("resid_pre", subject.require("resid_pre")[0])
    leaf = subject.clean.at[point].clone().requires_grad_()
    logits = _logits(subject, {point: leaf})
    (gradient,) = torch.autograd.grad((logits[0] * subject.noise(logits[0], 1)).sum(), leaf)
    size = gradient.abs().max()
    yield Comparison(point=point, got=gradient[1:] + size, wanted=torch.zeros_like(gradient[1:]) + size)


@FAMILY.law(
    reason="Integrated gradients (EAP-IG) add up to the whole difference; a wrong gradient shows in what is missing.",
    mutant=_steeper_writes("resid_post"),
)
def integrated_gradients_add_up(subject: TestSubject) -> Iterator[Comparison]:
    """Gradients integrated from the prompts' stream to the donors' add up to the difference of the logits."""
    subject = in_precision(subject, torch.float64)
    point = subject.point("resid_post", subject.require("resid_post")[-1])
    start, end = subject.clean.at[point], subject.donor.at[point]
    share, weight = _gauss_legendre(_N_STEPS)
    ends = [subject.run(writes={point: value}, reads=()).logits for value in (start, end)]
    weights = subject.noise(ends[0], 1)
    total = torch.zeros((), dtype=torch.float64, device=start.device)
    for place, width in zip(share, weight, strict=True):
        gradient, _ = _gradient(subject, point, start + place * (end - start))
        total = total + width * (gradient * (end - start)).sum()
    wanted = ((ends[1] - ends[0]) * weights).sum()
    size = ((ends[1] - ends[0]) * weights).abs().sum()
    yield Comparison(point=point, got=(total + size)[None], wanted=(wanted + size)[None], tolerance=0.01)


def _gauss_legendre(n: int) -> tuple[list[float], list[float]]:
    """Places and widths of a quadrature on the interval from 0 to 1."""
    import numpy as np

    places, widths = np.polynomial.legendre.leggauss(n)
    return ((places + 1) / 2).tolist(), (widths / 2).tolist()


@FAMILY.law(
    reason="Where logits are linear in a part, attribution patching has to equal patching; no excuse is left.",
    mutant=_steeper_writes("z"),
    threads=("TransformerLens #1787",),
)
def attribution_is_exact_where_logits_are_linear(subject: TestSubject) -> Iterator[Comparison]:
    """Without norms, gradient times difference at z of the last layer is the effect of patching it."""
    cfg = subject.cfg
    if cfg.normalization_type is not None or not cfg.attn_only:
        subject.skip("logits are not linear in z: there are norms or MLPs")
    subject = in_precision(subject, torch.float64)
    point = subject.point("z", subject.require("z")[-1])
    difference = subject.donor.at[point] - subject.clean.at[point]
    gradient, weights = _gradient(subject, point, subject.clean.at[point])
    patched = subject.run(writes={point: subject.donor.at[point]}, reads=()).logits
    wanted = ((patched - subject.clean.logits) * weights).sum((1, 2))
    yield Comparison(point=point, got=(gradient * difference).flatten(1).sum(1), wanted=wanted)


class _SplitsBadly(Faulty):
    """With separate inputs of queries, keys and values the logits are others."""

    def set_use_split_qkv_input(self, use: bool) -> None:
        self.good.set_use_split_qkv_input(use)
        self._output = lambda logits: 1.01 * logits


def _split(subject: TestSubject) -> TestSubject:
    """The model with separate inputs of queries, keys and values; the law says nothing about models without."""
    if not hasattr(subject.model, "set_use_split_qkv_input"):
        subject.skip("the model has no separate inputs of queries, keys and values")
    split = in_precision(subject, torch.float64, fresh=True)
    split.call(lambda: split.model.set_use_split_qkv_input(True))
    return split


@FAMILY.law(
    reason="Edges by q, k and v are measured with the inputs split; the model must be the same one.",
    mutant=_SplitsBadly,
)
def split_inputs_change_no_logits(subject: TestSubject) -> Iterator[Comparison]:
    """With separate inputs of queries, keys and values for each head, the logits stay."""
    split = _split(subject).run(reads=()).logits
    yield Comparison(point="logits", got=split, wanted=in_precision(subject, torch.float64).run(reads=()).logits)


@FAMILY.law(
    reason="EAP gives each edge the gradient at its own input; together they are the gradient of attention's input.",
    mutant=writes_are("hook_q_input", lambda old, new: new - 0.1 * (old - old.detach())),
)
def gradients_at_split_inputs_add_up(subject: TestSubject) -> Iterator[Comparison]:
    """The gradients at the inputs of queries, keys and values, of all heads or groups, add up to that at the stream."""
    split = _split(subject)
    layer = split.require("resid_pre")[-1]
    if getattr(split.model.hook_dict[f"blocks.{layer}.hook_resid_pre"], "name", "") != f"blocks.{layer}.hook_resid_pre":
        subject.skip("the classic names are aliases, for which the check gives false alarms")
    stream = split.clean.at[f"blocks.{layer}.hook_resid_pre"]
    ends = ("hook_resid_pre", *(f"hook_{kind}_input" for kind in "qkv"))
    added = {end: torch.zeros((), dtype=torch.float64).requires_grad_() for end in ends}
    whole = torch.zeros_like(stream).requires_grad_()
    seen: dict[str, Tensor] = {}

    def add(x: Tensor, hook: Any, *, end: str) -> Tensor:
        added[end] = torch.zeros_like(x).requires_grad_()
        return x + added[end]

    hooks: list[Any] = [(f"blocks.{layer}.{end}", partial(add, end=end)) for end in ends[1:]]
    hooks.append((f"blocks.{layer}.hook_attn_out", lambda x, hook: seen.update(out=x)))
    hooks.append((f"blocks.{layer}.hook_resid_pre", lambda x, hook: x + whole))
    with torch.enable_grad(), evaluation_mode(split.model):
        split.call(lambda: split.model.run_with_hooks(split.tokens, fwd_hooks=hooks))
    total = (seen["out"] * split.noise(seen["out"], 1)).sum()
    by_input = torch.autograd.grad(total, [added[end] for end in ends[1:]], retain_graph=True)
    (at_stream,) = torch.autograd.grad(total, whole)
    summed = torch.stack([gradient.sum(2) for gradient in by_input]).sum(0)
    yield Comparison(point=f"blocks.{layer}.hook_q_input", got=summed, wanted=at_stream)
