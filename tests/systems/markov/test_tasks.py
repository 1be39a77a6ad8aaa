"""In-context Markov chains: chains, walks, exact predictors against sums by hand, and pairs."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import pytest
import torch

import mnemoscope as ms
from mnemoscope import InputError
from mnemoscope.core import metrics
from mnemoscope.systems.markov import chains, predictors
from mnemoscope.systems.markov.presets import UNIGRAM_STEPS
from mnemoscope.systems.markov.tasks import KINDS, MarkovChains
from mnemoscope.training.schedule import task_at
from tests.support import seeded

TASK = MarkovChains()
EACH = {
    "k = 2": MarkovChains(n_symbols=2),
    "k = 3": TASK,
    "n = 3": MarkovChains(n_symbols=2, order=2),
    "balanced": MarkovChains(doubly_stochastic=1.0),
    "mixture": MarkovChains(equal_rows=0.4, doubly_stochastic=0.3),
    "finite": MarkovChains(n_chains=5, chains_seed=1),
}


def drawn(task=TASK, n: int = 200, split: str = "test"):
    return task.sample(n, split=split, generator=seeded())


def test_stationary_shares_stay_and_add_up():
    rows, _ = MarkovChains(n_symbols=4).draw_chains(50, seeded())
    shares = chains.stationary(rows)
    torch.testing.assert_close((shares[:, None] @ rows)[:, 0], shares)
    torch.testing.assert_close(shares.sum(1), torch.ones(50, dtype=torch.double))
    states = chains.state_chain(MarkovChains(n_symbols=3, order=2).draw_chains(4, seeded())[0])
    assert states.shape == (4, 9, 9)
    assert states[0, 3 * 1 + 2].nonzero()[:, 0].tolist() == [
        3 * 2 + c for c in range(3)
    ]  # b c is followed by c and any
    shares = chains.stationary(states)
    torch.testing.assert_close((shares[:, None] @ states)[:, 0], shares)


def test_walks_have_the_shares_of_their_chain_from_the_first_symbol_on():
    rows = torch.tensor([[[0.9, 0.1], [0.5, 0.5]]], dtype=torch.double).expand(20_000, -1, -1)
    tokens = chains.walk(rows, 1, 6, seeded())
    for place in range(6):  # stationary: 5/6 and 1/6
        assert float((tokens[:, place] == 0).double().mean()) == pytest.approx(5 / 6, abs=0.012)
    pairs = Counter(map(tuple, tokens[:, 2:4].tolist()))
    assert pairs[0, 1] / (pairs[0, 0] + pairs[0, 1]) == pytest.approx(0.1, abs=0.01)
    assert pairs[1, 0] / (pairs[1, 0] + pairs[1, 1]) == pytest.approx(0.5, abs=0.03)
    second = torch.zeros(1, 4, 2, dtype=torch.double).expand(500, -1, -1).clone()
    second[:, [0, 1, 2, 3], [1, 1, 0, 0]] = 1  # aa → b, ab → b, ba → a, bb → a: a a b b a a b b …
    walked = chains.walk(0.999999 * second + 5e-7, 2, 40, seeded())
    assert all("aabbaabb" in "".join("ab"[t] for t in row) for row in walked.tolist())


def test_priors_are_what_they_say():
    rows, kind = EACH["mixture"].draw_chains(4000, seeded())
    torch.testing.assert_close(rows.sum(-1), torch.ones(4000, 3, dtype=torch.double))
    shares = [float((kind == number).double().mean()) for number in range(len(KINDS))]
    assert shares == pytest.approx([0.3, 0.3, 0.4], abs=0.03)
    torch.testing.assert_close(rows[kind == 1].sum(1), torch.ones(int((kind == 1).sum()), 3, dtype=torch.double))
    assert (rows[kind == 2] == rows[kind == 2][:, :1]).all()
    free = rows[kind == 0]
    assert float(free.var(0).mean()) == pytest.approx(2 / 9 / 4, rel=0.1)  # of Dirichlet(1, 1, 1)
    assert abs(float(torch.corrcoef(free[:, :2, 0].T)[0, 1])) < 0.1


def test_finitely_many_chains_follow_their_seed_and_tests_have_others():
    task = MarkovChains(n_chains=3).for_seed(4)
    assert task.chains_seed == 4
    rows, _ = task.known_chains()
    train, test = (drawn(task, split=split) for split in ("train", "test"))
    assert torch.equal(train.known["transitions"], rows[train.known["chain"]])
    assert (test.known["chain"] == -1).all()
    assert len({str(row) for row in test.known["transitions"].tolist()}) == 200
    assert not torch.equal(rows, MarkovChains(n_chains=3).for_seed(5).known_chains()[0])
    with pytest.raises(InputError, match=r"task\.chains_seed is not set"):
        MarkovChains(n_chains=3).known_chains()
    assert TASK.for_seed(4) == TASK


def by_hand(tokens: list[int], size: int, k: int) -> list[float]:
    """An n-gram predictor, by counting."""
    context = tokens[len(tokens) - size :] if size else []
    counts = [1.0] * k
    for end in range(size, len(tokens)):
        if tokens[end - size : end] == context and len(context) == size:
            counts[tokens[end]] += 1
    return [count / sum(counts) for count in counts]


@pytest.mark.parametrize("name", EACH)
def test_n_grams_are_counts_plus_one(name):
    task = EACH[name]
    batch = drawn(task, 3)
    for size, reference in enumerate(("unigram", "bigram", "trigram")[: task.order + 1]):
        found = task.reference(batch, reference)
        for row, pos in product(range(3), (0, 1, 2, 17, 98)):
            expected = by_hand(batch.inputs[row, : pos + 1].tolist(), size, task.n_symbols)
            assert found[row, pos].tolist() == pytest.approx(expected)
    assert (task.reference(batch, "uniform") == 1 / task.n_symbols).all()


def test_a_posterior_weighs_priors_by_what_they_gave():
    task = MarkovChains(n_symbols=2, equal_rows=0.25, doubly_stochastic=0.25)
    batch = drawn(task, 4)
    found = task.reference(batch, "posterior")
    for row in range(4):
        tokens, evidence = batch.inputs[row].tolist(), [0.5, 0.25, 0.25]
        for pos in range(len(tokens)):
            seen = tokens[: pos + 1]
            stays = sum(a == b for a, b in pairwise(seen))
            stay = (stays + 1) / (pos + 2)
            of_last = [stay, 1 - stay] if seen[-1] == 0 else [1 - stay, stay]
            each = [by_hand(seen, 1, 2), of_last, by_hand(seen, 0, 2)]
            expected = [sum(w * p[x] for w, p in zip(evidence, each, strict=True)) / sum(evidence) for x in range(2)]
            assert found[row, pos].tolist() == pytest.approx(expected)
            if pos + 1 < len(tokens):
                evidence = [w * p[tokens[pos + 1]] for w, p in zip(evidence, each, strict=True)]
    assert "posterior" not in MarkovChains(doubly_stochastic=0.5).references
    assert TASK.references == ("uniform", "unigram", "bigram", "chain")


def test_retrieval_weighs_chains_by_the_symbols_so_far():
    task = EACH["finite"]
    batch, (rows, _) = drawn(task, 3, "train"), task.known_chains()
    shares = chains.stationary(rows)
    unigram, bigram = (task.reference(batch, f"{name}_retrieval") for name in ("unigram", "bigram"))
    for row, pos in product(range(3), (0, 1, 30)):
        seen = batch.inputs[row, : pos + 1].tolist()
        likely = [math.prod(float(shares[d, x]) for x in seen) for d in range(5)]
        expected = sum(w * shares[d] for d, w in enumerate(likely)) / sum(likely)
        torch.testing.assert_close(unigram[row, pos], expected)
        steps = [
            float(shares[d, seen[0]]) * math.prod(float(rows[d, a, b]) for a, b in pairwise(seen)) for d in range(5)
        ]
        torch.testing.assert_close(
            bigram[row, pos], sum(w * rows[d, seen[-1]] for d, w in enumerate(steps)) / sum(steps)
        )
    with pytest.raises(InputError, match="reference must be one of: uniform, unigram, bigram, chain; got"):
        TASK.reference(batch, "bigram_retrieval")


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("k = 3", "bigram"),
        ("n = 3", "trigram"),
        ("mixture", "bigram"),
        ("balanced", "bigram"),
        ("finite", "bigram_retrieval"),
    ],
)
def test_no_predictor_beats_the_chain_and_the_right_one_is_best(name, best):
    task = EACH[name]
    batch = drawn(task, 3000, "train")
    losses = {}
    for reference in task.references:
        predicted = task.reference(batch, reference)[:, 1:]
        losses[reference] = float(metrics.loss(predicted.log(), batch.targets[:, 1:]).mean())
    floor = losses.pop("chain")
    losses.pop("posterior", None)
    assert min(losses, key=losses.__getitem__) == best
    assert floor < losses[best]


def test_latents_and_skills_are_about_the_context():
    batch = TASK.parse("a b c a b b a")
    assert batch.latents["occurrence"][0].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert batch.latents["attended"][0].tolist() == [-1, -1, -1, 1, 2, 5, 4]
    assert TASK.skills(batch)["seen"][0].tolist() == [False, False, False, True, True, True, False]
    second = EACH["n = 3"].parse("abab")
    assert second.latents["occurrence"][0].tolist() == [0, 0, 0, 1]
    assert second.latents["attended"][0].tolist() == [-1, -1, -1, 2]
    whole = drawn(TASK, 5)
    assert (TASK.skills(whole)["seen"] ^ TASK.skills(whole)["new"]).all()


@pytest.mark.parametrize("name", EACH)
def test_relabelled_pairs_change_every_answer_and_move_predictions_with_it(name):
    task = EACH[name]
    clean = drawn(task, 50, "train")
    other = task.corrupt(clean, kind="relabel", generator=seeded(1))
    by = (other.inputs[:, :1] - clean.inputs[:, :1]) % task.n_symbols
    assert (by > 0).all()
    assert torch.equal((clean.targets + by) % task.n_symbols, other.targets)
    for reference in ("bigram", "chain"):
        one, moved = (task.reference(batch, reference) for batch in (clean, other))
        back = (torch.arange(task.n_symbols) + by)[:, None] % task.n_symbols
        torch.testing.assert_close(moved.gather(2, back.expand_as(moved)), one, equal_nan=True)
    assert task.pair_report(clean, other)["answer_changed"] == 1


@pytest.mark.parametrize("name", EACH)
def test_exchanged_segments_keep_all_counts_and_the_last_prediction(name):
    task = EACH[name]
    clean = drawn(task, 50, "train")
    other = task.corrupt(clean, kind="swap_segments", generator=seeded(1))
    assert (clean.inputs != other.inputs).any(1).sum() > 40
    size, n_kept = task.order + 1, 0
    for one, moved in zip(clean.inputs.tolist(), other.inputs.tolist(), strict=True):
        before, after = (Counter(zip(*(row[i:] for i in range(size)), strict=False)) for row in (one, moved))
        n_kept += before == after
        assert before == after or sum(a != b for a, b in zip(one, moved, strict=True)) == 1
    assert n_kept > 45
    report = task.pair_report(clean, other)
    assert report["answer_changed"] == report["likeliest_changed"] == 0 < report["tokens_changed"]
    assert (clean.inputs != other.inputs).any(1).all()
    assert torch.equal(clean.targets[:, -1], other.targets[:, -1])


def test_a_sequence_of_one_symbol_gets_another_one_and_too_short_ones_are_refused():
    task = MarkovChains(n_symbols=2)
    clean = task.batch(torch.zeros(3, 100, dtype=torch.long))
    other = task.corrupt(clean, kind="swap_segments", generator=seeded())
    assert (other.inputs.sum(1) == 1).all()
    assert task.pair_report(clean, other)["likeliest_changed"] == 0
    with pytest.raises(InputError, match=r"got one of 4 symbols without: raise task.length"):
        task.corrupt(task.batch(torch.tensor([[0, 1, 0, 0]])), kind="swap_segments", generator=seeded())


def test_the_curriculum_changes_the_task_once():
    spec = ms.preset("markov-after-unigram")
    assert task_at(spec.task, spec.recipe, 0) == MarkovChains(equal_rows=1.0)
    assert task_at(spec.task, spec.recipe, UNIGRAM_STEPS) == spec.task == MarkovChains(doubly_stochastic=1.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_symbols": 1}, "task.n_symbols must be from 2 to 26; got 1"),
        ({"order": 3}, "task.order must be from 1 to 2; got 3"),
        ({"equal_rows": 0.6, "doubly_stochastic": 0.5}, "task.equal_rows must be from 0 to 0.5; got 0.6"),
        (
            {"doubly_stochastic": 1.0, "n_symbols": 8},
            r"doubly_stochastic needs task.order 1 and .* up to 5; got 1",
        ),
        ({"n_chains": 4, "order": 2}, "task.n_chains needs task.order 1; got 2"),
    ],
)
def test_what_cannot_be_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        MarkovChains(**fields)


def test_typed_sequences_are_checked():
    batch = TASK.parse("a, b, c")
    assert batch.symbols == [["a", "b", "c"]]
    assert batch.scored.tolist() == [[True, True, False]]
    assert TASK.reference(replace(batch, scored=batch.scored | True), "chain").isnan().all()
    with pytest.raises(InputError, match="a symbol must be one of: a, b, c; got 'd'"):
        TASK.parse("abd")
    assert predictors.contexts(batch.inputs, 2, 3).tolist() == [[-1, 1, 5]]
