"""Does elimination need to know where the used values stand, or only which they are?"""

from mnemoscope import (
    CLAIMS,
    Claim,
    Configuration,
    Control,
    Criterion,
    Gate,
    SetPattern,
    Site,
    Subject,
    generator,
    run_with,
)
from mnemoscope.claims import EFFECT, GATE, Explanation, Quantity
from mnemoscope.core import Mechanism
from mnemoscope.core.patterns import earlier, uniform
from mnemoscope.models import set_by_hand, untrained
from mnemoscope.systems.tiny_recall.constructed import elimination_only

UNITS = {"v1": Configuration(preset="v1", recipe="published")}


def measure(subject: Subject, *, split: str = "test") -> dict[str, float]:
    """Accuracy of the last y as it is (`GATE`), and with the attention from the last x replaced."""
    stream = generator(subject.seed, "even attention", split)
    batch = subject.task.sample(1000, split=split, generator=stream)
    sites = [Site(kind="pattern", layer=layer, pos=-1) for layer in range(subject.model.cfg.n_layers)]

    def accuracy(*mechanisms: Mechanism) -> float:
        changes = [SetPattern(site=site, mechanism=mechanism) for mechanism in mechanisms for site in sites]
        answers = run_with(subject.model, batch, changes)[:, -1].argmax(-1)
        return float((answers == batch.targets[:, -1]).double().mean())

    return {GATE: accuracy(), EFFECT: accuracy(earlier(period=2, phase=1)), "over_tokens": accuracy(uniform())}


LEARNED = Gate(statement="eliminates in 99 % of unseen sequences or more", at_least=0.99)
CONTROLS = (
    Control(name="even by hand", kind="positive", plant=set_by_hand("v1", elimination_only, UNITS["v1"].spec(0).task)),
    Control(name="untrained", kind="negative", plant=untrained(UNITS)),
)
EXPLANATION = Explanation(
    procedure="1,000 sequences over unseen mappings, drawn by the seed, are answered with the attention of every head "
    "from the last x replaced, whatever it has learned.",
    quantities={
        EFFECT: Quantity(
            words="the accuracy of the last y with the same weight on every earlier y",
            formula="mean over sequences of 1[argmax of the logits = the y left over]",
        ),
        "over_tokens": Quantity(words="the same with the same weight on all tokens so far"),
    },
    margins="With .9 one answer in ten may be wrong.",
    limits="It shows what attention could stand in for the learned one. It does not show what the learned attention "
    "looks like.",
)
RIVAL = Claim(
    id="even-attention-tokens",
    statement="Attending to all tokens alike is enough for elimination.",
    source="rival of even-attention",
    parts=(Criterion(name="over_tokens", quantifier="most", margin=0.9, unit="accuracy"),),
    gate=LEARNED,
    units=UNITS,
    controls=CONTROLS,
    measure=measure,
    explanation=EXPLANATION,
)
CLAIM = Claim(
    id="even-attention",
    statement="Attending to all earlier y alike is enough for elimination.",
    source="a question of ours",
    quantifier="most",
    margin=0.9,
    unit="accuracy",
    gate=LEARNED,
    units=UNITS,
    rivals=(RIVAL,),
    controls=CONTROLS,
    measure=measure,
    explanation=EXPLANATION,
    factors={"split": ("train",), "recipe": ("quick",)},
)
CLAIMS.add(CLAIM.id, CLAIM)
