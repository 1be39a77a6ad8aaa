"""Prompts from tables: the same as from lists, places by column, and refusals that name the line."""

import json

import pytest

from mnemoscope import InputError, Prompt, prompt_pairs, prompts
from mnemoscope.models import read_pairs, read_prompts
from tests.language_models import tokenizer

WORDS = tokenizer()
ROWS = [
    {"text": "The capital of France is", "answer": "Paris", "subject": "France"},
    {"text": "The capital of Italy is", "answer": "Rome", "subject": "Italy"},
]
PAIRS = [
    {"clean": "The cat sat on the mat", "corrupted": "The dog sat on the mat", "answer": "and", "foil": ".", "who": ""},
    {"clean": "When John went", "corrupted": "When Mary went", "answer": "and", "foil": ".", "who": "When"},
]


@pytest.fixture(params=["csv", "jsonl"])
def written(request, tmp_path):
    """Writes rows to a file of that kind."""

    def write(rows):
        path = tmp_path / f"prompts.{request.param}"
        if request.param == "jsonl":
            path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
        else:
            lines = [rows[0].keys(), *(row.values() for row in rows)]
            path.write_text("\n".join(",".join(f'"{cell}"' for cell in line) for line in lines) + "\n")
        return path

    return write


def test_a_table_is_the_batch_of_its_lists(written):
    found = read_prompts(written(ROWS), WORDS)
    texts = [Prompt.find(row["text"], subject=row["subject"]) for row in ROWS]
    expected = prompts(WORDS, texts, answers=["Paris", "Rome"])
    assert found.inputs.equal(expected.inputs)
    assert found.targets.equal(expected.targets)
    assert found.latents["subject"].tolist() == [4, 4]
    without = read_prompts(written([{"text": "The cat sat"}]), WORDS, bos=False)
    assert without.scored.tolist() == [[True, True, False]]


def test_a_table_of_pairs(written):
    path = written(PAIRS)
    found = read_pairs(path, WORDS)
    sides = ([row[side] for row in PAIRS] for side in ("clean", "corrupted"))
    expected = prompt_pairs(WORDS, *sides, answers=["and", "and"], foils=[".", "."])
    assert found.clean.inputs.equal(expected.clean.inputs)
    assert found.corrupted.inputs.equal(expected.corrupted.inputs)
    assert found.name == path.stem == "prompts"
    assert "who" not in found.clean.latents, "not every row names it"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,answer\nThe cat,sat,on\n", "row 1 must have as many cells as the header"),
        ("a.csv", "text,answer\n", "holds no row"),
        ("a.csv", "prompt\nThe cat\n", "must have the columns text; text is missing"),
        ("a.jsonl", '{"text": "The cat"}\n{"text"', "line 2 is no JSON"),
        ("a.jsonl", '{"text": 3}', "line 1 must be an object whose values are texts"),
        ("a.jsonl", '{"text": "a"}\n{"texts": "a"}', "line 2 must have the keys of the first line: text"),
        ("a.csv", "text,who\nThe cat,dog\n", "who: 'dog' must occur once in 'The cat'"),
        ("a.txt", "The cat", r"must be a table \*.csv or \*.jsonl; got .txt"),
    ],
)
def test_what_is_no_such_table_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_prompts(tmp_path / name, WORDS)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.csv cannot be read: No such file"):
        read_pairs(tmp_path / "nowhere.csv", WORDS)
