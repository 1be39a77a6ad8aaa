"""What tasks know of a sequence that is typed, beside what a model predicts."""

import re

import pytest
import torch

from mnemoscope.core.errors import InputError
from mnemoscope.core.positions import position_names
from mnemoscope.core.presets import preset
from mnemoscope.models.building import build_untrained
from mnemoscope.report.task_report import find_report
from mnemoscope.systems.factual_recall.report import parse, symbols
from mnemoscope.systems.factual_recall.tasks import FactualRecall
from mnemoscope.systems.in_context_bigrams.known import known_of
from mnemoscope.systems.in_context_bigrams.tasks import InContextBigrams, NoisyRecall
from mnemoscope.systems.k_hop.constructed import doubling
from mnemoscope.systems.k_hop.tasks import KHop


def test_hidden_triggers_leave_what_stood_there_before():
    task = InContextBigrams(length=16)
    assert known_of(task, task.parse("abcab")) == ["", "", "", "stood at 0, before b", "stood at 1, before c"]


def test_known_triggers_have_their_output_once_it_was_shown():
    task = NoisyRecall(length=16, n_tokens=8, n_triggers=1)
    trigger = str(task.fixed_triggers[0])
    other = "6" if trigger != "6" else "5"
    words = known_of(task, task.parse(f"{trigger} ¤ {trigger} {other} {trigger} {other} {trigger}"))
    assert words[0] == "trigger, occurrence 1; output not shown yet"
    assert words[2] == "trigger, occurrence 2; output not shown yet"
    assert words[4] == f"trigger, occurrence 3; output {other} shown 1 time"
    assert words[6] == f"trigger, occurrence 4; output {other} shown 2 times"
    assert words[1] == words[3] == ""


FACTS = FactualRecall(n_subjects=4, n_relations=3, n_answers=2, n_noise=5, length=6, facts_seed=0)


def test_a_fact_is_typed_by_symbols_or_numbers():
    batch = parse(FACTS, "n1 r2 s3 ?")
    assert [symbols(FACTS)[token] for token in batch.inputs[0].tolist()] == ["n1", "r2", "s3", "?"]
    assert int(batch.targets[0, -1]) == int(FACTS.table()[3, 2])
    assert torch.equal(parse(FACTS, " ".join(map(str, batch.inputs[0].tolist()))).inputs, batch.inputs)
    assert len(symbols(FACTS)) == FACTS.d_vocab


@pytest.mark.parametrize("text", ["n1 r2 ?", "s1 s2 r0 ?", "s1 r0 n1", "s1 ? r0 ?", "s9 r0 ?", "s1 ?", "99 s1 r0 ?"])
def test_what_is_no_fact_is_refused(text):
    with pytest.raises(InputError):
        parse(FACTS, text)


def predicted(task, model, text):
    entry = find_report(task)
    (table,) = entry.prediction_tables(entry.predict(model, task, entry.parse(task, text)))
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


def test_the_fact_stands_beside_what_the_model_says():
    spec = preset(
        "facts-softmax",
        "quick",
        0,
        changes={
            f"task.{name}": getattr(FACTS, name)
            for name in ("n_subjects", "n_relations", "n_answers", "n_noise", "length", "facts_seed")
        },
    )
    rows = predicted(FACTS, build_untrained(spec), "n1 r2 s3 ?")
    fact = symbols(FACTS)[int(FACTS.table()[3, 2])]
    assert [row["what the task knows"] for row in rows] == [
        "",
        "the relation",
        "the subject",
        f"the fact {fact}; r2 has a4 to a5",
    ]
    assert rows[-1]["next"] == fact
    assert rows[-1]["fact: p"] == "1.000"
    assert not any(rows[0][name] for name in ("next", "model: likeliest", "model: p", "KL"))


def test_hops_are_followed_from_place_to_place():
    task = KHop(hidden_seed=0)
    rows = predicted(task, doubling(task), "0 1 2 3 1 0 2 3 0 1 2 3 1 0 2 3")
    assert [row["position"] for row in rows] == list(position_names(task))
    for row in rows:
        reached = [int(symbol) for symbol in re.findall(r"=(\d)", row["hops read"])]
        for name, n in (("1 hop", 1), ("2 hops", 2), ("4 hops", 4)):
            due, guess = map(int, re.match(r"(\d): (\d)", row[name]).groups())
            assert due == guess == reached[n - 1]


@pytest.mark.parametrize("text", ["0 1 2", "0 0 1 2 " * 4, "0 1 2 4 " * 4])
def test_what_is_no_permutation_is_refused(text):
    with pytest.raises(InputError):
        find_report(KHop()).parse(KHop(hidden_seed=0), text)
