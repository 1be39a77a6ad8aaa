"""Clamps: places of a model that training holds at a value while the rest learns, as plain data.

A clamp is a change of the computation, as an intervention is, and no change of the parameters. Singh et al. 2024, "What
needs to go right for an induction head?", hold parts of a circuit at their ideal form from the first step. A lesion is
a clamp at zero from a later step on.

Places go by their names in results: `L1H3`, `L0H0 pattern`, `L0 MLP`, `L1 W_out`. Tensors and batches have no place in
a recipe, so a mechanism goes by its name, and an *ideal part* by the name that the task gives it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from torch import Tensor

from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.patterns import Mechanism, slot_mechanisms
from mnemoscope.core.protocols import Task
from mnemoscope.core.site import LOGITS, ParamSite, Site

Place = Site | ParamSite | Literal["logits"]
_HEADS = re.compile(r"L(\d+)H(\d+(?:[,-]\d+)+)(?= |$)")
_SCHEDULE = re.compile(
    r"(?P<what>.*?)(?: from (?P<start>\d+))?(?: to (?P<stop>\d+))?(?: ramp (?P<ramp>\d+))?", re.DOTALL
)
_KINDS = ("value", "scale", "rank", "pattern", "patch", "ideal")
_AT_WEIGHTS = ("zero", "hold", "scale", "rank")
_AT_ACTIVATIONS = ("zero", "mean", "knockout", "scale", "pattern", "patch", "ideal")
LOOKS_LIKE = (
    "L1H3=zero, 'L0 MLP=mean', 'L1H2=scale 0.5', 'L0H0 pattern=pattern previous token', 'L1H0=patch L1H1', "
    "'L1 W_out=rank 4', 'W_E=hold' or 'ideal NAME', and then from STEP, to STEP, ramp STEPS"
)


@dataclass(frozen=True, kw_only=True)
class Clamp:
    """A place that training holds at a value, from step `start` to before step `stop`.

    Exactly one of `value`, `scale`, `rank`, `pattern`, `patch` and `ideal` is given.

    >>> clamp = ms.core.Clamp(place="L0H1", value="zero", start=100, ramp=9)
    >>> print(clamp, clamp.share(99), clamp.share(100), clamp.share(500))
    L0H1=zero from 100 ramp 9 0.0 0.1 1.0
    """

    place: str = ""
    """An activation (`L1H3`, `L0H0 pattern`, `L0 attn_out pos 2`), several heads at once (`L1H1-7`, `L1H0,2`), a weight
    (`L1 W_out`) or `logits`. Empty: that of the ideal part."""
    value: Literal["zero", "mean", "knockout", "hold"] | None = None
    """Zeros; the mean over the batch at hand; no attention (at `scores`); or, for a weight, what it is at `start`."""
    scale: float | None = None
    """A factor."""
    rank: int | None = None
    """Largest singular values of a weight that count."""
    pattern: str | None = None
    """Name of a mechanism, such as `previous token`: the attention at a place of kind `pattern`."""
    patch: str | None = None
    """Another place of the same forward pass, whose activation stands here: `L1H1`, `L0 resid_pre pos 1`."""
    ideal: str | None = None
    """Name of an ideal part of the task."""
    start: int = 0
    """First update that is made with the clamp."""
    stop: int | None = None
    """First update that is made without it again; none: all are made with it."""
    ramp: int = 0
    """Updates, from `start` on, with a part of the change only, which grows linearly."""

    def __post_init__(self) -> None:
        given = [name for name in _KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"{', '.join(given) or 'none'} at {self.place or 'no place'}"
            raise InputError(f"a clamp has one of {', '.join(_KINDS)}; got {found}")
        in_range(f"start of the clamp {self}", self.start, 0, float("inf"))
        in_range(f"ramp of the clamp {self}", self.ramp, 0, float("inf"))
        if self.stop is not None and self.stop <= self.start:
            raise InputError(
                f"stop of the clamp {self} must come after its start, {self.start}; got {self.stop}; leave stop out to "
                "hold it to the end"
            )
        if not self.place and self.ideal is None:
            raise InputError(f"a clamp names its place, such as L1H3 or L0 MLP; got none for {self}")
        for place in self.places:
            self._check_kind(place)
        if self.patch is not None and _read_place(self.patch) == LOGITS:
            raise InputError(f"a clamp cannot copy from the logits, which come last: {self}")

    def _check_kind(self, place: Place) -> None:
        """Refuse what cannot stand at a place."""
        allowed = _AT_WEIGHTS if isinstance(place, ParamSite) else _AT_ACTIVATIONS if place != LOGITS else ("ideal",)
        one_of(f"what stands at {place} in a clamp", self.kind, allowed)
        needs = {"knockout": "scores", "pattern": "pattern"}.get(self.kind)
        if needs is not None and not (isinstance(place, Site) and place.kind == needs):
            raise InputError(f"{self.kind} needs a place of kind {needs}, such as L0H1 {needs}; got {self}")
        if isinstance(place, ParamSite) and self.kind == "rank":
            in_range(f"the rank of the clamp {self}", self.rank or 0, 0, float("inf"))
            if not place.is_matrix:
                raise InputError(f"rank needs a matrix; {place} is a bias")
        if isinstance(place, ParamSite) and self.kind == "hold" and (place.head is not None or self.ramp):
            raise InputError(f"hold takes a whole weight and no ramp; got {self}")

    @property
    def kind(self) -> str:
        """The kind of clamp: `zero`, `mean`, `knockout`, `hold`, `scale`, `rank`, `pattern`, `patch` or `ideal`."""
        return self.value or next(name for name in _KINDS if getattr(self, name) is not None)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The places that are named: one, or one a head; none where the ideal part says where."""
        return tuple(_read_place(text) for text in _one_a_head(self.place) if text)

    @property
    def is_at_weights(self) -> bool:
        """True if the place is a weight."""
        return any(isinstance(place, ParamSite) for place in self.places)

    @property
    def source(self) -> Site:
        """The place that a patch takes its activation from."""
        found = _read_place(self.patch or "")
        if not isinstance(found, Site):
            raise InputError(f"a clamp copies from an activation, such as L1H1; got {self.patch!r}")
        return found

    def share(self, step: int) -> float:
        """The part of the change that update number `step` is made with: 0 before and after, 1 when it is whole."""
        if step < self.start or (self.stop is not None and step >= self.stop):
            return 0.0
        return min(1.0, (step - self.start + 1) / (self.ramp + 1))

    def __str__(self) -> str:
        what = self.value or f"{self.kind} {getattr(self, self.kind)}"
        schedule = [("from", self.start or None), ("to", self.stop), ("ramp", self.ramp or None)]
        words = [f"{word} {step}" for word, step in schedule if step is not None]
        return " ".join([f"{self.place}={what}" if self.place else what, *words])

    @classmethod
    def read(cls, text: str) -> "Clamp":
        """The clamp of a text such as `L1H3=zero from 100 to 500 ramp 20` or `ideal perfect-layer-1`.

        Raises InputError where it is none.

        >>> ms.core.Clamp.read("L0H1 pattern=pattern previous token from 50").start
        50
        """
        found = _SCHEDULE.fullmatch(text.strip())
        assert found is not None
        place, equals, what = found["what"].rpartition("=")
        word, _, content = what.strip().partition(" ")
        schedule = {name: int(found[name]) for name in ("start", "stop", "ramp") if found[name]}
        if not equals and word != "ideal":
            raise InputError(f"a clamp looks like {LOOKS_LIKE}; got {text!r}")
        named = {"value": word} if word in ("zero", "mean", "knockout", "hold") else {word: content.strip()}
        if next(iter(named)) not in _KINDS or ("value" in named) == bool(content):
            raise InputError(f"a clamp looks like {LOOKS_LIKE}; got {text!r}")
        try:
            numbers = {name: kind(named[name]) for name, kind in (("scale", float), ("rank", int)) if name in named}
        except ValueError:
            raise InputError(f"{word} of a clamp takes a number; got {text!r}") from None
        given: dict[str, Any] = {**named, **numbers, **schedule}
        return cls(place=place.strip(), **given)


@dataclass(frozen=True, kw_only=True)
class IdealPart:
    """A part of a circuit at its ideal form: the value of a place, computed from the inputs and earlier activations.

    A task offers them by a method `ideal_parts()`, which gives them by name. It is called on the task without seeds
    (fields that end in `_seed` are None): whatever differs between seeds has to come from the inputs. Under an ensemble
    the function runs inside `vmap`, so that it may not look at the values of tensors. Gradients pass through it.

    Attributes:
        site: The place; `logits` for the output.
        value: A function of the inputs, `batch pos` (of vectors with one axis more), and the activations in the order
            of `reads`. It gives the activation at the place, at all positions. A place that names one head has no axis
            of heads. In rows of NaN of a pattern the model's own row stays.
        reads: Activations that it needs, all earlier in the forward pass, at all positions. A site that names one head
            has no axis of heads.

    >>> shifted = ms.core.IdealPart(
    ...     site=ms.Site(kind="attn_out", layer=0, pos=(1, 3)),
    ...     value=lambda inputs, stream: stream.roll(1, 1),
    ...     reads=(ms.Site(kind="resid_pre", layer=0),),
    ... )
    >>> shifted.site.hook
    'blocks.0.hook_attn_out'
    """

    site: Site | Literal["logits"]
    value: Callable[..., Tensor]
    reads: tuple[Site, ...] = ()

    def __post_init__(self) -> None:
        for site in self.reads:
            if (site.pos, site.key, site.neuron) != (None, None, None):
                raise InputError(f"an ideal part reads whole activations; leave pos, key and neuron out of {site}")


def ideal_parts(task: Task) -> Mapping[str, IdealPart]:
    """The ideal parts of a task by name; most tasks have none. Fields of seeds have to be None."""
    offered = getattr(task, "ideal_parts", None)
    return {} if offered is None else offered()


def find_ideal(task: Task, name: str) -> IdealPart:
    """The ideal part of that name; InputError where the task has none of it."""
    found = ideal_parts(task)
    if not found:
        raise InputError(f"the task {task.name} has no ideal parts; got ideal {name!r}; clamp a place instead")
    one_of(f"an ideal part of {task.name}", name, found)
    return found[name]


def find_mechanism(task: Task, name: str) -> Mechanism:
    """The mechanism of that name, among those that fit every task and those of its slots."""
    found = {mechanism.name: mechanism for mechanism in slot_mechanisms(task.slot_size)}
    one_of("the pattern of a clamp", name, found)
    return found[name]


def _read_place(text: str) -> Place:
    if text == LOGITS:
        return LOGITS
    word = text.rpartition(" ")[2]
    return ParamSite.read(text) if re.match(r"[Wb]_|blocks\.|(un|pos_)?embed\.", word) else Site.read(text)


def _one_a_head(place: str) -> list[str]:
    """The texts of single heads for that of several: `L1H1-3` and `L1H1,2,3` are three."""
    found = _HEADS.match(place)
    if found is None:
        return [place]
    heads: list[int] = []
    for part in found[2].split(","):
        low, _, high = part.partition("-")
        heads += range(int(low), int(high or low) + 1)
    if not heads or len(set(heads)) < len(heads):
        raise InputError(f"a place names each of its heads once, such as L1H1-7 or L1H0,2; got {place!r}")
    return [f"L{found[1]}H{head}{place[found.end() :]}" for head in heads]


def in_force(clamps: tuple[Clamp, ...], step: int) -> dict[Clamp, float]:
    """The clamps of update number `step`, with the part of each change."""
    return {clamp: share for clamp in clamps if (share := clamp.share(step)) > 0}
