"""Identities: what should change nothing changes nothing, bit for bit."""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from mnemoscope.core.protocols import evaluation_mode
from mnemoscope.hookcheck.law import Family
from mnemoscope.hookcheck.mutants import Faulty, shows, writes_are
from mnemoscope.interventions.comparison import Comparison
from mnemoscope.interventions.subject import POINT_KINDS, TestSubject

FAMILY = Family(name="identity", analyses=("ablate", "patch", "edges", "discover"))


def _same(point: str, got: torch.Tensor, wanted: torch.Tensor) -> Comparison:
    return Comparison(point=point, got=got, wanted=wanted, exact=True)


def _plain(subject: TestSubject) -> torch.Tensor:
    """Logits of a run with no hooks of ours."""
    if "plain" not in subject.memory:
        subject.memory["plain"] = subject.run(reads=()).logits
    return subject.memory["plain"]


def _writes_back(subject: TestSubject, *, kind: str) -> Iterator[Comparison]:
    for layer in subject.require(kind):
        point = subject.point(kind, layer)
        written = subject.run(writes={point: lambda activation: activation.clone()}, reads=())
        yield _same(point, written.logits, _plain(subject))


for _kind in POINT_KINDS:
    FAMILY.add(
        f"writing-back-{_kind.replace('_', '-')}",
        f"Writing back what was read at {_kind} changes nothing, bit for bit.",
        partial(_writes_back, kind=_kind),
        reason="An effect of a write that changes nothing is added to every effect measured there.",
        mutant=writes_are(_kind, lambda old, new: new * (1 + 1e-5)),
        kinds=(_kind,),
    )


@FAMILY.law(
    reason="Patching values of the same run must have no effect; any other effect is the instrument's own.",
    mutant=writes_are("resid_post", lambda old, new: torch.where(new == old, new + 0.01 * new.square(), new)),
)
def a_run_patched_with_itself_stays(subject: TestSubject) -> Iterator[Comparison]:
    """A run into which all of its own activations are written, at every hook point at once, stays as it was."""
    points = [subject.point(kind, layer) for kind in POINT_KINDS for layer in subject.layers_of(kind)]
    own = subject.run(reads=points).at
    yield _same("logits", subject.run(writes=own, reads=()).logits, _plain(subject))


@FAMILY.law(
    reason="An effect between a prompt and a copy of it that is not zero is noise of the instrument.",
    mutant=shows("resid_pre", lambda activation: 1.001 * activation),
    threads=("TransformerLens #1787",),
)
def equal_inputs_have_no_effects(subject: TestSubject) -> Iterator[Comparison]:
    """A patch from a run on a copy of the prompts has no effect, at any kind of hook point."""
    points = {kind: [subject.point(kind, layer) for layer in subject.layers_of(kind)] for kind in POINT_KINDS}
    other = subject.run(subject.tokens.clone(), reads=[name for names in points.values() for name in names]).at
    for names in filter(None, points.values()):
        patched = subject.run(writes={name: other[name] for name in names}, reads=())
        yield _same(names[0], patched.logits - _plain(subject), torch.zeros_like(patched.logits))


def _drifts(good: Any) -> Any:
    """Each run of the model adds more to the logits than the one before."""
    runs = []

    def drift(logits: torch.Tensor) -> torch.Tensor:
        runs.append(None)
        return logits + 1e-3 * len(runs)

    return Faulty(good, output=drift)


@FAMILY.law(
    reason="An effect is the difference of two runs; a model that does not repeat itself has effects of nothing.",
    mutant=_drifts,
)
def equal_inputs_give_equal_outputs(subject: TestSubject) -> Iterator[Comparison]:
    """Two runs on the same prompts give the same logits."""
    first, second = (subject.run(reads=()) for _ in range(2))
    yield _same("logits", second.logits, first.logits)


@FAMILY.law(
    reason="Metrics compare rows of a batch; a row's value may not depend on its place.",
    mutant=lambda good: Faulty(
        good, output=lambda logits: logits * torch.linspace(1, 1.1, len(logits)).to(logits)[:, None, None]
    ),
)
def equal_rows_give_equal_outputs(subject: TestSubject) -> Iterator[Comparison]:
    """Rows of a batch that are the same prompt give the same logits."""
    logits = subject.run(subject.tokens[:1].expand(3, *subject.tokens.shape[1:]).clone(), reads=()).logits
    yield Comparison(point="logits", got=logits, wanted=logits[:1].expand_as(logits))


def _remembers(good: Any) -> Any:
    """A write of one run is added to all runs after it."""
    written = []

    def hook(name: str, inner: Any) -> Any:
        def call(activation: torch.Tensor, hook: Any) -> Any:
            new = inner(activation, hook=hook)
            if new is not None:
                written.append(name)
            return new

        return call

    return Faulty(good, hook=hook, output=lambda logits: logits * (1.01 if written else 1))


@FAMILY.law(
    reason="A result may not depend on which analyses were run before it.",
    mutant=_remembers,
    threads=("nnsight #607",),
)
def the_order_of_calls_does_not_matter(subject: TestSubject) -> Iterator[Comparison]:
    """A run after an unrelated run with writes, on other prompts, gives the same as before it."""
    layer = subject.require("resid_post")[0]
    point = subject.point("resid_post", layer)
    before = subject.run(reads=()).logits
    subject.run(subject.donors, writes={point: torch.zeros_like})
    yield _same("logits", subject.run(reads=()).logits, before)


def _with_dropout(good: Any) -> Any:
    model = copy.deepcopy(good)
    model.train()

    def drop(module: Any, given: Any, output: torch.Tensor) -> torch.Tensor:
        return output * 1.1 if module.training else output  # a draw that tests can count on

    model.hook_dict["blocks.0.hook_resid_post"].register_forward_hook(drop)
    return model


@FAMILY.law(
    reason="Dropout adds noise to every number; a model is left in training mode without a word.",
    mutant=_with_dropout,
    threads=("TransformerLens: a bridge left in training mode",),
)
def the_mode_of_the_model_is_evaluation(subject: TestSubject) -> Iterator[Comparison]:
    """A call of the model as it was given equals a run in evaluation mode; call `eval()` otherwise."""
    with torch.no_grad(), torch.random.fork_rng():
        given = subject.call(lambda: subject.model(subject.tokens))
    yield Comparison(point="logits", got=given, wanted=_plain(subject))


def _observed(inner: Any, activation: torch.Tensor, hook: Any) -> Any:
    """An observer's activation goes on with a little more."""
    new = inner(activation, hook=hook)
    return activation * (1 + 1e-4) if new is None else new


@FAMILY.law(
    reason="Cached activations describe the run without a cache only if observing changes nothing.",
    mutant=lambda good: Faulty(good, hook=lambda name, inner: partial(_observed, inner)),
)
def observing_changes_nothing(subject: TestSubject) -> Iterator[Comparison]:
    """Hooks that only look, at every hook point at once, leave the logits as they are, bit for bit."""
    points = [subject.point(kind, layer) for kind in POINT_KINDS for layer in subject.layers_of(kind)]
    yield _same("logits", subject.run(reads=points).logits, _plain(subject))


class _StaleCache(Faulty):
    """The cache holds the activations of the run before."""

    def run_with_cache(self, inputs: torch.Tensor, names_filter: Any = None, **options: Any) -> Any:
        logits, cache = super().run_with_cache(inputs, names_filter, **options)
        before = self.__dict__.setdefault("before", {name: torch.zeros_like(x) for name, x in cache.items()})
        self.before = cache
        return logits, before


@FAMILY.law(
    reason="Analyses read activations in both ways and put them side by side.",
    mutant=_StaleCache,
    threads=("nnsight #607",),
)
def the_cache_holds_what_hooks_see(subject: TestSubject) -> Iterator[Comparison]:
    """The activations and logits of `run_with_cache` are those that hooks see in a run."""
    wanted = [subject.point(kind, layer) for kind in POINT_KINDS for layer in subject.layers_of(kind)]
    with torch.no_grad():
        logits, cache = subject.call(
            lambda: subject.model.run_with_cache(subject.tokens, names_filter=lambda name: name in wanted)
        )
    yield Comparison(point="logits", got=logits, wanted=_plain(subject))
    for name in wanted:
        if name in cache:
            yield Comparison(point=name, got=cache[name], wanted=subject.clean.at[name])


class _SharedCache(Faulty):
    """Every cache shares its memory with the one before."""

    def run_with_cache(self, inputs: torch.Tensor, names_filter: Any = None, **options: Any) -> Any:
        logits, cache = super().run_with_cache(inputs, names_filter, **options)
        shared = self.__dict__.setdefault("shared", cache)
        for name, activation in cache.items():
            shared[name].copy_(activation)
        return logits, shared


@FAMILY.law(
    reason="A clean cache is kept while corrupted runs are made; if they overwrite it, a patch patches nothing.",
    mutant=_SharedCache,
    threads=("nnsight #502",),
)
def a_cache_stays_as_it_is(subject: TestSubject) -> Iterator[Comparison]:
    """The cache of a run is not changed by later runs."""
    point = subject.point("resid_post", subject.require("resid_post")[-1])
    with torch.no_grad():
        kept, later = (
            subject.call(lambda inputs=inputs: subject.model.run_with_cache(inputs, names_filter=lambda n: n == point))
            for inputs in (subject.tokens, subject.donors)
        )
    if point not in kept[1] or point not in later[1]:
        subject.skip("the cache does not go by the classic names")
    yield Comparison(point=point, got=kept[1][point], wanted=subject.clean.at[point])


class _ReversedHooks(Faulty):
    """Hooks act in the reverse of the order in which they are given."""

    def run_with_hooks(self, inputs: torch.Tensor, fwd_hooks: Any = (), **options: Any) -> torch.Tensor:
        return super().run_with_hooks(inputs, fwd_hooks=[*reversed(fwd_hooks)], **options)


@FAMILY.law(
    reason="Two interventions at one place act in the order given; else one of them is lost without a word.",
    mutant=_ReversedHooks,
    threads=("nnsight #722",),
)
def hooks_at_one_point_act_in_order(subject: TestSubject) -> Iterator[Comparison]:
    """The second of two hooks at one hook point gets what the first returned, and its result goes on."""
    point = subject.point("resid_post", subject.require("resid_post")[0])
    own, other = subject.clean.at[point], subject.donor.at[point]
    hooks = [(point, lambda activation, hook: other.clone()), (point, lambda activation, hook: activation + own)]
    with torch.no_grad():
        together = subject.call(lambda: subject.model.run_with_hooks(subject.tokens, fwd_hooks=hooks))
    yield Comparison(point=point, got=together, wanted=subject.run(writes={point: other + own}, reads=()).logits)


class _OtherCall(Faulty):
    """A plain call gives other logits than a run with hooks."""

    def __call__(self, inputs: torch.Tensor, **options: Any) -> torch.Tensor:
        return 1.01 * super().__call__(inputs, **options)


@FAMILY.law(
    reason="Clean logits come from a call and intervened ones from a run with hooks; their difference is the effect.",
    mutant=_OtherCall,
    threads=("nnsight #502",),
)
def a_call_equals_a_run_with_hooks(subject: TestSubject) -> Iterator[Comparison]:
    """A call of the model gives what a run with no hooks gives, bit for bit, in evaluation mode."""
    with torch.no_grad(), evaluation_mode(subject.model):
        called = subject.call(lambda: subject.model(subject.tokens))
    yield _same("logits", called, _plain(subject))
