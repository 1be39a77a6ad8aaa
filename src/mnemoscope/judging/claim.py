"""A published sentence together with all that decides about it, fixed before the first run.

A claim that has one effect states its quantifier, margin and direction itself. A claim of several parts states them
per part and says whether `all` of them must hold or `any` of them is enough. "Most seeds do A, and most seeds do B"
does not say that most seeds do both: for that give one effect, the smaller of the two.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.presets import Configuration
from mnemoscope.core.registry import Registry
from mnemoscope.judging.criteria import Control, Criterion, Direction, Gate, Measured, Quantifier
from mnemoscope.judging.sample import Prompts

MIN_REPLICATES = 16
"""Fewer judged replicates give effects and no verdict."""
MIN_HEADLINE = 32
"""The same for a claim on which a headline hangs."""
EFFECT = "effect"
"""Name of the only effect of a claim without parts."""
GATE = "gate"
"""Name under which a measure returns what the gate looks at."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What is claimed, of what, and what would refute it.

    Attributes:
        id: Short name: "T14".
        statement: The sentence, in our words.
        source: Where it was published.
        quantifier: Of a claim without parts, as in `Criterion`; so are `margin` and `direction`.
        margin: In the unit of the effect.
        direction: Which side of the margin.
        unit: Of the effect of a claim without parts; shown.
        parts: Of a claim with several effects, instead of the three above.
        joined: Whether `all` parts must hold or `any` one.
        gate: Which replicates it speaks of; None: all.
        replicate: What is replicated, and the dimension of the evidence.
        n_replicates: How many it needs: at least 16, at least 32 for a headline.
        headline: One of the claims among which the error rate is shared out.
        units: Configurations that it is about, by name.
        rivals: Other explanations, as claims.
        controls: Tests of the instrument, all of which the evidence must have.
        measure: From one model (or, for a claim without units, the number of a draw) and the factors, as keywords, to
            its effects by name. `GATE` is what the gate looks at; other names than those of the parts are kept beside.
        compare: From what was measured on every unit to the effects of one replicate; None where there is one unit.
        factors: What the sensitivity table varies, one at a time: a keyword of `measure`, `recipe`, or a field of the
            configurations such as `model.normalization`, and the other values to try.
        prompts: As in `Evidence`.
        develops: Whether the measure makes sense at every step of training, so that one can see the effect emerge.
        system: The published system that it belongs to.

    Raises:
        InputError: A combination that cannot be judged.
    """

    id: str
    statement: str
    source: str
    quantifier: Quantifier | None = None
    margin: float | None = None
    direction: Direction = "above"
    unit: str = ""
    parts: tuple[Criterion, ...] = ()
    joined: Literal["all", "any"] = "all"
    gate: Gate | None = None
    replicate: Literal["seed", "draw", "question"] = "seed"
    n_replicates: int = MIN_REPLICATES
    headline: bool = False
    units: Mapping[str, Configuration] = field(default_factory=dict, hash=False)
    rivals: "tuple[Claim, ...]" = ()
    controls: tuple[Control, ...] = ()
    measure: Callable[..., Measured] | None = None
    compare: Callable[[Mapping[str, Measured]], Measured] | None = None
    factors: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    prompts: Prompts | None = None
    develops: bool = True
    system: str = ""

    def __post_init__(self) -> None:
        for name in ("id", "statement", "source"):
            if not getattr(self, name).strip():
                raise InputError(f"{name} of a claim must be a text; got {getattr(self, name)!r}")
        self._check_criteria()
        one_of(f"joined of claim {self.id}", self.joined, ("all", "any"))
        one_of(f"replicate of claim {self.id}", self.replicate, ("seed", "draw", "question"))
        needed = MIN_HEADLINE if self.headline else MIN_REPLICATES
        if self.n_replicates < needed:
            kind = "a headline claim" if self.headline else "a claim"
            raise InputError(f"n_replicates of {self.id} must be at least {needed} for {kind}; got {self.n_replicates}")
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
        if self.parts and (given or self.direction != "above"):
            raise InputError(f"claim {self.id} has parts, which state quantifier, margin and direction; give none here")
        if not self.parts and len(given) < 2:
            raise InputError(f"claim {self.id} must have a quantifier and a margin, or parts; got {given or 'neither'}")
        self.criteria  # noqa: B018 - a part checks itself when it is built

    def rival(self, word: str, statement: str, **changes: Any) -> "Claim":
        """Another explanation of what this claim is about.

        Args:
            word: Its id is that of the claim and this word, such as `T14-both`.
            statement: What it says.
            changes: Its criteria, controls, and whatever else differs. It has the units, gate, measure, replicates,
                prompts and system of this claim, but not its criteria, controls, factors and rivals.

        Raises:
            InputError: A combination that cannot be judged.
        """
        shared = {name: getattr(self, name) for name in _SHARED_WITH_RIVALS}
        own = {"id": f"{self.id}-{word}", "statement": statement, "source": f"rival of {self.id}"}
        return Claim(**{**shared, **own, **changes})

    def against(self, *rivals: "Claim") -> "Claim":
        """The claim with these rivals beside it."""
        return replace(self, rivals=rivals)

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """What each effect must do: the parts, or the only one."""
        if self.parts:
            return self.parts
        assert self.quantifier is not None
        assert self.margin is not None
        only = Criterion(
            name=EFFECT, quantifier=self.quantifier, margin=self.margin, direction=self.direction, unit=self.unit
        )
        return (only,)


_SHARED_WITH_RIVALS = (
    "gate", "replicate", "n_replicates", "units", "measure", "compare", "prompts", "develops", "system"
)  # fmt: skip

CLAIMS: Registry[Claim] = Registry("claim", "claims")
