"""Analyses that keep results for the next call keep neither the model nor the batch alive."""

import gc
import weakref
from dataclasses import replace

import pytest

from mnemoscope.analyses import evaluation
from mnemoscope.claims.measures import ControlWork, MeasureCall, RunWork, do_work
from mnemoscope.core.presets import preset
from mnemoscope.models.building import build
from mnemoscope.models.subjects import Subject
from mnemoscope.systems.in_context_bigrams.analyses import head_attention
from mnemoscope.systems.in_context_bigrams.analyses.evaluation import learned as learned_in_context
from mnemoscope.systems.in_context_bigrams.claims import noisy_recall
from mnemoscope.systems.tiny_recall.analyses.attention import attention_by_role
from mnemoscope.systems.tiny_recall.claims import memory
from tests.claims.test_trials import D4, fake_run
from tests.support import random_model, seeded, small_spec
from tests.systems.in_context_bigrams.analyses.test_evaluation import TASK as IN_CONTEXT

LOOKUP = small_spec("v3", changes={"task.n_values": 4}).task.for_seed(0)
MEASURES = {
    "skills": lambda subject: evaluation.lowest_skill_accuracy(subject),
    "evaluation": lambda subject: evaluation.evaluate_subject(subject),
    "attention by role": lambda subject: attention_by_role(subject),
    "paths": lambda subject: memory.without_paths(subject),
}
FREED: list[tuple[weakref.ref, weakref.ref]] = []


def freed(*references: weakref.ref) -> bool:
    gc.collect()
    return all(reference() is None for reference in references)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_of_permutation_lookup(measure):
    subject = Subject(model=random_model(d_vocab=LOOKUP.d_vocab, n_ctx=LOOKUP.n_ctx), task=LOOKUP, seed=0)
    kept = weakref.ref(subject), weakref.ref(subject.model)
    assert measure(subject) is not None
    del subject
    assert freed(*kept)


def test_of_in_context_bigrams():
    model = random_model(d_vocab=IN_CONTEXT.d_vocab, n_ctx=IN_CONTEXT.n_ctx, n_layers=2)
    batch = IN_CONTEXT.sample(6, split="test", generator=seeded())
    subject = Subject(model=model, task=IN_CONTEXT, seed=0)
    kept = weakref.ref(subject), weakref.ref(model), weakref.ref(batch)
    head_attention(model, batch)
    learned_in_context(subject)
    del subject, model, batch
    assert freed(*kept)


def test_of_noisy_recall():
    spec = preset("noisy-recall", "quick", 0)
    task = replace(spec.task, length=16).for_seed(0)
    model = build(replace(spec.model, d_model=8, d_mlp=8), d_vocab=task.d_vocab, n_ctx=task.n_ctx, seed=0)
    subject = Subject(model=model, task=task, seed=0)
    kept = weakref.ref(subject), weakref.ref(model)
    noisy_recall.removals(subject, "mean")
    noisy_recall.truncations(subject, "W_out")
    del subject, model
    assert freed(*kept)


def noted(subject: Subject, *, number: int = 0) -> dict[str, float]:
    FREED.append((weakref.ref(subject), weakref.ref(subject.model)))
    return {"effect": float(number), "same": float(FREED[-1][0]() is FREED[0][0]())}


def planted(case: int) -> dict[str, Subject]:
    return {"one": Subject(model=random_model(), task=LOOKUP, seed=case)}


@pytest.mark.parametrize("kind", ["run", "plant"])
def test_of_what_is_measured_for_claims(kind, tmp_path):
    """A model is loaded once for all calls on it, and not kept after them."""
    FREED.clear()
    calls = (MeasureCall(noted), MeasureCall(noted, (("number", 1),)))
    piece = (
        RunWork(fake_run(tmp_path, D4, 0, 1.0), calls=calls)
        if kind == "run"
        else ControlWork(planted, 0, None, calls=calls)
    )
    found = do_work(piece, store=None)
    assert [found[call.key]["same"] for call in calls] == [1.0, 1.0]
    assert len(FREED) == 2
    assert freed(*(reference for pair in FREED for reference in pair))


def test_the_models_of_a_run_are_loaded_once_a_step(tmp_path, monkeypatch):
    FREED.clear()
    run = fake_run(tmp_path, D4, 0, 1.0, steps=(0, 2))
    last, steps = run.spec.recipe.n_steps, []
    whole = RunWork.load
    monkeypatch.setattr(RunWork, "load", lambda self, step: steps.append(step) or whole(self, step))
    do_work(
        RunWork(
            run,
            calls=tuple(MeasureCall(noted, (("number", n),), step=step) for n in range(2) for step in (0, None, last)),
        ),
        store=None,
    )
    assert sorted(map(str, steps)) == ["0", str(last), "None"]
    assert freed(*(reference for pair in FREED for reference in pair))
