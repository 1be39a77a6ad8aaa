"""Scope: a run leaves the model, its inputs and the process as they were, also after an exception."""

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from mnemoscope.core.protocols import evaluation_mode
from mnemoscope.hookcheck.law import Family
from mnemoscope.hookcheck.mutants import Faulty
from mnemoscope.interventions.comparison import Comparison
from mnemoscope.interventions.subject import TestSubject

FAMILY = Family(name="scope", analyses=("patch", "ablate", "edges"))


def _marks(values: Any) -> Tensor:
    """Truth values, or small numbers, as a tensor to compare."""
    return torch.tensor([float(value) for value in values]) + 1


def _modules(model: Any) -> list[nn.Module]:
    """All modules of a model, and of the one that it is built on."""
    roots = (getattr(model, "good", model), getattr(model, "original_model", None))
    found = {id(part): part for root in roots if isinstance(root, nn.Module) for part in root.modules()}
    return [*found.values()]


def _stays(point: str, before: Any, after: Any) -> Comparison:
    return Comparison(point=point, got=_marks(after), wanted=_marks(before), exact=True)


def _use(subject: TestSubject, *, grad: bool = False) -> None:
    """Run the model as analyses do: a call, a run with a write, and a run with a cache."""
    point = subject.point("resid_pre", subject.require("resid_pre")[0])
    tokens, model = subject.tokens.clone(), subject.model
    with torch.set_grad_enabled(grad):
        subject.call(lambda: model(tokens))
        subject.call(lambda: model.run_with_hooks(tokens, fwd_hooks=[(point, lambda x, hook: x * 0.5)]))
        subject.call(lambda: model.run_with_cache(tokens, names_filter=lambda name: name == point))


def leaves_behind(act: Callable[[Any], object]) -> Callable[[Any], Any]:
    """A model that does something to itself, or to the process, at each run with hooks."""

    class Leaves(Faulty):
        def run_with_hooks(self, inputs: Tensor, fwd_hooks: Any = (), **options: Any) -> Tensor:
            logits = super().run_with_hooks(inputs, fwd_hooks=fwd_hooks, **options)
            act(self.good)
            return logits

    return lambda good: Leaves(copy.deepcopy(good))


def _put_hook(model: Any) -> None:
    point = next(point for name, point in model.hook_dict.items() if name.endswith("hook_resid_post"))
    point.register_forward_hook(lambda module, given, output: output * 1.01)


@FAMILY.law(
    reason="A hook that stays acts in every later run, and no result says so.",
    mutant=leaves_behind(_put_hook),
    threads=("nnsight #607",),
)
def hooks_are_gone_after_a_run(subject: TestSubject) -> Iterator[Comparison]:
    """After a run with hooks the model gives its logits from before, and has as many hooks."""
    before = subject.run(reads=()).logits
    hooks = [len(part._forward_hooks) for part in _modules(subject.model)]
    _use(subject)
    yield _stays("hooks", hooks, [len(part._forward_hooks) for part in _modules(subject.model)])
    yield Comparison(point="logits", got=subject.run(reads=()).logits, wanted=before, exact=True)


class _KeepsHooksOfErrors(Faulty):
    """Hooks of a run that ended in an exception stay."""

    def run_with_hooks(self, inputs: Tensor, fwd_hooks: Any = (), **options: Any) -> Tensor:
        try:
            return super().run_with_hooks(inputs, fwd_hooks=fwd_hooks, **options)
        except Exception:
            _put_hook(self.good)
            raise


class _OnPurposeError(Exception):
    pass


@FAMILY.law(
    reason="An interrupted analysis in a notebook would spoil all that follow.",
    mutant=lambda good: _KeepsHooksOfErrors(copy.deepcopy(good)),
)
def hooks_are_gone_after_an_exception(subject: TestSubject) -> Iterator[Comparison]:
    """After a run in which a hook raised an exception the model gives its logits from before."""
    before = subject.run(reads=()).logits
    streams = [subject.point("resid_pre", layer) for layer in subject.require("resid_pre")]

    def fail(activation: Tensor, hook: Any) -> Tensor:
        raise _OnPurposeError

    hooks = [(streams[0], lambda activation, hook: 2 * activation), (streams[-1], fail)]
    with suppress(_OnPurposeError), torch.no_grad():
        subject.model.run_with_hooks(subject.tokens, fwd_hooks=hooks)
    yield Comparison(point=streams[0], got=subject.run(reads=()).logits, wanted=before, exact=True)


class _ClearsHooks(Faulty):
    """Every run with hooks begins with the removal of all that are there."""

    def run_with_hooks(self, inputs: Tensor, fwd_hooks: Any = (), **options: Any) -> Tensor:
        for point in self.good.hook_dict.values():
            point._forward_hooks.clear()
        return super().run_with_hooks(inputs, fwd_hooks=fwd_hooks, **options)


@FAMILY.law(
    reason="Analyses take a model with the user's own hooks on it, such as an ablation, as the model.",
    mutant=lambda good: _ClearsHooks(copy.deepcopy(good)),
)
def a_hook_that_was_there_stays_and_acts(subject: TestSubject) -> Iterator[Comparison]:
    """A hook on a point before a run acts in this run as a hook of the run would, and is there afterwards."""
    layer = subject.require("resid_post")[0]
    point = subject.point("resid_post", layer)
    wanted = subject.run(writes={point: lambda x: 0.5 * x}, reads=()).logits
    module = subject.model.hook_dict[point]
    handle = module.register_forward_hook(lambda _, given, output: 0.5 * output)
    try:
        for _ in range(2):
            yield Comparison(point=point, got=subject.run(reads=()).logits, wanted=wanted)
    finally:
        handle.remove()


@FAMILY.law(
    reason="Analyses read sizes and switches from the configuration; a run may not turn one on.",
    mutant=leaves_behind(lambda model: setattr(model.cfg, "eps", 2 * model.cfg.eps)),
)
def the_configuration_stays(subject: TestSubject) -> Iterator[Comparison]:
    """Runs leave every field of the configuration as it was."""
    before = {name: str(value) for name, value in vars(subject.cfg).items()}
    _use(subject)
    after = {name: str(value) for name, value in vars(subject.cfg).items()}
    for name in before:
        if after.get(name) != before[name]:
            yield _stays(f"cfg.{name}", [0], [1])
    yield _stays("cfg", [0], [0])


@FAMILY.law(
    reason="A draw from the global generator moves the user's own sampling and training.",
    mutant=leaves_behind(lambda model: torch.rand(1, dtype=torch.float32)),
)
def the_global_generator_stays(subject: TestSubject) -> Iterator[Comparison]:
    """Runs in evaluation mode draw nothing from the global generator, and do not seed it."""
    before = torch.get_rng_state()
    try:
        with evaluation_mode(subject.model):
            _use(subject)
        after = torch.get_rng_state()
    finally:
        torch.set_rng_state(before)
    yield Comparison(point="generator", got=after, wanted=before, exact=True)


@FAMILY.law(
    reason="With gradients off training stops without a word; with gradients on memory fills.",
    mutant=leaves_behind(lambda model: torch.set_grad_enabled(not torch.is_grad_enabled())),
)
def the_gradient_mode_stays(subject: TestSubject) -> Iterator[Comparison]:
    """Runs leave the gradient mode as it was, on or off."""
    point = subject.point("resid_pre", subject.require("resid_pre")[0])
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            subject.call(lambda: subject.model.run_with_hooks(subject.tokens, fwd_hooks=[(point, lambda x, hook: x)]))
            after = torch.is_grad_enabled()
        yield _stays("gradient mode", [grad], [after])


def _scale_weights(model: Any) -> None:
    for _, weight in model.named_parameters():
        weight.data *= 1.001


@FAMILY.law(
    reason="Weights that change under an analysis change every later number.",
    mutant=leaves_behind(_scale_weights),
)
def weights_stay(subject: TestSubject) -> Iterator[Comparison]:
    """Runs leave every parameter and buffer as it was."""

    def sums() -> list[float]:
        named = [*subject.model.named_parameters()]
        return [float(x.detach().double().nan_to_num(posinf=1, neginf=-1).sum()) for _, x in named]

    before = sums()
    _use(subject)
    yield _stays("parameters", before, sums())


def _unfreeze(model: Any) -> None:
    for _, weight in model.named_parameters():
        weight.requires_grad_(not weight.requires_grad)


@FAMILY.law(
    reason="Training under an intervention trains only what takes gradients.",
    mutant=leaves_behind(_unfreeze),
)
def what_takes_gradients_stays(subject: TestSubject) -> Iterator[Comparison]:
    """Runs leave it as it was which parameters take gradients."""
    before = [weight.requires_grad for _, weight in subject.model.named_parameters()]
    _use(subject)
    yield _stays("parameters", before, [weight.requires_grad for _, weight in subject.model.named_parameters()])


@FAMILY.law(
    reason="A model that is rounded on the way gives other numbers for the rest of the session.",
    mutant=leaves_behind(lambda model: nn.Module.to(model, torch.float32)),
)
def device_and_precision_stay(subject: TestSubject) -> Iterator[Comparison]:
    """Runs leave the device and the precision of every parameter as they were."""

    def places() -> list[tuple[torch.device, torch.dtype]]:
        return [(weight.device, weight.dtype) for _, weight in subject.model.named_parameters()]

    before = places()
    with torch.no_grad():
        subject.call(lambda: subject.model.run_with_hooks(subject.tokens, fwd_hooks=[]))
    same = [one == other for one, other in zip(before, places(), strict=True)]
    yield _stays("parameters", [True] * len(before), same)


@FAMILY.law(
    reason="Analyses of a model in training would turn its dropout off, or leave it on.",
    mutant=leaves_behind(lambda model: model.train(not model.training)),
)
def the_training_mode_stays(subject: TestSubject) -> Iterator[Comparison]:
    """Runs leave each module in the mode, training or evaluation, in which it was."""
    modules = _modules(subject.model)
    if not modules:
        subject.skip("the model is no torch module and has no modes")
    before = [part.training for part in modules]
    try:
        for training in (True, False):
            for part in modules:
                part.training = training
            with torch.random.fork_rng(devices=[]):
                _use(subject)
            yield _stays("modes", [training] * len(modules), [part.training for part in modules])
    finally:
        for part, training in zip(modules, before, strict=True):
            part.training = training


class _ShiftsInputs(Faulty):
    """The tokens are changed in place."""

    def run_with_hooks(self, inputs: Tensor, fwd_hooks: Any = (), **options: Any) -> Tensor:
        logits = super().run_with_hooks(inputs, fwd_hooks=fwd_hooks, **options)
        inputs[:, -1] = 0 if inputs[0, -1].abs().sum() else 1
        return logits


@FAMILY.law(
    reason="The same batch goes through many runs; a batch that changes is another one.",
    mutant=_ShiftsInputs,
)
def inputs_stay(subject: TestSubject) -> Iterator[Comparison]:
    """Runs leave the tensor of tokens as it was."""
    given = subject.tokens.clone()
    subject.run(given, reads=())
    yield Comparison(point="inputs", got=given, wanted=subject.tokens, exact=True)


class _AddsInPlace(Faulty):
    """The activation that a hook has seen is changed in place after the run."""

    def run_with_hooks(self, inputs: Tensor, fwd_hooks: Any = (), **options: Any) -> Tensor:
        seen: list[Tensor] = []
        first = [(name, lambda x, hook: seen.append(x)) for name, _ in fwd_hooks[:1]]
        logits = super().run_with_hooks(inputs, fwd_hooks=[*fwd_hooks, *first], **options)
        for activation in seen:
            activation.mul_(1.01)
        return logits


@FAMILY.law(
    reason="A hook keeps another activation where a module adds to its input in place, as Falcon does.",
    mutant=_AddsInPlace,
)
def what_a_hook_saw_stays(subject: TestSubject) -> Iterator[Comparison]:
    """An activation that a hook keeps, without a copy, holds after the run what it held when the hook saw it."""
    for kind in ("embed", "resid_pre", "attn_out", "mlp_out", "resid_post"):
        for layer in subject.layers_of(kind):
            point, kept = subject.point(kind, layer), []
            hooks = [(point, lambda x, hook, kept=kept: kept.extend((x, x.clone())))]
            with torch.no_grad(), evaluation_mode(subject.model):
                subject.call(lambda hooks=hooks: subject.model.run_with_hooks(subject.tokens, fwd_hooks=hooks))
            yield Comparison(point=point, got=kept[0], wanted=kept[1], exact=True)


@FAMILY.law(
    reason="A library that sets torch's default precision would change results without a word.",
    mutant=lambda good: Faulty(good, output=lambda x: x * (1.01 if torch.get_default_dtype() == torch.float64 else 1)),
)
def the_default_precision_of_torch_does_not_matter(subject: TestSubject) -> Iterator[Comparison]:
    """Under another default precision of torch the logits have the same precision, and the same values to rounding."""
    before, wanted = torch.get_default_dtype(), subject.run(reads=()).logits
    try:
        torch.set_default_dtype(torch.float64 if before != torch.float64 else torch.float32)
        got = subject.run(reads=()).logits
    finally:
        torch.set_default_dtype(before)
    yield Comparison(point="logits", got=got, wanted=wanted)
    yield _stays("precision", [0], [got.dtype != wanted.dtype])
