import math
from collections import Counter

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from scipy.stats import chisquare

from mnemoscope.core.errors import InputError
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests import plain
from tests.support import global_generators_untouched, seeded


def lookup(n_values: int = 5, **fields) -> PermutationLookup:
    return PermutationLookup(**{"n_values": n_values, "split_seed": 0, **fields})


def configurations(n_values: int):
    slots = st.lists(st.integers(1, n_values - 1), min_size=1, unique=True).map(tuple)
    return st.fixed_dictionaries(
        {
            "n_values": st.just(n_values),
            "repeat_ratio": st.sampled_from([0.0, 0.3, 1.0]),
            "copied_slots": st.none() | slots,
            "shuffle_x": st.booleans(),
            "split_seed": st.integers(0, 1000),
        }
    )


def mappings(task: PermutationLookup, split: str) -> list[tuple[int, ...]]:
    return [tuple(row) for row in task.mappings(split).tolist()]


def check_latents(batch, n_values: int) -> None:
    """Every latent is what plain Python reads off the tokens."""
    expected = [plain.latents(xs, ys, n_values) for xs, ys in plain.rows(batch)]
    for name, values in batch.latents.items():
        assert values.tolist() == [row[name] for row in expected], name
    assert set(batch.latents) == set(expected[0])


# ---- mappings


@pytest.mark.parametrize("seed", range(30))
def test_every_mapping_is_either_a_training_or_a_test_mapping(seed):
    train, test = (mappings(lookup(split_seed=seed), split) for split in ("train", "test"))
    assert (len(train), len(test)) == (96, 24)
    assert sorted(train + test) == plain.all_mappings(5)


def test_the_split_follows_its_seed():
    assert mappings(lookup(split_seed=1), "test") == mappings(PermutationLookup(n_values=5).for_seed(1), "test")
    assert len({tuple(mappings(lookup(split_seed=seed), "test")) for seed in range(20)}) == 20
    assert lookup(split_seed=1).for_seed(2).split_seed == 1


def test_a_split_must_exist_and_be_chosen():
    with pytest.raises(InputError, match="split must be one of: train, test, all; got 'valid'"):
        lookup().mappings("valid")
    with pytest.raises(InputError, match=r"task\.split_seed is not set.*for_seed"):
        PermutationLookup().mappings("train")
    assert mappings(PermutationLookup(n_values=3), "all") == plain.all_mappings(3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_values": 1}, "task.n_values must be from 3 to 8; got 1"),
        ({"n_values": 9}, "task.n_values must be from 3 to 8; got 9"),
        ({"repeat_ratio": 2.0}, "task.repeat_ratio must be from 0 to 1; got 2"),
        ({"repeat_ratio": math.nan}, "task.repeat_ratio must be from 0 to 1; got nan"),
        ({"train_fraction": 1.0}, "task.train_fraction must leave at least one .* test mapping; got 1.0"),
        ({"train_fraction": 0.0}, "task.train_fraction must leave at least one training"),
        ({"copied_slots": (0,)}, "task.copied_slots must be from 1 to 4; got 0"),
        ({"copied_slots": (5,)}, "task.copied_slots must be from 1 to 4; got 5"),
        ({"copied_slots": (1, 1)}, "task.copied_slots must name every slot once"),
        ({"copied_slots": ()}, "task.copied_slots must name at least one slot"),
    ],
)
def test_a_task_that_cannot_be_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        PermutationLookup(**fields)


# ---- sequences


@given(st.integers(3, 6).flatmap(configurations), st.integers(0, 2**32))
def test_sampled_sequences_are_what_the_task_says(fields, seed):
    task = lookup(**fields)
    batch = task.sample(20, split="train", generator=seeded(seed))
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    assert batch.scored.tolist() == [[pos % 2 == 0 for pos in range(2 * task.n_values - 1)]] * 20
    check_latents(batch, task.n_values)
    seen = batch.latents
    assert set(map(tuple, seen["mapping"].tolist())) <= set(mappings(task, "train"))
    assert set(seen["source_slot"][seen["is_repeat"]].tolist()) <= set(task.slots_copied)
    if task.repeat_ratio in (0, 1):
        assert (seen["is_repeat"] == bool(task.repeat_ratio)).all()
    if not task.shuffle_x:
        in_order = list(range(1, task.n_values))
        assert seen["x"][:, :-1].tolist() == [in_order] * 20


def test_sampling_leaves_the_global_generators_alone_and_repeats_itself():
    task = lookup(repeat_ratio=0.3)
    with global_generators_untouched():
        first = task.sample(50, split="test", generator=seeded(4))
    assert torch.equal(first.inputs, task.sample(50, split="test", generator=seeded(4)).inputs)
    assert not torch.equal(first.inputs, task.sample(50, split="test", generator=seeded(5)).inputs)


def test_eight_values_can_be_sampled_but_not_enumerated():
    task = lookup(8, repeat_ratio=0.3)
    batch = task.sample(200, split="test", generator=seeded())
    check_latents(batch, 8)
    assert 30 < batch.latents["is_repeat"].sum() < 90  # 60 expected, sd 6.5
    with pytest.raises(InputError, match="n_values <= 6; got 8; draw samples instead"):
        task.enumerate(split="test")


def sequences(batch) -> list[tuple[int, ...]]:
    return [(*i, t[-1]) for i, t in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)]


def test_14400_sequences_exist_without_repeats():
    batch = lookup().enumerate(split="all")
    whole, weights = sequences(batch), batch.weights.tolist()
    assert len(set(whole)) == len(whole)
    assert sum(weight > 0 for weight in weights) == 14400
    assert sorted(set(weights)) == pytest.approx([0, 1 / 14400])


@pytest.mark.parametrize("n_values", [3, 4])
@pytest.mark.parametrize("split", ["train", "test", "all"])
@pytest.mark.parametrize(
    "fields", [{}, {"repeat_ratio": 0.3}, {"repeat_ratio": 1.0, "copied_slots": (2,)}, {"shuffle_x": False}]
)
def test_an_enumeration_holds_every_sequence_once_with_weights_that_add_to_one(n_values, split, fields):
    task = lookup(n_values, **fields)
    batch = task.enumerate(split=split)
    n_orders = math.factorial(n_values) if task.shuffle_x else 1
    n_slots = len(task.slots_copied)
    assert len(set(sequences(batch))) == len(batch) == len(task.mappings(split)) * n_orders * (1 + n_slots)
    assert batch.weights.double().sum().item() == pytest.approx(1, abs=1e-5)
    share = batch.weights[batch.latents["is_repeat"]].double().sum().item()
    assert share == pytest.approx(task.repeat_ratio, abs=1e-5)
    check_latents(batch, n_values)


@pytest.mark.parametrize(
    "fields", [{"repeat_ratio": 0.4, "copied_slots": (1,)}, {"repeat_ratio": 0.7}, {"shuffle_x": False}]
)
def test_sampled_frequencies_are_the_weights_of_the_enumeration(fields):
    task, n = lookup(3, **fields), 20_000
    enumerated = task.enumerate(split="train")
    counts = Counter(sequences(task.sample(n, split="train", generator=seeded())))
    expected = {s: n * w for s, w in zip(sequences(enumerated), enumerated.weights.double().tolist(), strict=True) if w}
    assert set(counts) <= set(expected)
    scale = n / sum(expected.values())
    p = chisquare([counts[s] for s in expected], [scale * e for e in expected.values()]).pvalue
    assert p > 1e-3


def test_a_monitoring_batch_weighs_its_halves_as_the_task_mixes_them():
    batch = lookup(repeat_ratio=0.3).monitor(10, split="test", generator=seeded())
    assert batch.latents["is_repeat"].tolist() == [False] * 10 + [True] * 10
    assert batch.weights.tolist() == pytest.approx([0.07] * 10 + [0.03] * 10)


def test_the_conflict_set_repeats_every_slot_whatever_training_copies():
    batch = lookup(4, repeat_ratio=0.3, copied_slots=(1,)).conflict_set(split="test")
    n_test = 24 - round(0.8 * 24)
    assert Counter(batch.latents["source_slot"].tolist()) == dict.fromkeys((1, 2, 3), n_test * 24)
    assert (batch.latents["recalled"] != batch.latents["unused"]).all()


def test_subgroups_and_skills():
    task = lookup(repeat_ratio=0.5)
    batch = task.sample(100, split="test", generator=seeded())
    repeat = batch.latents["is_repeat"]
    assert torch.equal(task.subgroups(batch)["repeat"], repeat)
    assert torch.equal(task.subgroups(batch)["fresh"], ~repeat)
    skills = task.skills(batch)
    for mask in skills.values():
        assert not mask[:, :-1].any()
    assert torch.equal(skills["recall"][:, -1], repeat)
    assert torch.equal(skills["elimination"][:, -1], ~repeat)


# ---- exact predictors


def expected_reference(task, batch, name: str) -> torch.Tensor:
    """The reference by brute force; NaN where it is undefined and at positions of y."""
    n_values = task.n_values
    result = torch.full((*batch.inputs.shape, n_values + 1), math.nan, dtype=torch.double)
    prior = mappings(task, name.removeprefix("bayes_") if "_" in name else "all")
    for row, (xs, ys) in enumerate(plain.rows(batch)):
        for slot in range(n_values):
            if name in ("elimination", "recall"):
                probabilities = getattr(plain, name)(xs, ys, slot, n_values)
            else:
                probabilities = plain.posterior(xs, ys, slot, prior, n_values)
            if probabilities:
                result[row, 2 * slot] = torch.tensor([float(p) for p in probabilities], dtype=torch.double)
    return result


@pytest.mark.parametrize("name", ["bayes", "bayes_train", "bayes_test", "elimination", "recall"])
@pytest.mark.parametrize("n_values", [3, 4])
def test_references_agree_with_a_count_over_all_permutations(n_values, name):
    task = lookup(n_values, repeat_ratio=0.3)
    batch = task.enumerate(split="all")
    if n_values == 4:
        batch = batch.select(torch.randperm(len(batch), generator=seeded())[:600])
    given_, expected = task.reference(batch, name), expected_reference(task, batch, name)
    torch.testing.assert_close(given_, expected, atol=1e-12, rtol=0, equal_nan=True)
    sums = given_[:, ::2].sum(-1)
    torch.testing.assert_close(sums, torch.where(sums.isnan(), torch.nan, 1.0).double(), equal_nan=True)
    assert sums.isnan().any() == (name in ("bayes_train", "bayes_test"))


def test_references_are_defined_on_sequences_that_end_with_a_question():
    task = lookup()
    batch = task.parse("3 1 2 5 3")
    assert task.reference(batch, "bayes")[0, -1].tolist() == [0, 1, 0, 0, 0, 0]
    assert task.reference(batch, "elimination")[0, -1].tolist() == pytest.approx([0, 0, 1 / 3, 1 / 3, 1 / 3, 0])
    with pytest.raises(InputError, match=r"reference must be one of: bayes, .*bayes_test; got 'oracle'"):
        task.reference(batch, "oracle")


def losses(task, batch, name: str) -> torch.Tensor:
    """Mean loss of a reference at every slot; infinite where it excludes what happens or is undefined."""
    batch = batch.select(batch.weights > 0)
    answers = task.reference(batch, name)[:, ::2].gather(-1, batch.targets[:, ::2, None])[..., 0]
    weights = batch.weights[:, None].double()
    return (weights * -answers.nan_to_num(nan=0.0).log()).sum(0) / weights.sum()


@pytest.mark.parametrize("repeat_ratio", [0.0, 0.3])
def test_the_published_floors(repeat_ratio):
    task = lookup(repeat_ratio=repeat_ratio)
    by_slot = losses(task, task.enumerate(split="all"), "bayes")
    assert by_slot.tolist() == pytest.approx([math.log(5), math.log(4), math.log(3), math.log(2), 0])
    assert by_slot.mean().item() == pytest.approx(0.9575, abs=5e-5)


def test_knowing_the_training_mappings_is_worth_the_published_amount():
    tasks_ = [lookup(split_seed=seed) for seed in range(5)]
    means = [losses(task, task.enumerate(split="train"), "bayes_train").mean().item() for task in tasks_]
    assert sum(means) / len(means) == pytest.approx(0.913, abs=0.01)


@pytest.mark.parametrize("split", ["all", "train", "test"])
@pytest.mark.parametrize(("n_values", "repeat_ratio"), [(3, 0.5), (4, 0.0), (4, 0.3), (5, 0.0)])
def test_no_reference_beats_the_floor_of_a_distribution(split, n_values, repeat_ratio):
    task = lookup(n_values, repeat_ratio=repeat_ratio)
    batch = task.enumerate(split=split)
    best = "bayes" if split == "all" else f"bayes_{split}"
    floor = losses(task, batch, best)
    assert floor.isfinite().all()
    for name in {*task.references, "bayes_test"} - {best}:
        assert (floor <= losses(task, batch, name) + 1e-12).all(), name
    worse = losses(task, batch, "recall" if repeat_ratio == 0 else "elimination")
    assert worse[-1] > floor[-1] + 0.1


# ---- counterfactuals


def pairs_of(task, kind: str, n: int = 200):
    """Clean and corrupted sequences as plain Python: half fresh, half repeats, or repeats only for move_repeat."""
    clean = task.monitor(n // 2, split="all", generator=seeded())
    if kind == "move_repeat":
        clean = clean.select(clean.latents["is_repeat"])
    corrupted = task.corrupt(clean, kind=kind, generator=seeded(1))
    check_latents(corrupted, task.n_values)
    repeats = clean.latents["is_repeat"].tolist()
    return list(zip(plain.rows(clean), plain.rows(corrupted), repeats, strict=True))


def differing(a: list[int], b: list[int]) -> list[int]:
    return [slot for slot, (left, right) in enumerate(zip(a, b, strict=True)) if left != right]


V = pytest.mark.parametrize("n_values", [3, 4, 5, 8])


@V
def test_exchange_answer_exchanges_one_y_and_the_unused_value(n_values):
    chosen = set()
    for (xs, ys), (new_xs, new_ys), repeat in pairs_of(lookup(n_values), "exchange_answer"):
        assert new_xs == xs
        slot, last = differing(ys, new_ys)
        assert last == n_values - 1
        assert new_ys[slot] == plain.latents(xs, ys, n_values)["unused"]
        assert new_ys[last] == (new_ys[slot] if repeat else ys[slot])
        assert not repeat or slot == xs.index(xs[-1])
        chosen |= {slot}
    assert chosen == set(range(n_values - 1))


@V
def test_exchange_distractor_keeps_the_answer(n_values):
    for (xs, ys), (new_xs, new_ys), repeat in pairs_of(lookup(n_values), "exchange_distractor"):
        assert new_xs == xs
        assert new_ys[-1] == ys[-1]
        slots = differing(ys, new_ys)
        if repeat:
            (slot,) = slots
            assert slot != xs.index(xs[-1])
            assert new_ys[slot] == plain.latents(xs, ys, n_values)["unused"]
        else:
            first, second = slots
            assert (new_ys[first], new_ys[second]) == (ys[second], ys[first])


@V
def test_move_repeat_repeats_another_slot(n_values):
    moves = set()
    for (xs, ys), (new_xs, new_ys), _ in pairs_of(lookup(n_values), "move_repeat", n=600):
        assert differing(xs, new_xs) == differing(ys, new_ys) == [n_values - 1]
        moves |= {(xs.index(xs[-1]), new_xs.index(new_xs[-1]))}
        assert new_ys[-1] == ys[new_xs.index(new_xs[-1])]
    assert moves == {(a, b) for a in range(n_values - 1) for b in range(n_values - 1) if a != b}


def test_move_repeat_refuses_fresh_sequences():
    task = lookup()
    with pytest.raises(InputError, match="move_repeat needs sequences with a repeat"):
        task.corrupt(task.sample(5, split="all", generator=seeded()), kind="move_repeat", generator=seeded())


@V
def test_toggle_repeat_changes_the_last_pair_only(n_values):
    for (xs, ys), (new_xs, new_ys), repeat in pairs_of(lookup(n_values), "toggle_repeat"):
        assert differing(xs, new_xs) == differing(ys, new_ys) == [n_values - 1]
        assert (new_xs[-1] in new_xs[:-1]) != repeat


@V
def test_permute_pairs_moves_every_earlier_pair_and_nothing_else(n_values):
    for (xs, ys), (new_xs, new_ys), _ in pairs_of(lookup(n_values), "permute_pairs"):
        assert (new_xs[-1], new_ys[-1]) == (xs[-1], ys[-1])
        old, new = list(zip(xs, ys, strict=True))[:-1], list(zip(new_xs, new_ys, strict=True))[:-1]
        assert sorted(old) == sorted(new)
        assert all(a != b for a, b in zip(old, new, strict=True))


def test_an_unknown_kind_is_refused():
    task = lookup()
    with pytest.raises(InputError, match=r"kind must be one of: exchange_answer, .*; got 'shuffle'"):
        task.corrupt(task.sample(5, split="all", generator=seeded()), kind="shuffle", generator=seeded())


@pytest.mark.parametrize("kind", PermutationLookup.corruptions)
def test_the_report_on_pairs_counts_like_plain_python(kind):
    task = lookup(4, repeat_ratio=0.5)
    clean = task.sample(150, split="test", generator=seeded())
    if kind == "move_repeat":
        clean = clean.select(clean.latents["is_repeat"])
    corrupted = task.corrupt(clean, kind=kind, generator=seeded(1))
    old, new, train = sequences(clean), sequences(corrupted), set(mappings(task, "train"))
    shown = [tuple(plain.latents(*row, 4)["mapping"]) in train for row in plain.rows(corrupted)]
    expected = {
        "answer_changed": sum(a[-1] != b[-1] for a, b in zip(old, new, strict=True)),
        "collisions": sum(row in set(old) for row in new),
        "train_clean": 0,
        "train_corrupted": sum(shown),
    }
    assert task.pair_report(clean, corrupted) == pytest.approx({k: v / len(old) for k, v in expected.items()})
    assert expected["answer_changed"] == (0 if kind in ("exchange_distractor", "permute_pairs") else len(old))


# ---- typed sequences


@pytest.mark.parametrize(
    ("text", "inputs", "targets"),
    [
        ("3 1 2 5 3", [3, 1, 2, 5, 3], [1, 2, 5, 3, 0]),
        ("3, 1, 2, 5", [3, 1, 2], [1, 2, 5]),
        ("4", [4], [0]),
        ("1 2 2 3 3 4 4 5 5 1", [1, 2, 2, 3, 3, 4, 4, 5, 5], [2, 2, 3, 3, 4, 4, 5, 5, 1]),
    ],
)
def test_a_sequence_is_read_as_typed(text, inputs, targets):
    batch = lookup().parse(text)
    assert (batch.inputs.tolist(), batch.targets.tolist()) == ([inputs], [targets])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "number of tokens must be from 1 to 10; got 0"),
        ("1 2 2 3 3 4 4 5 5 1 1", "number of tokens must be from 1 to 10; got 11"),
        ("1 6", "a token must be one of: 1, 2, 3, 4, 5; got '6'"),
        ("1 0", "a token must be one of"),
        ("one 2", "a token must be one of: .*; got 'one'"),
        ("1 2 1 3", "contradict each other"),
        ("1 2 3 2", "contradict each other"),
    ],
)
def test_a_sequence_that_cannot_be_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        lookup().parse(text)


@pytest.mark.parametrize(
    ("text", "message"), [("1 2 3", "latents need complete sequences of 5 pairs"), ("1 2 1 2 3 4 4 1 5", "no x but")]
)
def test_latents_refuse_sequences_that_do_not_have_them(text, message):
    batch = lookup().parse(text)
    with pytest.raises(InputError, match=message):
        batch.latents  # noqa: B018


def test_latents_of_a_complete_question():
    latents = {name: value[0].tolist() for name, value in lookup().parse("3 1 2 5 1 4 4 2 2").latents.items()}
    assert latents | {"x": None, "y": None} == {
        "x": None,
        "y": None,
        "mapping": [4, 5, 1, 2, 3],
        "is_repeat": True,
        "source_slot": 2,
        "source_pos": 2,
        "recalled": 5,
        "unused": 3,
    }


def test_the_loss_is_the_mean_over_scored_positions():
    task = lookup(repeat_ratio=0.3)
    batch = task.sample(7, split="all", generator=seeded())
    logits = torch.randn(7, 9, 6, generator=seeded())
    by_hand = [
        -logits[row, pos].log_softmax(0)[target]
        for row, targets in enumerate(batch.targets.tolist())
        for pos, target in enumerate(targets)
        if pos % 2 == 0
    ]
    assert task.loss(logits, batch).item() == pytest.approx(float(sum(by_hand)) / 35, rel=1e-5)
