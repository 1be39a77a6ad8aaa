"""B8: whether outputs drawn uniformly in training make models read the context better.

"Uniform outputs lead to better generalisation than global bigrams" is refuted if the model trained on uniform outputs
is at most ten points better on uniform outputs than the one trained on outputs drawn from the bigrams, or if it loses
ten points or more when outputs are drawn from the bigrams. Both are associative memories with W_F; per seed both have
the same start. Rival: on uniform outputs the two are within ten points of each other.

Accuracy is the share of right answers where a trigger stands that has occurred before, on 512 fresh sequences of
either distribution; of equally likely tokens each gets its share.

- `on_uniform`: accuracy on uniform outputs, trained on uniform ones minus trained on the bigrams'.
- `even_on_bigram`: of the model trained on uniform outputs, accuracy on uniform ones minus accuracy on the bigrams'.

It shows which distribution carries over to the other. It does not show that a model reads the context: on outputs from
the bigrams some are right by guessing the likely one, and where a trigger is its own output all that follow are easy.
"""

from collections.abc import Callable, Mapping
from functools import partial

from mnemoscope import CLAIMS, Claim, Configuration, Control, Criterion, HookedModel, Subject
from mnemoscope.judging import Measured
from mnemoscope.models import planted, untrained
from mnemoscope.models.constructed import bigram_table, induction
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import accuracy_by_class
from mnemoscope.systems.in_context_bigrams.analyses.prompts import prompts
from mnemoscope.systems.in_context_bigrams.tasks.in_context_bigrams import InContextBigrams

SOURCE = "Bietti et al. 2023, Birth of a Transformer, in-context accuracy by training and test distribution"
N_SEQUENCES = 512
MARGIN = 0.1
OUTPUTS = ("uniform", "bigram")
UNIFORM, BIGRAM = "memories-all", "memories-all-bigram"
UNITS = {name: Configuration(preset=name) for name in (UNIFORM, BIGRAM)}
TASK = InContextBigrams(length=64, triggers="fixed")
"""Of planted models: shorter, which is faster."""
NEVER = 1e-9
"""Probability, in the planted table, of a bigram that the text does not have."""


def measure(subject: Subject, *, loops: bool = True) -> dict[str, float]:
    """In-context accuracy (0 to 1) on `uniform` outputs and on those of the `bigram` table.

    Args:
        subject: The model and its task.
        loops: Whether a trigger may be its own output.

    Raises:
        InputError: The task is another one.
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


def reads_the_context() -> HookedModel:
    """The induction circuit: right whatever the outputs are."""
    return induction(TASK.d_vocab, TASK.n_ctx)


def knows_the_bigrams() -> HookedModel:
    """A model that predicts global bigrams: right where an output is the likely one."""
    return bigram_table(TASK.bigrams.transitions.clamp(min=NEVER).log().float(), TASK.n_ctx)


def _models(case: int, *, uniform: Callable[[], HookedModel], bigram: Callable[[], HookedModel]) -> dict[str, Subject]:
    """Planted models, by what they would have been trained on."""
    return planted(UNIFORM, uniform, TASK)(case) | planted(BIGRAM, bigram, TASK)(case)


def _table(case: int, *, on_uniform: float, even_on_bigram: float) -> dict[str, dict[str, float]]:
    """A planted outcome."""
    return {
        UNIFORM: {"uniform": 0.9, "bigram": 0.9 - even_on_bigram},
        BIGRAM: {"uniform": 0.9 - on_uniform, "bigram": 0.9},
    }


_part = partial(Criterion, quantifier="most", unit="accuracy")
_planted = partial(Control, n=1, kind="negative")
_BOTH = partial(_models, uniform=reads_the_context, bigram=reads_the_context)
_ONE = partial(_models, uniform=reads_the_context, bigram=knows_the_bigrams)

_B8 = Claim(
    id="B8",
    statement="Training on uniform outputs generalises better than training on outputs from the global bigrams.",
    source=SOURCE,
    system="birth",
    units=UNITS,
    measure=measure,
    compare=by_training,
    parts=(
        _part(name="on_uniform", margin=MARGIN),
        _part(name="even_on_bigram", margin=MARGIN, direction="below"),
    ),
    factors={"loops": (False,)},
    controls=(
        Control(name="only one reads the context", kind="positive", plant=_ONE),
        Control(name="both read the context", kind="negative", plant=_BOTH),
        _planted(name="a margin ahead", plant=partial(_table, on_uniform=MARGIN, even_on_bigram=0.0)),
        _planted(name="a margin lost on bigrams", plant=partial(_table, on_uniform=0.5, even_on_bigram=MARGIN)),
        Control(name="untrained", kind="negative", plant=untrained(UNITS)),
    ),
)
B8 = _B8.against(
    _B8.rival(
        "both",
        "On uniform outputs either training gives the same accuracy.",
        source=f"against {SOURCE}",
        parts=(_part(name="gap", margin=MARGIN, direction="below"),),
        controls=(
            Control(name="both read the context", kind="positive", plant=_BOTH),
            Control(name="only one reads the context", kind="negative", plant=_ONE),
            _planted(name="a margin ahead", plant=partial(_table, on_uniform=MARGIN, even_on_bigram=0.0)),
        ),
    ),
)
CLAIMS.add(B8.id, B8)
