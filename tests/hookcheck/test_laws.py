"""Good models keep every law, and every law catches the fault that it is made for."""

import pytest

from mnemoscope.hookcheck.check import check_model
from mnemoscope.hookcheck.law import Law
from mnemoscope.hookcheck.laws import LAWS
from mnemoscope.interventions.subject import TestSubject, make_subject
from mnemoscope.models.hooked.transformer import HookedTransformer
from mnemoscope.records.record import records
from tests.hookcheck.good import CHANGES, good
from tests.support import random_model


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CHANGES)
def test_a_good_model_keeps_every_law(name):
    report = check_model(good(name))
    assert report.broken == (), str(report)
    refused = {law: finding for law, finding in report.findings.items() if finding.outcome == "refused"}
    assert refused == {}


SIZES = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 10, "n_ctx": 8, "d_vocab": 10}
KINDS = {
    "linear": {"softmax": False, "normalization": "none"},
    "mixed": {"attention_mix": 0.5},
    "masked": {"attention_dir": "bidirectional", "masked": -1},
    "without attention": {"attention": False},
    "without positions": {"positions": False},
    "vectors of distances": {"position_kind": "relative"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_the_package_keep_every_law(kind):
    report = check_model(random_model(**KINDS[kind]))
    assert report.broken == (), str(report)


@pytest.mark.full
@pytest.mark.parametrize("name", ["llama", "window", "post-norms"])
def test_the_model_that_stands_for_transformerlens_keeps_every_law(name):
    """It takes the place of TransformerLens's own on the line that no longer has one."""
    report = check_model(HookedTransformer({**SIZES, "act_fn": "gelu_new", **CHANGES[name]}))
    assert report.broken == (), str(report)


def kept_by(law: Law) -> str:
    """The first good model that the law applies to and holds for."""
    for name in CHANGES:
        if law.examine(make_subject(good(name))).outcome == "holds":
            return name
    raise AssertionError(f"{law.name} applies to no good model")


@pytest.mark.every_case
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_its_mutant_is_caught(law):
    mutant: TestSubject = make_subject(law.mutant(good(kept_by(law))))
    finding = law.examine(mutant)
    assert finding.outcome == "broken", finding
    assert finding.amount is not None
    assert finding.amount > 1e-6


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_it_says_what_it_is(law):
    assert law.sentence.endswith(".")
    assert law.reason.endswith(".")
    assert set(law.analyses) <= {*records()}
    assert law.analyses
