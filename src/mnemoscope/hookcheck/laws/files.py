"""Precision and files: fewer digits give the same answers within a bound, and copies and files give the same model."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mnemoscope.hookcheck.law import Family
from mnemoscope.hookcheck.mutants import Faulty, shows
from mnemoscope.hookcheck.precision import in_precision
from mnemoscope.interventions.comparison import Comparison
from mnemoscope.interventions.subject import TestSubject

FAMILY = Family(name="files", analyses=("patch", "heads", "neurons"))
_BOUNDS = {torch.float32: 1e-4, torch.bfloat16: 0.15}


def _log_probs(logits: Tensor) -> Tensor:
    return logits.double().log_softmax(-1)


def _agrees(subject: TestSubject, *, dtype: torch.dtype) -> Iterator[Comparison]:
    wanted = _log_probs(in_precision(subject, torch.float64).run(reads=()).logits)
    got = _log_probs(in_precision(subject, dtype).run(reads=()).logits)
    yield Comparison(point="logits", got=got, wanted=wanted, tolerance=_BOUNDS[dtype])


def _coarse(dtype: torch.dtype, step: float) -> Any:
    """A model that rounds its logits to multiples of `step` in one precision."""
    return lambda good: Faulty(good, output=lambda x: (x / step).round() * step if x.dtype == dtype else x)


for _dtype, _bound in _BOUNDS.items():
    _name = str(_dtype).removeprefix("torch.")
    FAMILY.add(
        f"{_name}-agrees-with-float64",
        f"Log-probabilities in {_name} are those in float64, within {_bound:g} of the largest.",
        partial(_agrees, dtype=_dtype),
        reason="A constant that is rounded, or a table in half precision, moves every number by more than rounding.",
        mutant=_coarse(_dtype, 0.05 if _dtype == torch.float32 else 4.0),
    )


@FAMILY.law(
    reason="Metrics are formed in the precision of the logits.",
    mutant=lambda good: Faulty(good, output=lambda logits: logits.to(torch.bfloat16)),
)
def logits_have_the_precision_of_the_weights(subject: TestSubject) -> Iterator[Comparison]:
    """Logits and the stream come in the precision of the weights, or a higher one."""
    bits = min(torch.finfo(w.dtype).bits for _, w in subject.model.named_parameters() if w.is_floating_point())
    for point, x in (("logits", subject.clean.logits), *subject.clean.at.items()):
        if "resid" in point or point == "logits":
            low = torch.finfo(x.dtype).bits < bits
            yield Comparison(point=point, got=torch.tensor(1 + low), wanted=torch.tensor(1), exact=True)


class _OtherConfiguration(Faulty):
    """The configuration names a precision that the weights do not have."""

    @property
    def cfg(self) -> Any:
        made = copy.copy(self.good.cfg)
        made.dtype = torch.float16
        return made


@FAMILY.law(
    reason="Budgets and tolerances follow from the configuration.",
    mutant=_OtherConfiguration,
)
def the_configuration_names_the_precision(subject: TestSubject) -> Iterator[Comparison]:
    """The precision in the configuration is that of the weights."""
    first = next(weight for _, weight in subject.model.named_parameters() if weight.is_floating_point())
    other = getattr(subject.cfg, "dtype", first.dtype) != first.dtype
    yield Comparison(point="cfg.dtype", got=torch.tensor(1 + other), wanted=torch.tensor(1), exact=True)


def _scrambled(subject: TestSubject) -> Any:
    """A copy of the model with other weights."""
    made = subject.call(lambda: copy.deepcopy(subject.model))
    for _, weight in made.named_parameters():
        weight.data = weight.data * 0.5 + 0.1
    return made


def _run(subject: TestSubject, model: Any) -> Tensor:
    """Logits of another model on the prompts."""
    return replace(subject, model=model, memory={}).run(reads=()).logits


class _SavesRounded(Faulty):
    """The saved state is rounded."""

    def state_dict(self) -> dict[str, Tensor]:
        return {name: x.to(torch.bfloat16).to(x) for name, x in self.good.state_dict().items()}


@FAMILY.law(
    reason="Checkpoints are read to be analysed: they have to be the model that was trained.",
    mutant=_SavesRounded,
)
def a_saved_state_gives_the_same_model(subject: TestSubject) -> Iterator[Comparison]:
    """A copy with other weights that loads the saved state gives the same logits, bit for bit."""
    if not hasattr(subject.model, "state_dict"):
        subject.skip("the model has no state to save")
    from safetensors.torch import load, save

    state = subject.call(lambda: subject.model.state_dict())
    tensors = {name: x.detach().clone().contiguous() for name, x in state.items() if isinstance(x, Tensor)}
    other = _scrambled(subject)
    subject.call(lambda: other.load_state_dict(load(save(tensors))))
    yield Comparison(point="logits", got=_run(subject, other), wanted=subject.run(reads=()).logits, exact=True)


class _SharesWeights(Faulty):
    """A copy is the model itself."""

    def __deepcopy__(self, memo: Any) -> "_SharesWeights":
        return _SharesWeights(self.good)


@FAMILY.law(
    reason="Controls with other weights are made from copies; the model itself has to stay as it is.",
    mutant=lambda good: _SharesWeights(copy.deepcopy(good)),
)
def a_copy_is_a_model_of_its_own(subject: TestSubject) -> Iterator[Comparison]:
    """A copy gives the same logits; other weights in it change its logits, and not those of the model."""
    before = subject.run(reads=()).logits
    exact = subject.call(lambda: copy.deepcopy(subject.model))
    yield Comparison(point="copy", got=_run(subject, exact), wanted=before, exact=True)
    other = _run(subject, _scrambled(subject))
    moved = (other - before).abs().max() > subject.tolerance * before.abs().max()
    yield Comparison(point="weights of the copy", got=1 + moved.cpu().int(), wanted=torch.tensor(2), exact=True)
    yield Comparison(point="model", got=subject.run(reads=()).logits, wanted=before, exact=True)


class _FoldsBadly(Faulty):
    """Processing changes the last bias."""

    def process_weights_(self, **options: Any) -> None:
        self.good.process_weights_(**options)
        self._output = lambda logits: logits * 1.01


@FAMILY.law(
    reason="Weights are folded and centred to be read; the model must stay the same function.",
    mutant=_FoldsBadly,
)
def processed_weights_give_the_same_predictions(subject: TestSubject) -> Iterator[Comparison]:
    """With norms folded and weights centred, log-probabilities stay."""
    if not hasattr(subject.model, "process_weights_"):
        subject.skip("the model has no processing of weights")
    made = subject.call(lambda: copy.deepcopy(subject.model))
    pattern = subject.clean.at.get("blocks.0.attn.hook_pattern")
    if pattern is not None and not torch.allclose(pattern.sum(-1), torch.ones_like(pattern[..., 0]), atol=1e-4):
        subject.skip("biases of values are folded as if every query spread a weight of one")
    centred = str(subject.cfg.normalization_type).startswith("LN")
    capped = (getattr(subject.cfg, "output_logits_soft_cap", None) or 0) > 0
    options = {"fold_ln": True, "center_writing_weights": centred, "center_unembed": not capped}
    subject.call(lambda: made.process_weights_(**options))
    wanted = _log_probs(subject.clean.logits)
    yield Comparison(point="logits", got=_log_probs(_run(subject, made)), wanted=wanted)


@FAMILY.law(
    reason="Explained variance and norms of directions are read off normalised rows; a wrong scale moves them unseen.",
    mutant=shows("ln_final.hook_normalized", lambda row: row / 1.1),
    threads=("SAELens #710", "TransformerLens #1527"),
)
def normalised_rows_have_unit_variance(subject: TestSubject) -> Iterator[Comparison]:
    """Before its gain, a normalised row has a mean square of one, up to the epsilon of the norm."""
    name = "ln_final.hook_normalized"
    if name not in subject.clean.at or str(subject.cfg.normalization_type) not in ("LN", "LNPre", "RMS", "RMSPre"):
        subject.skip("the model does not show its last norm")
    squares = subject.clean.at[name].square().mean(-1)
    yield Comparison(point=name, got=squares, wanted=torch.ones_like(squares), tolerance=0.02)
