"""B12: whether the induction head works for any repeated token, or for triggers only."""

from collections.abc import Callable, Mapping

import torch

from mnemoscope import CLAIMS, Batch, Configuration, HookedModel, Subject
from mnemoscope.analyses import expected_accuracy, head_scores, repeated_tokens
from mnemoscope.claims import GATE, Case, Measured, case, controls, most, table
from mnemoscope.core import one_of
from mnemoscope.models import ControlMaker, combined, set_by_hand, untrained
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import LEARNED, learned
from mnemoscope.systems.in_context_bigrams.claim_parts import (
    FIXED_TRIGGERS,
    RANDOM_TRIGGERS,
    TEXTS,
    any_token,
    birth,
)
from mnemoscope.systems.in_context_bigrams.constructed import induction_memories
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams
from mnemoscope.systems.in_context_bigrams.triggers import by_frequency

SOURCE = "Bietti et al. 2023, Birth of a Transformer, attention maps for fixed and random triggers"
HALF = 0.5
N_FREQUENT = 32
RANDOM, FIXED = "birth-2-layers", "birth-fixed"
UNITS = {name: Configuration(preset=name) for name in (RANDOM, FIXED)}


def measure(subject: Subject, *, tokens: str = "all", length: int | None = None) -> dict[str, float]:
    """Accuracy (0 to 1) in the second half of random tokens shown twice: of any (`repeated`), of frequent ones
    (`frequent`).

    `attention` is the best last-layer head's share on the token after the earlier occurrence. Tokens are drawn from
    `all`, or from the 32 most `frequent` of the text. The part that is repeated is by default as long as the model
    allows, up to 50 or the tokens there are.
    """
    batch = _prompts(subject, tokens, length)
    induction_scores = head_scores(subject.model, batch).score.sel(score_name="induction")
    return {
        "repeated": _accuracy(subject.model, batch),
        "frequent": _accuracy(subject.model, _prompts(subject, "frequent", length)),
        "attention": float(induction_scores.isel(layer=-1).max()),
        GATE: learned(subject),
    }


@torch.no_grad()
def _accuracy(model: HookedModel, batch: Batch) -> float:
    return float(expected_accuracy(model(batch.inputs), batch.targets)[batch.scored].mean())


def _prompts(subject: Subject, tokens: str, length: int | None) -> Batch:
    one_of("tokens", tokens, ("all", "frequent"))
    task = subject.task
    assert isinstance(task, InContextBigrams)
    pool = None if tokens == "all" else by_frequency(task.bigrams.unigram, 0, N_FREQUENT)
    return repeated_tokens(subject.model, length=length, tokens=pool, seed=subject.seed)


def by_triggers(measured: Mapping[str, Measured]) -> Measured:
    """The effects of one seed; it passes the gate where both models do."""
    random, fixed = measured[RANDOM], measured[FIXED]
    return {
        "any": random["repeated"],
        "frequent": random["frequent"],
        "attends": random["attention"],
        "not_fixed": fixed["repeated"],
        "attends_fixed": fixed["attention"],
        GATE: min(float(random[GATE]), float(fixed[GATE])),
    }


def triggers_only() -> HookedModel:
    """The induction circuit, whose last layer matches the fixed triggers only."""
    task = FIXED_TRIGGERS
    return induction_memories(task.d_vocab, task.n_ctx, tokens=task.fixed_triggers)


def _models(random: Callable[[], HookedModel], fixed: Callable[[], HookedModel]) -> ControlMaker:
    """Planted models, by what they would have been trained on."""
    return combined(set_by_hand(RANDOM, random, RANDOM_TRIGGERS), set_by_hand(FIXED, fixed, FIXED_TRIGGERS))


def _table(name: str, *, random: float = 0.9, attention: float = 0.9, fixed: float = 0.1) -> Case:
    """A planted outcome of models that have learned their task."""
    by_random = {"repeated": random, "frequent": random, "attention": attention, GATE: 1.0}
    by_fixed = {"repeated": fixed, "frequent": fixed, "attention": 0.1, GATE: 1.0}
    return table(name, {RANDOM: by_random, FIXED: by_fixed})


_ALWAYS, _NEVER = _models(any_token, any_token), _models(triggers_only, triggers_only)
_AT_MARGIN = _table("accuracy at the margin", random=HALF)

_B12 = birth(
    id="B12",
    statement="With random triggers the induction head works for any repeated token, with fixed ones it does not.",
    source=SOURCE,
    units=UNITS,
    gate=LEARNED,
    measure=measure,
    compare=by_triggers,
    explanation=TEXTS.explain("B12", n_frequent=N_FREQUENT),
    parts=(
        most("any", "above", HALF, "accuracy"),
        most("attends", "above", HALF, "share of attention"),
        most("not_fixed", "below", HALF, "accuracy"),
    ),
    factors={"tokens": ("frequent",), "length": (20,), "recipe": ("long",)},
    controls=controls(
        positive=(case("any token, triggers only", _models(any_token, triggers_only)),),
        negative=(
            case("any token, with fixed triggers too", _ALWAYS),
            case("triggers only", _NEVER),
            _AT_MARGIN,
            _table("attention at the margin", attention=HALF),
            _table("fixed at the margin", fixed=HALF),
            case("untrained", untrained(UNITS)),
        ),
    ),
)
B12 = _B12.against(
    _B12.rival(
        "triggers-only",
        "With random triggers too, what is no trigger is not continued.",
        source=f"against {SOURCE}",
        parts=(most("any", "below", HALF, "accuracy"),),
        controls=controls(positive=(case("triggers only", _NEVER),), negative=(case("any token", _ALWAYS), _AT_MARGIN)),
    ),
    _B12.rival(
        "frequent",
        "With random triggers the head works for the tokens that are frequent, as triggers were in training.",
        parts=(most("frequent", "above", HALF, "accuracy"),),
        controls=controls(positive=(case("any token", _ALWAYS),), negative=(case("triggers only", _NEVER), _AT_MARGIN)),
    ),
)
CLAIMS.add(B12.id, B12)
