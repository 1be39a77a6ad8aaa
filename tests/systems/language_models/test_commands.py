"""`mnemoscope prompts stability`: a circuit that is known, a random model that was saved, and what is refused."""

import csv

import pytest
import torch
import xarray as xr
from transformers import LlamaConfig, LlamaForCausalLM

import mnemoscope as ms
from mnemoscope.cli import main
from mnemoscope.systems.language_models import constructed
from mnemoscope.systems.language_models.words import STORIES, vocabulary

COMMAND = ["prompts", "stability"]
FEW = ["--n", "4", "--n-draws", "2", "--n-random", "5"]
NAMING = {"input → L1H0 v", "L1H0 → L2H0 q", "L2H0 → logits"}
"""The circuit of `constructed.naming`: who is said again, told to the name mover, which writes the other name."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Random weights with a tokenizer of whole words, as Hugging Face saves it; 14,000 edges."""
    words = constructed.tokenizer("stories")
    sizes = {"hidden_size": 32, "intermediate_size": 8, "num_hidden_layers": 6, "num_attention_heads": 16}
    config = LlamaConfig(vocab_size=len(words), max_position_embeddings=40, pad_token_id=0, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    place = tmp_path_factory.mktemp("saved") / "tiny"
    model.save_pretrained(place)
    words.save_pretrained(place)
    return place


@pytest.fixture
def naming(monkeypatch):
    """The model with weights set by hand, whatever its name; it knows the words of both sets of stories."""
    said = [word for story in STORIES["talking"] for word in story.split() if "{" not in word]
    words = list(dict.fromkeys([*vocabulary("stories"), *said]))
    monkeypatch.setattr(constructed, "vocabulary", lambda *of: words)
    model = constructed.naming(0)["model"]
    monkeypatch.setattr(ms.models, "named_language_model", lambda source, **options: model)


@pytest.fixture(autouse=True)
def empty_directory(tmp_path, monkeypatch, as_installed):
    monkeypatch.chdir(tmp_path)


def test_the_circuit_of_a_hand_set_model_stays(naming, tmp_path, capsys):
    main([*COMMAND, "--model", "by-hand", *FEW, "--searches", "eap-ig", "--metrics", "logit_diff", "log_prob"])
    out, place = capsys.readouterr().out, tmp_path / "results/prompts-stability"
    found = xr.load_dataset(place / "stability.nc", engine="h5netcdf")
    assert found.change.values.tolist() == ["other prompts", "metric log_prob", "all at once"]
    usual = found.sel(change="other prompts")
    assert set(usual.edge.values[usual.core.values == 1]) == NAMING
    assert float(usual.jaccard) == 1 > float(usual.by_chance)
    assert "Circuits for names overlap 1.00" in out
    assert "There are other wordings of these prompts" in (place / "stability.html").read_text(encoding="utf-8")
    rows = list(csv.DictReader((place / "core.csv").open(encoding="utf-8")))
    assert {row["edge"] for row in rows} == NAMING
    assert set(rows[0]) == {
        "skill",
        "edge",
        "other prompts",
        "by chance",
        "all at once",
        "by chance, all",
        "q ≤ 0.05",
        "core",
    }


@pytest.mark.full
def test_wordings_and_another_search_are_changes_of_their_own(naming, tmp_path):
    main([*COMMAND, *FEW, "--wordings", "--out", "out"])
    found = xr.load_dataset(tmp_path / "out/stability.nc", engine="h5netcdf")
    assert found.change.values.tolist() == ["other prompts", "wording talking", "search top n by EAP", "all at once"]
    page = (tmp_path / "out/stability.html").read_text(encoding="utf-8")
    assert "Searches: top n by EAP-IG, the usual one, then top n by EAP." in page
    assert "question and answer stay" in page


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--max-seconds", "0.01"], "circuits of a graph with"),
        (["--searches", "greedy", "--max-seconds", "1"], "leave out searches that run each edge"),
        (["--metrics", "accuracy"], "does not fit metric accuracy"),
        (["--family", "facts"], "tells no three answers to the facts apart"),
    ],
)
def test_what_a_model_does_not_allow_is_one_line(saved, words, named, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main([*COMMAND, "--model", str(saved), *FEW, *words])
    assert end.value.code == 2
    assert named in capsys.readouterr().err.strip().splitlines()[-1]
    assert not list(tmp_path.iterdir())
