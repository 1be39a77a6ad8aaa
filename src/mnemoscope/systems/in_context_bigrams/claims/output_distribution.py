"""B8: whether outputs drawn uniformly in training make models read the context better.

Both models are associative memories with W_F; per seed both have the same start.
"""

from collections.abc import Mapping

from mnemoscope import CLAIMS, Configuration, HookedModel, Subject
from mnemoscope.claims import Case, Measured, case, controls, most, table
from mnemoscope.models import combined, set_by_hand, untrained
from mnemoscope.models.constructed import bigram_table
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import accuracy_by_class, prompts
from mnemoscope.systems.in_context_bigrams.claim_parts import FIXED_TRIGGERS, TEXTS, any_token, birth

SOURCE = "Bietti et al. 2023, Birth of a Transformer, in-context accuracy by training and test distribution"
N_SEQUENCES = 512
MARGIN = 0.1
OUTPUTS = ("uniform", "bigram")
UNIFORM, BIGRAM = "memories-all", "memories-all-bigram"
UNITS = {name: Configuration(preset=name) for name in (UNIFORM, BIGRAM)}
NEVER_FOLLOWS = 1e-9
"""Probability, in the planted table, of a bigram that the text does not have."""


def measure(subject: Subject, *, loops: bool = True) -> dict[str, float]:
    """In-context accuracy (0 to 1) on `uniform` outputs and on those of the `bigram` table.

    With `loops` a trigger may be its own output.
    """
    return {outputs: _accuracy(subject, outputs=outputs, loops=loops) for outputs in OUTPUTS}


def _accuracy(subject: Subject, **changes: object) -> float:
    batch = prompts(subject.task, subject.seed, N_SEQUENCES, **changes)
    return accuracy_by_class(subject.model, batch)["in_context"]


def by_training(measured: Mapping[str, Measured]) -> Measured:
    """`on_uniform` and `even_on_bigram`; beside them |`on_uniform`| (`gap`) and the accuracies."""
    uniform, bigram = measured[UNIFORM], measured[BIGRAM]
    ahead = uniform["uniform"] - bigram["uniform"]
    return {
        "on_uniform": ahead,
        "even_on_bigram": uniform["uniform"] - uniform["bigram"],
        "gap": abs(ahead),
        **{f"{name} on {outputs}": found[outputs] for name, found in measured.items() for outputs in OUTPUTS},
    }


def knows_the_bigrams() -> HookedModel:
    """A model that predicts global bigrams: right where an output is the likely one."""
    task = FIXED_TRIGGERS
    return bigram_table(task.bigrams.transitions.clamp(min=NEVER_FOLLOWS).log().float(), task.n_ctx)


def _table(name: str, *, on_uniform: float, even_on_bigram: float) -> Case:
    """A planted outcome."""
    by_uniform = {"uniform": 0.9, "bigram": 0.9 - even_on_bigram}
    return table(name, {UNIFORM: by_uniform, BIGRAM: {"uniform": 0.9 - on_uniform, "bigram": 0.9}})


_UNIFORM = set_by_hand(UNIFORM, any_token, FIXED_TRIGGERS)
_both = case("both read the context", combined(_UNIFORM, set_by_hand(BIGRAM, any_token, FIXED_TRIGGERS)))
_one = case(
    "only one reads the context",
    combined(_UNIFORM, set_by_hand(BIGRAM, knows_the_bigrams, FIXED_TRIGGERS)),
)
_a_margin = _table("a margin ahead", on_uniform=MARGIN, even_on_bigram=0.0)

_B8 = birth(
    id="B8",
    statement="Training on uniform outputs generalises better than training on outputs from the global bigrams.",
    source=SOURCE,
    units=UNITS,
    measure=measure,
    compare=by_training,
    explanation=TEXTS.explain("B8", n_sequences=N_SEQUENCES),
    parts=(most("on_uniform", "above", MARGIN, "accuracy"), most("even_on_bigram", "below", MARGIN, "accuracy")),
    factors={"loops": (False,), "recipe": ("sgd",)},
    controls=controls(
        positive=(_one,),
        negative=(
            _both,
            _a_margin,
            _table("a margin lost on bigrams", on_uniform=0.5, even_on_bigram=MARGIN),
            case("untrained", untrained(UNITS)),
        ),
    ),
)
B8 = _B8.against(
    _B8.rival(
        "both",
        "On uniform outputs either training gives the same accuracy.",
        source=f"against {SOURCE}",
        parts=(most("gap", "below", MARGIN, "accuracy"),),
        controls=controls(positive=(_both,), negative=(_one, _a_margin)),
    ),
)
CLAIMS.add(B8.id, B8)
