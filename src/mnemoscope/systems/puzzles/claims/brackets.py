"""P15 and P16: heads that divide the faults of brackets, and the path of a wrong total.

The effects of P15 are the margins of `dissociation_margins`, as those of T14: `double` is the claim's, the others are
its rivals'.
"""

from functools import partial

import numpy as np
import xarray as xr

from mnemoscope import CLAIMS, HookedModel, InputError, Site, Subject
from mnemoscope.analyses import dissociation_margins
from mnemoscope.claims import EFFECT, GATE, Case, Measured, case, controls, most, table
from mnemoscope.core import Replacement
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.puzzles.analyses.brackets import (
    BOTH_HEADS,
    FAULTS,
    Reference,
    accuracies,
    bracket_cosine,
    fault_costs,
    moved_shares,
    suffix_attention,
    yes_or_no,
)
from mnemoscope.systems.puzzles.claim_parts import TEXTS, answers_classes, puzzle_claim, units
from mnemoscope.systems.puzzles.constructed.brackets import (
    BOTH,
    DIRECT,
    DOUBLE,
    PREFIX,
    REDUNDANT,
    SINGLE,
    BracketCircuit,
    bracket_counter,
)
from mnemoscope.systems.puzzles.tasks.brackets import Brackets

BRACKETS = "brackets"
UNITS = units(BRACKETS)
LEARNED = 0.95
MARGIN, EVEN, OPPOSITE, HALF = 0.25, 0.65, -0.8, 0.5
SOURCE = "ARENA, chapter on balanced brackets"
bracket_claim = partial(puzzle_claim, source=SOURCE, units=UNITS, gate=answers_classes(LEARNED), prompts="own")


def measure_split(
    subject: Subject, *, kind: Replacement = "mean", reference: Reference = "balanced", needed: float = MARGIN
) -> dict[str, float]:
    """The effects of the claim and of its rivals, and the costs that they come from, in accuracy.

    A fault needs a head of the last layer whose removal costs more than `needed`; `kind` and `reference` as for
    `fault_costs`.
    """
    if subject.model.cfg.n_heads != 2:
        raise InputError(f"the model must have two heads a layer, for one fault each; got {subject.model.cfg.n_heads}")
    costs = fault_costs(subject, kind=kind, reference=reference)
    cells = {f"{h} {s}": float(costs.sel(component=h, skill=s)) for h in costs.component.values for s in FAULTS}
    return {GATE: min(accuracies(subject).values()), **_effects(costs, needed), **cells}


def _effects(costs: xr.DataArray, needed: float = MARGIN) -> dict[str, float]:
    """The effects of the claim and its rivals; the component `BOTH_HEADS` stands for both together.

    one_fault = max over faults s, the other one t, of min(cost[both, s] - M, M - cost[both, t])
    """
    joint = costs.sel(component=BOTH_HEADS)
    found = dissociation_margins(costs.drop_sel(component=BOTH_HEADS), joint, margin=needed)
    above = joint.to_numpy() - needed
    one_fault = max(min(above[0], -above[1]), min(above[1], -above[0]))
    return {EFFECT: found.pop("double"), **found, "one_fault": float(one_fault), "idle": float(-above.max())}


def measure_path(subject: Subject) -> dict[str, float]:
    """The path of a wrong total: where it is averaged, read, decided and moved.

    Gives `suffix`, `opposite`, `yes_no` after the MLP of the last layer but one, `before` any MLP, `moved` and `early`,
    and the same two of a negative elevation.
    """
    suffix = suffix_attention(subject)
    last = subject.model.cfg.n_layers - 1
    total, negative = (moved_shares(subject, fault) for fault in FAULTS)
    return {
        GATE: min(accuracies(subject).values()),
        "suffix": float(suffix.max()),
        "opposite": bracket_cosine(subject, int(suffix.values.argmax())),
        "yes_no": yes_or_no(subject, Site(kind="resid_pre", layer=last)),
        "before": yes_or_no(subject, Site(kind="resid_mid", layer=0)),
        "moved": total[1],
        "early": total[0],
        "moved negative": negative[1],
        "early negative": negative[0],
    }


def planted(name: str, circuit: BracketCircuit) -> Case:
    """A control: a hand-set model in the place of the trained one."""
    return case(name, set_by_hand(BRACKETS, partial(built, circuit), Brackets()), n=1)


def built(circuit: BracketCircuit) -> HookedModel:
    """The hand-set model of a circuit."""
    return bracket_counter(circuit)


def outcome(*costs: tuple[float, float]) -> dict[str, Measured]:
    """Planted costs: rows are the two heads, and both; columns a wrong total and a negative elevation."""
    names = ["L2H0", "L2H1", BOTH_HEADS]
    array = xr.DataArray(
        np.array(costs), dims=("component", "skill"), coords={"component": names, "skill": list(FAULTS)}
    )
    return {BRACKETS: {GATE: 1.0, **_effects(array)}}


_idle = table("no cost at all", outcome((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)))
_untrained = case("untrained", untrained(UNITS))
_double, _direct = planted("one head a fault", DOUBLE), planted("START sees the total", DIRECT)
_P15 = bracket_claim(
    id="P15",
    statement="Removing one head of the last layer costs one fault and spares the other; the other does the reverse.",
    quantifier="most",
    margin=0.0,
    unit="accuracy",
    measure=measure_split,
    explanation=TEXTS.explain("P15", margin=MARGIN),
    factors={"kind": ("resample",), "reference": ("all sequences",)},
    choices={"needed": (MARGIN / 2, 2 * MARGIN)},
    controls=controls(
        positive=(_double,),
        negative=(
            planted("one head for both faults", SINGLE),
            table("costs at the margin", outcome((0.8, MARGIN), (0.0, 0.8), (0.8, 0.8))),
            _untrained,
        ),
    ),
)
P15 = _P15.against(
    *(
        _P15.rival(
            word,
            statement,
            parts=(most(word, "above", 0.0, "accuracy"),),
            controls=controls(positive=(positive,), negative=(_double, _untrained)),
        )
        for word, statement, positive in (
            ("single", "One head serves both faults and the other one of them.", planted("one for both", SINGLE)),
            ("both", "Both faults need both heads.", planted("both for both", BOTH)),
            ("redundant", "Either head can stand in for the other one.", planted("either for both", REDUNDANT)),
            ("one_fault", "Only one of the faults needs these heads at all.", _direct),
        )
    ),
    _P15.rival(
        "idle",
        "Neither fault needs these heads.",
        parts=(most("idle", "above", 0.0, "accuracy"),),
        controls=controls(positive=(_idle,), negative=(_double, _direct)),
    ),
)
_P16 = bracket_claim(
    id="P16",
    statement="A head averages over the suffix, MLPs make yes-or-no of the total, the last layer moves it to START.",
    measure=measure_path,
    explanation=TEXTS.explain("P16", even=EVEN, opposite=OPPOSITE, half=HALF),
    parts=(
        most("suffix", "above", EVEN, "share of attention"),
        most("opposite", "below", OPPOSITE, "cosine"),
        most("yes_no", "above", HALF, "share of variance"),
        most("moved", "above", HALF, "share of the logit difference"),
    ),
    controls=controls(positive=(_double,), negative=(_direct, planted("reads from the left", PREFIX), _untrained)),
)
P16 = _P16.against(
    _P16.rival(
        "early",
        "START knows of a wrong total before the last layer, without position 1.",
        parts=(
            most("early", "above", HALF, "share of the logit difference"),
            most("moved", "below", HALF, "share of the logit difference"),
        ),
        controls=controls(positive=(_direct,), negative=(_double, _untrained)),
    ),
)
for _claim in (P15, P16):
    CLAIMS.add(_claim.id, _claim)
