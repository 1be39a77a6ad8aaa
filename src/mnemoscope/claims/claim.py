"""A published sentence together with everything that decides about it, fixed before the first run.

A claim that has one effect states its quantifier, margin and direction itself. A claim of several parts states them
per part and says whether `all` of them must hold or `any` of them is enough. "Most seeds do A, and most seeds do B"
does not say that most seeds do both: for that give one effect, the smaller of the two.

A gate chooses the replicates that count; controls test the instrument.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float

from mnemoscope.claims.criterion import Criterion, Direction, Quantifier
from mnemoscope.claims.explanation import Explanation
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.guests import Registry
from mnemoscope.core.html import html_table
from mnemoscope.core.presets import Configuration
from mnemoscope.core.protocols import HookedModel
from mnemoscope.models.subjects import Subject

Outcome = Literal["SUPPORTED", "REFUTED", "MIXED", "INCONCLUSIVE", "NOT_APPLICABLE"]
Prompts = Literal["own", "shared", "enumerated"]
"""Drawn for each replicate; drawn once for all; all that there are."""

Replicate = Literal["seed", "draw", "question", "model"]
"""Trainings of a configuration; draws; questions to one language model; language models."""

Measured = Mapping[str, float | Float[np.ndarray, " prompt"]]
"""The numbers that a measure returns, by name: one each, or one per prompt (of a language model: per question)."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The replicates that a claim is about: those whose value lies in a closed interval.

    A claim about a mechanism is about models that learned the task. A claim about learning has no gate. Raises
    InputError where no bound is given, or no value could pass.

    Attributes:
        statement: What passing means, to follow "the model": "answers 99 % of unseen prompts correctly".

    >>> ms.Gate(statement="recall above .9", at_least=0.9).at_most
    inf
    """

    statement: str
    at_least: float = -math.inf
    at_most: float = math.inf

    def __post_init__(self) -> None:
        bounded = self.at_least > -math.inf or self.at_most < math.inf
        if not (bounded and self.at_least <= self.at_most):
            given = f"at_least={self.at_least:g}, at_most={self.at_most:g}"
            raise InputError(f"gate must have a bound that some value meets; got {given}; give at_least or at_most")

    def passes(self, values: Any) -> Bool[np.ndarray, " replicate"]:
        """True for each value that passes; NaN does not."""
        values = np.asarray(values)
        return (values >= self.at_least) & (values <= self.at_most)


@dataclass(frozen=True, kw_only=True)
class Control:
    """A test of the instrument: the same measurement where the answer is known.

    Raises InputError for another kind, no case, or where half of the replicates or more may do otherwise.

    Attributes:
        name: The effects in the evidence that are its own.
        kind: `positive`: something is planted, and its effects must meet the claim's criteria; `negative`: nothing is
            there, and they must not.
        tolerated: Share of the control's replicates that may do otherwise.
        plant: From the number of a case to what stands in the place of the claim's configurations, by their names:
            models to be measured like all others, or, for a comparison of configurations, what was measured on each.
            For a claim about language models, under any name, a model with its tokenizer, or what was measured on one.
            None: the effects are measured by whoever gives the evidence.
        n: Number of planted cases.
        elsewhere: How far values of the same code may differ on another machine, relative to numbers above 1. More
            than rounding where the measure counts or fits, or a direction is arbitrary.

    >>> fresh = ms.models.untrained({"v3": ms.Configuration(preset="v3")})
    >>> ms.Control(name="untrained", kind="negative", plant=fresh).n
    4
    """

    name: str
    kind: Literal["positive", "negative"]
    tolerated: float = 0.0
    plant: Callable[[int], Mapping[str, Subject] | Mapping[str, HookedModel] | Mapping[str, Measured]] | None = None
    n: int = 4
    elsewhere: float = 1e-5

    def __post_init__(self) -> None:
        in_range(f"n of control {self.name}", self.n, 1, math.inf)
        one_of(f"kind of control {self.name}", self.kind, ("positive", "negative"))
        in_range(f"tolerated of control {self.name}", self.tolerated, 0, 0.49)
        in_range(f"elsewhere of control {self.name}", self.elsewhere, 0, math.inf)


LEARNED = Gate(statement="answers every skill it is trained for in 99 % of unseen sequences or more", at_least=0.99)
"""The gate of claims about mechanisms: the model has learned the task. `ms.analyses.learned` gives its value."""

MIN_REPLICATES = 16
"""Fewer judged replicates give effects and no verdict."""
MIN_HEADLINE = 32
"""The same for a claim on which a headline hangs."""
EFFECT = "effect"
"""Name of the only effect of a claim without parts."""
GATE = "gate"
"""Name under which a measure returns what the gate looks at."""
SOURCE = "source"
"""Name under which a measure returns, for each prompt, the number of the source that it was made from."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim, its subject, and what would refute it; InputError refuses a combination that cannot be judged.

    Attributes:
        id: Short name, by which it is called at the command line.
        statement: The sentence, in our words.
        source: Where it was published.
        quantifier: Of a claim without parts, as in `Criterion`; so are `margin` and `direction`.
        margin: In the unit of the effect.
        direction: Which side of the margin.
        unit: Of the effect of a claim without parts; shown.
        bounds: Of the effect of a claim without parts, as in `Criterion`.
        parts: Of a claim with several effects, instead of the three above.
        joined: Whether `all` parts must hold or `any` one.
        gate: Which replicates it is about; None: all.
        replicate: What is replicated, and the dimension of the evidence. A claim per `question` or per `model` is about
            language models and has no units. Put to one model, a claim per `question` counts its questions; put to
            several, it counts models like one per `model`, each with the mean over the questions that pass the gate.
        n_replicates: How many it needs: at least 16, at least 32 for a headline.
        first_seed: Smaller seeds (or draws) were looked at before this was fixed; they do not count. Where the system
            has runs behind its verdicts, both bounds are about these; a user's runs count.
        last_seed: Larger seeds were trained after the verdict; they do not count either.
        headline: One of the claims among which the error rate is shared out.
        units: Configurations that it is about, by name.
        controls: Tests of the instrument, all of which the evidence must have.
        measure: From one model (or, for a claim about draws, the number of a draw; for one about language models, a
            model with its tokenizer) and the factors, as keywords, to its effects by name. `GATE` is what the gate
            looks at; other names than those of the parts are kept beside. A claim per `question` needs one number per
            question everywhere, those of the gate too; a question whose gate is NaN fails.
        compare: From what was measured on every unit to the effects of one replicate; None where there is one unit.
        version: Of what is measured, written by hand: raise it when `measure`, `compare` or what a control plants is
            meant to give other numbers. A change of code that keeps the numbers keeps the version.
        factors: What the sensitivity table varies, one at a time: a keyword of `measure`, `recipe`, or a field of the
            configurations such as `model.normalization`, and the other values to try.
        choices: What only the multiverse varies beside the factors, in the same form.
        prompts: As in `Evidence`.
        develops: Whether the measure makes sense at every step of training, so that one can see the effect emerge.
        explanation: What is measured, in words and as formulas.

    >>> claim = ms.Claim(id="sure", statement="Runs are sure.", source="ours", quantifier="most", margin=0.9)
    >>> claim.direction, claim.n_replicates
    ('above', 16)
    """

    id: str
    statement: str
    source: str
    quantifier: Quantifier | None = None
    margin: float | None = None
    direction: Direction = "above"
    unit: str = ""
    bounds: tuple[float, float] | None = None
    parts: tuple[Criterion, ...] = ()
    joined: Literal["all", "any"] = "all"
    gate: Gate | None = None
    replicate: Replicate = "seed"
    n_replicates: int = MIN_REPLICATES
    first_seed: int = 0
    last_seed: int | None = None
    headline: bool = False
    units: Mapping[str, Configuration] = field(default_factory=dict, hash=False)
    rivals: "tuple[Claim, ...]" = ()
    controls: tuple[Control, ...] = ()
    measure: Callable[..., Measured] | None = None
    compare: Callable[[Mapping[str, Measured]], Measured] | None = None
    version: int = 1
    factors: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    prompts: Prompts | None = None
    develops: bool = True
    system: str = ""
    explanation: Explanation | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        for name in ("id", "statement", "source"):
            if not getattr(self, name).strip():
                raise InputError(f"{name} of a claim must be a text; got {getattr(self, name)!r}")
        self._check_criteria()
        one_of(f"joined of claim {self.id}", self.joined, ("all", "any"))
        one_of(f"replicate of claim {self.id}", self.replicate, get_args(Replicate))
        in_range(f"version of claim {self.id}", self.version, 1, math.inf)
        if self.units and self.replicate in _OF_LANGUAGE_MODELS:
            raise InputError(
                f"claim {self.id} is per {self.replicate}, so it is about language models, which are named when it is "
                "tried; leave out its units"
            )
        if self.prompts and self.of_language_models:
            raise InputError(f"claim {self.id} is about language models, whose questions are its prompts; give none")
        needed = MIN_HEADLINE if self.headline else MIN_REPLICATES
        if self.n_replicates < needed:
            kind = "a headline claim" if self.headline else "a claim"
            raise InputError(f"n_replicates of {self.id} must be at least {needed} for {kind}; got {self.n_replicates}")
        if self.last_seed is not None:
            in_range(f"last_seed of {self.id}", self.last_seed, self.first_seed, math.inf)
        for what, names in (
            ("parts", [part.name for part in self.parts]),
            ("controls", [control.name for control in self.controls]),
            ("rivals", [self.id, *(rival.id for rival in self.rivals)]),
        ):
            if len(set(names)) < len(names):
                raise InputError(f"{what} of claim {self.id} must have different names; got {', '.join(names)}")
        if len(recipes := {unit.recipe for unit in self.units.values()}) > 1:
            raise InputError(f"units of claim {self.id} must have one recipe; got {', '.join(sorted(recipes))}")
        if len(self.units) > 1 and self.measure is not None and self.compare is None:
            raise InputError(f"claim {self.id} is about {len(self.units)} units and must say how to compare them")

    def _check_criteria(self) -> None:
        given = [name for name in ("quantifier", "margin") if getattr(self, name) is not None]
        if self.parts and (given or self.direction != "above" or self.bounds is not None):
            raise InputError(
                f"claim {self.id} has parts, which state quantifier, margin, direction and bounds; give none here"
            )
        if not self.parts and len(given) < 2:
            raise InputError(f"claim {self.id} must have a quantifier and a margin, or parts; got {given or 'neither'}")
        self.criteria  # noqa: B018 - a part checks itself when it is built

    def _repr_html_(self) -> str:
        """Sentence, criteria and what it is judged on, for notebooks; `claims show` says more."""
        criteria = [f"{part.name}: {part.quantifier}, {part.wording} {part.unit}".strip() for part in self.criteria]
        rows = [("statement", self.statement), ("source", self.source)]
        rows += [("criterion" if len(criteria) == 1 else f"criteria ({self.joined} of them)", "; ".join(criteria))]
        rows += [("gate", "" if self.gate is None else self.gate.statement)]
        rows += [("replicates", f"{self.n_replicates} {self.replicate}s or more")]
        rows += [("rivals", "; ".join(f"{rival.id}: {rival.statement}" for rival in self.rivals))]
        return html_table(f"claim {self.id}", rows)

    @property
    def recipe(self) -> str:
        """The recipe of its units; empty for a claim about no model."""
        return next((unit.recipe for unit in self.units.values()), "")

    @property
    def of_language_models(self) -> bool:
        """True if it is about language models that are named when it is tried."""
        return self.replicate in _OF_LANGUAGE_MODELS

    def counts(self, seed: int) -> bool:
        """True if a seed is one of those that the claim is judged on."""
        return self.first_seed <= seed and (self.last_seed is None or seed <= self.last_seed)

    def rival(self, word: str, statement: str, **changes: Any) -> "Claim":
        """Another explanation of what this claim is about.

        Its id is that of the claim and `word`, such as `T14-both`. `changes` are its criteria, controls, and whatever
        else differs. It has the units, gate, measure, replicates, seeds, prompts, system, explanation and factors of
        this claim, so that it is tried as often. With another measure it has only those factors that are not keywords
        of the measure. It has not its criteria, controls or rivals.
        """
        shared = {name: getattr(self, name) for name in _SHARED_WITH_RIVALS}
        if "measure" in changes:
            shared["factors"] = {name: values for name, values in self.factors.items() if is_training_factor(name)}
        own = {"id": f"{self.id}-{word}", "statement": statement, "source": f"rival of {self.id}"}
        return Claim(**{**shared, **own, **changes})

    def against(self, *rivals: "Claim") -> "Claim":
        """The claim with these rivals beside it."""
        return replace(self, rivals=rivals)

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """The requirements on each effect: the parts, or the only one."""
        if self.parts:
            return self.parts
        assert self.quantifier is not None
        assert self.margin is not None
        only = Criterion(
            name=EFFECT,
            quantifier=self.quantifier,
            margin=self.margin,
            direction=self.direction,
            unit=self.unit,
            bounds=self.bounds,
        )
        return (only,)


_OF_LANGUAGE_MODELS = ("question", "model")
_SHARED_WITH_RIVALS = (
    "gate", "replicate", "n_replicates", "first_seed", "last_seed", "units", "measure", "compare", "version",
    "prompts", "develops", "system", "factors", "explanation",
)  # fmt: skip


def is_training_factor(factor: str) -> bool:
    """True if a factor changes what is trained, and not how it is measured."""
    return factor == "recipe" or "." in factor


CLAIMS: Registry[Claim] = Registry("claim", "claims")
"""Every claim by its id: `CLAIMS.names()` lists them, `CLAIMS.get(id)` gives one."""


Case = Callable[..., Control]
"""A control whose kind is still open."""


def most(name: str, direction: Direction, margin: float, unit: str) -> Criterion:
    """In more than half of the replicates the effect `name` lies above or below the margin, or within it."""
    return Criterion(name=name, quantifier="most", direction=direction, margin=margin, unit=unit)


def case(
    name: str,
    plant: Callable[[int], Mapping[str, Any]],
    *,
    n: int = 4,
    elsewhere: float = 1e-5,
) -> Case:
    """A control with `n` planted cases, and how far its values may differ on other machines.

    Planted is what stands in the place of the configurations (`Control.plant`), or what else the measure takes.
    """
    return partial(Control, name=name, plant=plant, n=n, elsewhere=elsewhere)


def controls(**cases: Iterable[Case]) -> tuple[Control, ...]:
    """Controls by kind: `positive` ones must meet the criteria of the claim, `negative` ones must not."""
    return tuple(each(kind=kind) for kind, chosen in cases.items() for each in chosen)


def table(name: str, measured: Mapping[str, Measured], *, n: int = 1) -> Case:
    """A control of numbers in the place of models: by configuration (or `draw`) what was measured on it."""
    return case(name, partial(_table, dict(measured)), n=n)


def _table(measured: Mapping[str, Measured], number: int) -> Mapping[str, Measured]:
    return measured


for _function in (case, _table):  # their names in registrations and in stores
    vars(_function)["STANDS_FOR"] = f"mnemoscope.judging.parts.{_function.__name__}"
