"""Models without a run: a subject, and any hooked model with sequences."""

import pytest
import torch

import mnemoscope as ms
from mnemoscope.explorer.content import model_content
from mnemoscope.explorer.packing import Packer
from tests.explorer.chromium import needs_chromium
from tests.explorer.test_page import seen
from tests.support import foreign_model, random_model

TOKENS = torch.tensor([[1, 4, 2, 3, 5], [2, 2, 0, 1, 3], [5, 1, 3, 4, 4]])


def scored(tokens, *places, **fields):
    where = torch.zeros_like(tokens, dtype=torch.bool)
    where[:, list(places)] = True
    return ms.Batch(inputs=tokens, targets=tokens, scored=where, **fields)


def test_tokens_are_read_at_the_last_position_and_a_batch_where_it_is_scored():
    model = random_model()
    content = model_content(model, TOKENS, Packer())
    assert content.scored == [4]
    assert content.reference == TOKENS.tolist()
    assert content.symbols == list("012345")
    assert content.task is None
    assert model_content(model, TOKENS, Packer(), pos=[0, -2]).scored == [0, 3]
    batch = scored(TOKENS, 1, 2, symbol="abcdef".__getitem__)
    content = model_content(model, batch, Packer())
    assert content.scored == [1, 2]
    assert content.symbols == list("abcdef")
    assert model_content(model, batch, Packer(), symbols=["\n", *"vwxyz"]).symbols == list("⏎vwxyz")


def test_tokens_may_be_inputs_that_the_model_never_answers():
    model = foreign_model(d_vocab_out=4)
    assert int(TOKENS[:, -1].max()) > 3
    assert model_content(model, TOKENS, Packer()).scored == [4]


def test_padded_sequences_keep_their_lengths():
    lengths = torch.tensor([5, 4, 5])
    assert model_content(random_model(), scored(TOKENS, 1, lengths=lengths), Packer()).lengths == [5, 4, 5]
    assert model_content(random_model(), scored(TOKENS, 1), Packer()).lengths == []


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "needs sequences"),
        ({"sequences": TOKENS[0]}, r"shape \(5,\)"),
        ({"sequences": TOKENS.float()}, "float32"),
        ({"sequences": TOKENS[:, :0]}, "at least one token"),
        ({"sequences": TOKENS + 1}, "token 6"),
        ({"sequences": TOKENS.repeat(1, 2)}, "the batch has 10"),
        ({"sequences": TOKENS, "symbols": [*"abc"]}, "6 tokens; got 3"),
        ({"sequences": TOKENS, "pos": 5}, "pos must be from -5 to 4"),
        ({"sequences": TOKENS, "pos": []}, "at least one position"),
    ],
)
def test_sequences_that_do_not_fit_are_refused(given, word):
    with pytest.raises(ms.InputError, match=word):
        ms.explore(random_model(), **given)


def test_larger_models_are_refused_and_tasks_bring_their_own_sequences(tiny):
    with pytest.raises(ms.InputError, match="1,000,000"):
        ms.explore(foreign_model(n_ctx=130_000), TOKENS)
    with pytest.raises(ms.InputError, match="without a task"):
        ms.explore(tiny, TOKENS)


def test_of_many_sequences_the_first_are_kept():
    content = model_content(random_model(), TOKENS.repeat(200, 1), Packer())
    assert len(content.reference) == 256
    assert content.python.drawn == "batch(sequences[:256])"


SAID = """
document.querySelector('.stream li:nth-child(4) .switch').click();
document.querySelector('table.patches button').click();
const { state } = explorer;
return {
  kinds: state.edits.map(({ kind }) => kind), pos: state.pos, differ: state.tokens.join() !== state.other.join(),
  python: document.getElementById("python").textContent,
  said: [...document.querySelectorAll("table.says tr")].slice(1).map((row) => row.cells[2].textContent),
  tokens: [...document.querySelectorAll("table.says th[scope=row]")].map((cell) => cell.textContent),
  notes: [...document.querySelectorAll(".note")].map((note) => note.textContent),
  finding: document.querySelector(".finding").textContent,
  predictors: explorer.predictors.names.length,
  text: document.querySelector("#explorer").textContent,
};
"""


@needs_chromium
@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["tokens", "batch", "subject"])
def test_the_page_of_a_model_without_a_run_works(kind, tiny, tmp_path, capsys):
    model, sequences, symbols = random_model(n_layers=2), TOKENS, list("abcdef")
    subject = ms.Subject(model=tiny.model(), task=tiny.spec.task, seed=3)
    if kind == "subject":
        page, symbols = ms.explore(subject), list("012345")
    else:
        sequences = sequences if kind == "tokens" else scored(TOKENS, 2, 4)
        page = ms.explore(model, sequences, symbols=symbols)
    found, complaints = seen(page.html(), tmp_path, SAID)
    assert not complaints
    assert sorted(found["kinds"]) == ["mean", "patch"]
    assert found["differ"]
    assert not {"undefined", "[object", "NaN"} & set(found["text"].split())
    says_so = any("without a task" in note for note in found["notes"])
    assert (says_so, found["predictors"] == 0) == ((False, False) if kind == "subject" else (True, True))
    assert ("exact predictor" in found["finding"]) == (kind == "subject")
    names = {"model": model, "sequences": sequences, "subject": subject}
    exec(found["python"], names)
    capsys.readouterr()
    expected = names["logits"][found["pos"]].softmax(-1)[[symbols.index(token) for token in found["tokens"]]]
    assert [float(p) for p in found["said"]] == pytest.approx(expected.tolist(), abs=0.0051)
