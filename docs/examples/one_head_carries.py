"""On a repeat, does one head carry the recalled value, and the others hardly any of it?"""

from typing import Literal

from mnemoscope import (
    CLAIMS,
    Claim,
    Configuration,
    Control,
    Criterion,
    Gate,
    PromptPairs,
    Subject,
    generator,
    patch,
    run_with,
)
from mnemoscope.analyses import effects
from mnemoscope.claims import EFFECT, GATE, Explanation, Quantity
from mnemoscope.models import set_by_hand
from mnemoscope.systems.tiny_recall.constructed import store_and_match, twin_elimination

UNITS = {"v3": Configuration(preset="v3", recipe="quick")}


def measure(subject: Subject, *, direction: Literal["noising", "denoising"] = "noising") -> dict[str, float]:
    """The head is chosen on sequences of the training mappings; its share and those of others are of unseen ones."""

    def pairs(split: str) -> PromptPairs:
        stream = generator(subject.seed, "one head carries", split)
        batch = subject.task.sample(400, split=split, generator=stream)
        batch = batch.select(batch.latents["is_repeat"])
        return PromptPairs.from_task(subject.task, batch, kind="exchange_answer", skill="recall", seed=subject.seed)

    def shares(split: str):
        sweep = patch(subject.model, pairs(split), kind="z", over=("layer", "head"), directions=[direction])
        ratio = effects(sweep, refuse=False).ratio.sel(direction=direction, metric="logit_diff")
        return ratio.stack(part=("layer", "head"))

    chosen = int(shares("train").fillna(0).argmax("part"))
    tested = shares("test").values
    others = [abs(share) for part, share in enumerate(tested) if part != chosen]
    clean = pairs("test").clean
    right = run_with(subject.model, clean, [])[:, -1].argmax(-1) == clean.targets[:, -1]
    return {
        GATE: float(right.double().mean()),
        EFFECT: float(min(tested[chosen], 1 - max(others))),
        "chosen": float(tested[chosen]),
        "second": float(max(others)),
    }


LEARNED = Gate(statement="recalls in 99 % of unseen sequences or more", at_least=0.99)
BY_HAND = {
    name: set_by_hand("v3", make, UNITS["v3"].spec(0).task)
    for name, make in {"one stores": store_and_match, "twins": twin_elimination}.items()
}
EXPLANATION = Explanation(
    procedure="In unseen sequences with a repeat the recalled y and the unused value change places. One head at a time "
    "gets its output from the other sequence.",
    quantities={
        EFFECT: Quantity(
            words="the share of the logit difference that passes through the chosen head, or what the others leave of "
            "it, whichever is smaller",
            formula="min(share of the chosen head, 1 - largest |share| of another head)",
        ),
        "chosen": Quantity(words="the share that passes through the head that was chosen on training mappings"),
        "second": Quantity(words="the largest share that passes through another head"),
    },
    margins="At .8 a fifth may pass elsewhere.",
    limits="It shows through which heads the value passes. It does not show how the pair is found.",
)
RIVAL = Claim(
    id="one-head-carries-both",
    statement="On a repeat, two heads carry the recalled value.",
    source="rival of one-head-carries",
    parts=(Criterion(name="second", quantifier="most", margin=0.2, unit="share"),),
    gate=LEARNED,
    units=UNITS,
    first_seed=17,
    controls=(
        Control(name="twins by hand", kind="positive", plant=BY_HAND["twins"]),
        Control(name="one stores, by hand", kind="negative", plant=BY_HAND["one stores"]),
    ),
    measure=measure,
    explanation=EXPLANATION,
)
CLAIM = Claim(
    id="one-head-carries",
    statement="On a repeat, one head carries the recalled value, and no other carries more than a fifth.",
    source="the heat map of v3-quick, seed 16",
    quantifier="most",
    margin=0.8,
    unit="share",
    gate=LEARNED,
    units=UNITS,
    first_seed=17,
    rivals=(RIVAL,),
    controls=(
        Control(name="one stores, by hand", kind="positive", plant=BY_HAND["one stores"]),
        Control(name="twins by hand", kind="negative", plant=BY_HAND["twins"]),
    ),
    measure=measure,
    explanation=EXPLANATION,
    factors={"direction": ("denoising",)},
)
CLAIMS.add(CLAIM.id, CLAIM)
