"""The commands about claims where these are about language models."""

import json
from unittest import mock

import pytest

from mnemoscope.claims.claim import CLAIMS, Claim
from mnemoscope.cli import main
from mnemoscope.core.presets import SYSTEMS, System
from tests.language_models import save

NAME = "toy-language"


def halves(model):
    """Half of the questions have an effect above 0."""
    return {"effect": [(-1.0) ** i for i in range(20)]}


CLAIM = Claim(
    id="Z1", statement="Half do.", source="made up", quantifier="most", margin=0.0, replicate="question",
    measure=halves, develops=False, system=NAME,
)  # fmt: skip


@pytest.fixture(autouse=True)
def system(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)
    for registry in (SYSTEMS, CLAIMS):
        registry.names()  # the installed ones are there before
    with mock.patch.dict(SYSTEMS._items), mock.patch.dict(CLAIMS._items):
        SYSTEMS.add(NAME, System(summary="toys", quick=(), full=()))
        CLAIMS.add("Z1", CLAIM)
        yield


@pytest.mark.full
@pytest.mark.parametrize("n_models", [1, 2])
def test_models_are_named_by_an_option_that_may_be_repeated(n_models, tmp_path, capsys):
    names = [str(save("gpt2", tmp_path / f"model-{i}", i)) for i in range(n_models)]
    main(["claims", "run", NAME, "--jobs", "1", "--out", "out", *(f"--model={name}" for name in names)])
    (verdict,) = json.loads((tmp_path / "out/verdicts.json").read_text())
    assert verdict["models"] == names
    assert verdict["outcome"] == ("MIXED" if n_models == 1 else "NOT_APPLICABLE")
    assert verdict["n"] == (20 if n_models == 1 else 2)
    page = (tmp_path / "out/report.html").read_text()
    assert ("a question is the unit" if n_models == 1 else "a model is the unit") in page
    assert names[0] in page
    assert "MIXED" in capsys.readouterr().out or n_models == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["claims", "run", NAME], "Z1 is about language models: name one with --model"),
        (["claims", "run", "T1", "--model", "smollm2"], "none of the claims T1 is about language models"),
        (["claims", "run", "Z1", "--jobs", "1", "--model", "no-such.gguf"], "no-such.gguf does not exist"),
        (["reproduce", NAME], f"mnemoscope claims run {NAME} --model smollm2"),
    ],
)
def test_a_missing_and_a_needless_model_are_refused(words, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_show_says_what_it_is_asked_of(capsys):
    main(["claims", "show", "Z1"])
    shown = capsys.readouterr().out
    assert "language models that --model names" in shown
    assert "16 questions or more" in shown
