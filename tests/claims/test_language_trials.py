"""Claims about language models on trial: questions of one model, or models, are the replicates."""

import math
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.claims import measures
from mnemoscope.claims.judge import judge
from mnemoscope.claims.replicates import PASSING, as_replicates, average_prompts
from mnemoscope.claims.ruling import ruling_record
from mnemoscope.claims.trials import run_trials
from tests.language_models import N_TOKENS, save

N = 20


def widths(model, *, add: float = 0.0):
    """A number per question, known from the model; every fourth question has no gate."""
    assert model.tokenizer.bos_token == "<bos>"
    numbers = np.arange(N) + model.cfg.n_heads + add
    return {"effect": numbers, "gate": np.where(np.arange(N) % 4, 1.0, math.nan)}


def whole(model):
    """A number of the model."""
    return {"effect": float(model.cfg.d_vocab), "gate": float(model.cfg.n_layers)}


def hopeless(model):
    """A model that passes with no question."""
    return {"effect": np.arange(4.0), "gate": np.full(4, math.nan)}


def uneven(model):
    """Numbers of which one is not per question."""
    return {"effect": np.arange(4.0), "gate": 1.0}


def numbers(case: int):
    """What was measured on a planted model."""
    return {"model": {"effect": np.array([10.0, 20.0]), "gate": np.array([1.0, math.nan])}}


def a_model(case: int):
    """A planted model with its tokenizer."""
    from tests.language_models import tokenizer

    made = ms.models.build(ms.ModelSpec(n_layers=1, d_model=9, n_heads=3), d_vocab=N_TOKENS, n_ctx=8, seed=case)
    made.tokenizer = tokenizer()
    return {"model": made}


def make(**changes):
    terms = {
        "id": "X", "statement": "made up", "source": "made up", "quantifier": "most", "margin": 5.5, "develops": False,
        "gate": ms.Gate(statement="has a gate of 1", at_least=1.0), "replicate": "question", "measure": widths,
    }  # fmt: skip
    return ms.Claim(**{**terms, **changes})


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    return [save("gpt2", place / f"seed-{seed}", seed) for seed in range(2)]


def test_questions_of_one_model_are_replicates_and_those_that_fail_the_gate_are_set_aside(directories):
    (ruling,) = run_trials([make()], [], models=directories[:1])
    # Four heads: effects 4, 5, …, 23; of the 15 that pass, questions 2, 3, 5, 6, …, 19 lie above 5.5.
    assert ruling.evidence.replicate == "question"
    assert ruling.evidence.effects.effect.values.tolist() == [4.0 + i for i in range(N)]
    assert (ruling.verdict.n, ruling.verdict.n_failed) == (15, 5)
    assert ruling.verdict.share == pytest.approx(14 / 15)
    assert ruling.evidence.models == [str(directories[0])]
    assert ruling.verdict.outcome == "INCONCLUSIVE"
    assert "15 of 20 questions pass the gate" in ruling.reason


def test_of_several_models_each_counts_once_with_the_mean_over_questions_that_pass(directories):
    claim = make(rivals=(make().rival("none", "it is not", quantifier="most", margin=5.0, direction="below"),))
    (ruling,) = run_trials([claim], [], models=directories)
    assert ruling.claim.replicate == ruling.evidence.replicate == "model"
    passing = [4.0 + i for i in range(N) if i % 4]
    assert ruling.evidence.effects.effect.values.tolist() == [np.mean(passing)] * 2
    assert ruling.evidence.effects[PASSING].values.tolist() == [15.0, 15.0]
    assert ruling.evidence.labels.tolist() == [str(each) for each in directories]
    assert ruling.verdict.outcome == ruling.rivals["X-none"].outcome == "NOT_APPLICABLE"
    assert ruling.verdict.effect == np.mean(passing)
    assert ruling_record(ruling)["models"] == [str(each) for each in directories]
    assert ruling.typical() in ruling.evidence.labels


def test_a_claim_per_model_counts_one_model_once(directories):
    claim = make(replicate="model", measure=whole, gate=ms.Gate(statement="has two layers", at_least=2.0))
    (ruling,) = run_trials([claim], [], models=directories[:1])
    assert ruling.evidence.effects.effect.values.tolist() == [N_TOKENS]
    assert (ruling.verdict.outcome, ruling.verdict.n) == ("NOT_APPLICABLE", 1)
    assert "a verdict needs 16 models" in ruling.reason


def test_sixteen_models_give_a_verdict():
    claim = make(replicate="model", gate=None)
    models = [f"model-{i}" for i in range(16)]
    each = dict(as_replicates(claim, models, [{"effect": np.array([6.0, 8.0])}] * 16))
    assert each == {model: {"effect": 7.0} for model in models}
    effects = xr.DataArray([7.0] * 16, coords={"model": models}, dims="model")
    assert judge(claim, ms.claims.Evidence(effects=effects, replicate="model")).outcome == "SUPPORTED"


def test_a_model_without_a_question_that_passes_fails_and_shows_its_effect():
    found = average_prompts(make(measure=hopeless), hopeless(None))
    assert found["effect"] == 1.5
    assert found[PASSING] == 0
    assert math.isnan(found["gate"])


def test_planted_models_are_measured_and_planted_numbers_taken_over_questions_that_pass(directories):
    controls = (
        ms.Control(name="a model", kind="positive", plant=a_model, n=2),
        ms.Control(name="numbers", kind="positive", plant=numbers, n=2),
    )
    (ruling,) = run_trials([make(controls=controls)], [], models=directories[:1])
    assert ruling.evidence.controls["numbers"].effect.values.tolist() == [10.0, 10.0]
    three_heads = np.mean([3.0 + i for i in range(N) if i % 4])
    assert ruling.evidence.controls["a model"].effect.values.tolist() == [three_heads] * 2


def test_factors_are_keywords_of_the_measure(directories):
    (ruling,) = run_trials([make(factors={"add": (-10.0,)})], [], models=directories[:1])
    assert ruling.sensitivity[0].verdict.effect == pytest.approx(ruling.verdict.effect - 10)


def test_a_model_is_loaded_once_and_not_again_where_results_are_kept(directories, tmp_path, monkeypatch):
    loads = []
    load = measures.named_language_model
    monkeypatch.setattr(measures, "named_language_model", lambda *a, **k: (loads.append(a), load(*a, **k))[1])
    claims = [make(factors={"add": (1.0, 2.0)}), make(id="Y", measure=whole, replicate="model")]
    first = run_trials(claims, [], models=directories[:1], store=tmp_path)
    again = run_trials(claims, [], models=directories[:1], store=tmp_path)
    assert len(loads) == 1
    assert [ruling.verdict.effect for ruling in first] == [ruling.verdict.effect for ruling in again]
    other = save("gpt2", tmp_path / "other", 5)
    run_trials(claims[:1], [], models=[other], store=tmp_path, sensitivity=False)
    save("gpt2", other, 6)
    run_trials(claims[:1], [], models=[other], store=tmp_path, sensitivity=False)
    assert len(loads) == 3


def test_what_cannot_be_asked_is_refused(directories):
    with pytest.raises(ms.InputError, match="claim X is about language models; name some"):
        run_trials([make()], [])
    with pytest.raises(ms.InputError, match="more than once"):
        run_trials([make()], [], models=directories[:1] * 2)
    with pytest.raises(ms.InputError, match=r"an entry per question; got effect \[4\], gate \[\]"):
        run_trials([make(measure=uneven)], [], models=directories[:1])
    with pytest.raises(ms.InputError, match="leave out its units"):
        make(units={"a": ms.Configuration(preset="v3")})
    with pytest.raises(ms.InputError, match="give none"):
        make(prompts="shared")


@pytest.mark.full
def test_a_headline_asks_as_many_models_as_questions(directories):
    headline = make(headline=True, n_replicates=32)
    (ruling,) = run_trials([headline], [], models=directories)
    assert ruling.claim.n_replicates == 32
    (ruling,) = run_trials([replace(headline, headline=False, n_replicates=48)], [], models=directories)
    assert ruling.claim.n_replicates == 16
