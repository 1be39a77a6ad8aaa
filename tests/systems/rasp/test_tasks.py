"""The task of RASP programs: answers, sequences and minimal pairs."""

import pytest
import torch

from mnemoscope import InputError, PromptPairs
from mnemoscope.systems.rasp.programs import PROGRAMS
from mnemoscope.systems.rasp.tasks import Rasp, table
from tests.support import seeded

each_program = pytest.mark.parametrize("program", PROGRAMS)
SOME = pytest.mark.parametrize("program", ["hist", "induction", "sort_unique", "shuffle_dyck2", "detect_pattern"])
EXAMPLES = {
    "length": ("ab_a_", "3 3 3 3 3"),
    "hist": ("abaca", "3 1 3 1 3"),
    "double_hist": ("abaca", "3 2 3 2 3"),
    "frac_prevs": ("yxyyx", "none half some some some"),
    "pair_balance": ("()a)(", "+ 0 0 - 0"),
    "shuffle_dyck": ("(()())", "True True True True True True"),
    "shuffle_dyck2": ("({)}", "True True True True"),
    "reverse": ("abbca", "a c b b a"),
    "sort_unique": ("4215", "1 2 4 5"),
    "median": ("33112", "2 2 2 2 2"),
    "sort_freq": ("cabab", "a b a b c"),
    "most_freq": ("cabab", "a a a a a"),
    "dedup": ("abaca", "a b - c -"),
    "detect_pattern": ("ababa", "None None True False True"),
    "induction": ("abcab", "None None None b c"),
    "shift": ("abcab", "None a b c a"),
    "pointer": ("3120", "0 1 2 3"),
    "pointer_twice": ("1230", "3 0 1 2"),
    "sum_with_previous": ("01202", "None 1 0 2 2"),
}
"""Sequences and their answers, by hand."""


@pytest.mark.parametrize("program", EXAMPLES)
def test_answers_are_those_that_are_known_by_hand(program):
    shown, answers = EXAMPLES[program]
    tokens = {str(token): token for token in PROGRAMS[program].tokens}
    assert " ".join(map(str, PROGRAMS[program].answer([tokens[letter] for letter in shown]))) == answers


@each_program
def test_every_class_is_an_answer_except_counts_that_no_sequence_reaches(program):
    answers = {int(answer) for answer in table(program).answers.unique()} - {-1}
    named = [PROGRAMS[program].outputs[answer] for answer in answers]
    assert len(named) > 1
    assert set(named) == set(PROGRAMS[program].outputs) or PROGRAMS[program].outputs == tuple(range(6))


@SOME
def test_a_batch_holds_bos_the_sequence_and_its_answers(program):
    task = Rasp(program=program)
    batch = task.sample(12, split="test", generator=seeded())
    assert batch.symbols[0][0] == "BOS"
    assert not batch.scored[:, 0].any()
    for shown, targets, scored in zip(batch.inputs[:, 1:].tolist(), batch.targets, batch.scored, strict=True):
        due = task.definition.answer([task.definition.tokens[token] for token in shown])
        given = [
            batch.output_name(answer) if here else "None"
            for answer, here in zip(targets.tolist(), scored.tolist(), strict=True)
        ]
        assert given[1:] == list(map(str, due))


@SOME
@pytest.mark.parametrize("kind", Rasp.corruptions)
def test_pairs_have_other_answers_at_the_same_places(program, kind):
    task = Rasp(program=program)
    batch = task.sample(64, split="test", generator=seeded())
    pairs = PromptPairs.from_task(task, batch, kind=kind)
    changed = (pairs.answer != pairs.foil) & pairs.scored
    assert changed.any(1).all()
    assert torch.equal(task._batch(pairs.corrupted.latents["row"]).scored, pairs.clean.scored)
    n_other = (pairs.clean.inputs != pairs.corrupted.inputs).sum(1)
    assert (n_other == 1).all() if kind == "replace" else (n_other > 0).all()
    assert task.pair_report(pairs.clean, pairs.corrupted)["answers_changed"] > 0


@SOME
def test_an_enumeration_holds_what_is_sampled(program):
    task = Rasp(program=program)
    every = task.enumerate(split="test")
    assert len(every) == len({tuple(row) for row in every.inputs.tolist()})
    drawn = task.sample(200, split="train", generator=seeded())
    assert set(drawn.latents["row"].tolist()) <= set(every.latents["row"].tolist())


def test_tokens_differ_where_a_program_says_so():
    shown = Rasp(program="sort_unique").enumerate(split="test").inputs
    assert (shown.sort(1).values.diff(dim=1) > 0).all()


def test_references_are_distributions():
    task = Rasp(program="detect_pattern")
    batch = task.enumerate(split="test")
    answer, frequency = (task.reference(batch, name) for name in Rasp.references)
    assert torch.equal(answer[batch.scored].argmax(-1), batch.targets[batch.scored])
    assert torch.allclose(frequency[batch.scored].sum(-1), torch.ones(int(batch.scored.sum())).double())
    assert frequency[~batch.scored].isnan().all()


def test_an_unknown_program_is_refused():
    with pytest.raises(InputError, match=r"task\.program must be one of"):
        Rasp(program="histogram")
