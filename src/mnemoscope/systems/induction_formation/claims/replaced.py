"""I6: a head that was strong first is not needed later, and where half of the heads are removed others take over.

Checkpoints were measured after training (`analyses.tracking`), without the clamp. The lesion removes L1H0 to L1H3, the
same in all seeds: heads have no names before they are trained.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Configuration, Gate, InputError, Subject
from mnemoscope.claims import GATE, Case, Measured, controls, most
from mnemoscope.models.constructed import Course, step_course
from mnemoscope.systems.induction_formation.claim_parts import (
    ACCURACY,
    BASE,
    RATIO,
    TEXTS,
    course,
    formation_claim,
    planted,
    units,
    waits,
)
from mnemoscope.systems.induction_formation.presets import LESION, LESIONED

HURT = "formation with a lesion"
UNITS = {**units(BASE), HURT: Configuration(preset=BASE, changes=LESIONED)}
EARLY, NEEDED, TAKEN = 0.9, 0.1, 0.1
HEADS = tuple(f"L1H{head}" for head in range(8))
REMOVED, LEFT = HEADS[:4], HEADS[4:]


def measure(subject: Subject, *, early: float = EARLY) -> dict[str, float]:
    """The loss of the first strong head at the end, the strength of the heads that a lesion leaves, and both losses.

    `loss_after` is the largest logged loss, with the clamps, from the lesion on.
    """
    tracked = subject.trajectory
    if tracked is None:
        raise InputError("there is no trajectory of this run; track it first: mnemoscope evaluate --checkpoints RUN")
    learned = tracked.accuracy.values >= early
    first = int(learned.argmax()) if learned.any() else -1
    strongest = max(HEADS, key=lambda head: float(tracked[f"strength_{head}"][first]))
    logged = course(subject)
    return {
        "first_strong": float(tracked.accuracy[-1] - tracked[f"without_{strongest}"][-1]),
        "left": sum(float(tracked[f"strength_{head}"][-1]) for head in LEFT),
        "accuracy": float(tracked.accuracy[-1]),
        "loss_end": float(logged[-1]),
        "loss_after": float(logged.sel(step=logged.step >= LESION).max()),
    }


def compared(measured: Mapping[str, Measured]) -> Measured:
    """The cost of the first strong head at the end, and the gain in strength of the heads that are left."""
    whole, hurt = measured[BASE], measured[HURT]
    return {
        "first_strong": whole["first_strong"],
        "taken_over": float(hurt["left"]) - float(whole["left"]),
        "end": hurt["loss_end"],
        "cost": float(hurt["loss_after"]) - float(whole["loss_after"]),
        GATE: whole["accuracy"],
    }


def _tracked(strong: Mapping[str, float], needed: Mapping[str, float]) -> dict[str, Course]:
    """The trajectory of a model that is learned at step 500: strength of heads, and accuracy lost without them."""
    return {
        "accuracy": step_course(500, low=0.5, high=1.0),
        **{f"strength_{head}": step_course(500, low=0.0, high=strong.get(head, 0.0)) for head in HEADS},
        **{f"without_{head}": step_course(500, low=0.5, high=1 - needed.get(head, 0.0)) for head in HEADS},
    }


def _planted(name: str, *, needed: float, left: float, end: float = 0.0) -> Case:
    """A control: what L1H0 costs at the end, and the strength of L1H4, .3 without a lesion, after one."""
    whole = _tracked({"L1H0": 0.8, "L1H4": 0.3}, {"L1H0": needed})
    tracked = {BASE: whole, HURT: _tracked({"L1H4": left}, {})}
    hurt = (*waits(300, 50)[:10], (LESION, 0.5), (LESION + 300, end))
    return planted(name, UNITS, {BASE: waits(300, 50), HURT: hurt}, tracked=tracked)


_TAKES, _IDLE = _planted("another takes over", needed=0, left=0.9), _planted("none takes over", needed=0, left=0.3)
_NEEDED = _planted("the first is needed", needed=0.5, left=0.9)
_LOST = _planted("never again", needed=0, left=0.9, end=0.6)
_STRENGTH = "strength"
_I6 = formation_claim(
    id="I6",
    statement="The first strong head is not needed later, and after a lesion other heads become stronger.",
    units=UNITS,
    gate=Gate(statement=f"answers {ACCURACY:.0%} of unseen labellings rightly without a lesion", at_least=ACCURACY),
    measure=measure,
    compare=compared,
    explanation=TEXTS.explain("I6", early=EARLY, needed=NEEDED, taken=TAKEN, lesion=LESION),
    develops=False,
    prompts="own",
    parts=(
        most("first_strong", "below", NEEDED, "accuracy"),
        most("taken_over", "above", TAKEN, _STRENGTH),
        most("end", "below", RATIO, "nats"),
    ),
    factors={"early": (0.75,)},
    controls=controls(positive=(_TAKES,), negative=(_IDLE, _NEEDED, _LOST)),
)
I6 = _I6.against(
    _I6.rival(
        "idle",
        "The heads that are left are enough as they are: none becomes stronger.",
        parts=(most("taken_over", "within", TAKEN, _STRENGTH), most("end", "below", RATIO, "nats")),
        controls=controls(positive=(_IDLE,), negative=(_TAKES, _LOST)),
    ),
)
CLAIMS.add(I6.id, I6)
