"""K5, the causal sibling of K4: whether later hops wait for the first layer if that is held back for a while."""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Configuration, Gate, Subject
from mnemoscope.claims import GATE, Case, Measured, case, controls, most
from mnemoscope.models import logged
from mnemoscope.models.constructed import prescribe_course, step_course
from mnemoscope.systems.k_hop.claim_parts import CHANCE, LEARNED, MIXTURE, TEXTS, k_hop_claim, task_of, units
from mnemoscope.systems.k_hop.presets import HELD_BACK, HELD_UNTIL

LATE = "first layer held back"
UNITS = {**units(MIXTURE), LATE: Configuration(preset=MIXTURE, changes=HELD_BACK)}
WAITS = HELD_UNTIL / 2
HOPS = (1, 2, 4)


def measure(subject: Subject, *, level: float = CHANCE / 2) -> dict[str, float]:
    """Steps at which the numbers of hops are learned (`hops_1` and so on), and the largest error at the end."""
    found, metrics, names = {}, subject.progress, {part: f"test_loss_{part}" for part in task_of(subject).parts}
    for part, name in names.items():
        course = logged(metrics, name)
        found[part] = float(course.step.where(course < level).min().fillna(2 * float(course.step[-1])))
    assert metrics is not None
    return {**found, GATE: max(float(metrics[name][-1]) for name in names.values())}


def compared(measured: Mapping[str, Measured]) -> Measured:
    """By how many steps every number of hops is learned later."""
    free, held = measured[MIXTURE], measured[LATE]
    steps = {f"later_{hops}": float(held[f"hops_{hops}"]) - float(free[f"hops_{hops}"]) for hops in HOPS}
    return {**steps, GATE: max(float(free[GATE]), float(held[GATE]))}


def _trained(name: str, *held: float) -> Case:
    """A control: 1, 2 and 4 hops are learned at steps 200, 350 and 850, and at these with the first layer held back."""
    courses = {
        unit: {f"test_loss_hops_{h}": step_course(at, low=CHANCE, high=0.0) for h, at in zip(HOPS, steps, strict=True)}
        for unit, steps in {MIXTURE: (200, 350, 850), LATE: held}.items()
    }
    return case(name, prescribe_course(UNITS, courses, followed="progress"), n=1)


_ALL, _NONE = _trained("all wait", 500, 650, 1150), _trained("none waits", 200, 350, 850)
_FIRST, _LAST = _trained("the first waits", 500, 500, 850), _trained("the last waits", 225, 375, 1150)
_K5 = k_hop_claim(
    id="K5",
    statement="Held back for 300 steps, the first layer is waited for: four hops are learned later too.",
    units=UNITS,
    gate=Gate(
        statement=f"learns every number of hops, held back or not, with an error of at most {LEARNED:g}",
        at_most=LEARNED,
    ),
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("K5", until=HELD_UNTIL, half=WAITS),
    prompts="own",
    develops=False,
    parts=(most("later_4", "above", WAITS, "steps"),),
    factors={"level": (CHANCE / 4,)},
    controls=controls(positive=(_ALL, _LAST), negative=(_NONE, _FIRST)),
)
K5 = _K5.against(
    _K5.rival(
        "meanwhile",
        "The layers above learn one hop meanwhile, hardly later.",
        parts=(most("later_1", "below", WAITS, "steps"),),
        controls=controls(positive=(_NONE, _LAST), negative=(_ALL, _FIRST)),
    ),
)
CLAIMS.add(K5.id, K5)
