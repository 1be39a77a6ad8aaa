import math

import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats

from mnemoscope.analyses import Association, chance_threshold, recall_among, recall_score
from mnemoscope.core.errors import InputError
from tests.support import global_generators_untouched, reads_back, seeded


def random(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.double)


def pairs(n=3, **changes):
    return Association(**{"name": "pairs", "inputs": torch.eye(n), "outputs": torch.eye(n), **changes})


# scores of the three inputs (rows) for the three candidates (columns)
MATRIX = torch.tensor([[5.0, 1.0, 2.0], [4.0, 3.0, 0.0], [1.0, 0.0, 1.0]])


def test_by_hand():
    found = recall_score(MATRIX, pairs())
    assert found.score.values.tolist() == [5, 3, 1]
    assert found.margin.values.tolist() == [3, -1, 0]
    assert found["rank"].values.tolist() == [1, 2, 2]  # the last one ties with candidate 0
    assert found.recalled.values.tolist() == [True, False, False]
    assert found.recall == pytest.approx(1 / 3)
    assert found.mean_margin == pytest.approx(2 / 3)
    assert found.chance == pytest.approx(1 / 3)
    # the inputs' best candidates are 0, 0 and none: each is the target of an input in one of three permutations
    assert found.permuted == pytest.approx(2 / 9)


def test_among_the_best_two():
    found = recall_score(MATRIX, pairs(), k=2)
    assert found.recalled.values.tolist() == [True, True, True]
    assert found.chance == pytest.approx(2 / 3)
    # among the best two: 0 and 2, 0 and 1, 0 and 2 (both ahead of candidate 1)
    assert found.permuted == pytest.approx(2 / 3)


def test_weights_are_relative_frequencies():
    found = recall_score(MATRIX, pairs(), weights=torch.tensor([6.0, 3.0, 1.0]))
    assert found.recall == pytest.approx(0.6)
    assert found.mean_margin == pytest.approx((6 * 3 - 3) / 10)


def test_several_inputs_may_share_an_output():
    several = pairs(inputs=torch.eye(3), outputs=torch.eye(3)[:2], targets=torch.tensor([0, 0, 1]))
    found = recall_score(torch.eye(3)[[0, 0, 1]], several)
    assert found.recall == 1
    assert found.n_candidates == 2
    assert found.permuted == pytest.approx((2 * 2 / 3 + 1 / 3) / 3)


def test_a_matrix_that_always_says_the_same_is_no_better_than_its_permutations():
    frequent = Association(
        name="frequent", inputs=torch.eye(10), outputs=torch.eye(4), targets=torch.tensor([0] * 7 + [1, 2, 3])
    )
    found = recall_score(torch.ones(10, 1) * torch.tensor([3.0, 2, 1, 0]), frequent)
    assert found.recall == pytest.approx(0.7)  # far above chance
    assert found.recall == found.permuted_low == found.permuted_high
    assert found.permuted == pytest.approx(0.7)


def test_nothing_is_recalled_of_a_zero_matrix_or_of_equal_candidates():
    assert recall_score(torch.zeros(3, 3), pairs()).recall == 0
    twice = pairs(inputs=torch.eye(2), outputs=torch.eye(2)[[0, 0, 1]], targets=torch.tensor([0, 2]))
    assert recall_score(torch.eye(2), twice).recalled.values.tolist() == [False, True]


def test_rounding_breaks_no_tie():
    direction = random(1, 40)
    outputs = torch.cat([direction * (1 + 1e-15), direction, random(7, 40, seed=1)])
    found = recall_score(torch.eye(40), pairs(inputs=direction, outputs=outputs, targets=torch.tensor([0])))
    assert found["rank"].item() == 2
    assert not found.recalled.item()


def test_the_definition_in_a_loop():
    matrix, inputs, outputs = random(5, 4), random(30, 5, seed=1), random(30, 4, seed=2)
    found = recall_score(matrix, Association(name="random", inputs=inputs, outputs=outputs))
    best = [max(range(30), key=lambda j, i=i: float(outputs[j] @ matrix.T @ inputs[i])) for i in range(30)]
    assert found.recall == pytest.approx(np.mean([i == best[i] for i in range(30)]))


def test_long_lists_are_read_in_parts(monkeypatch):
    target = Association(
        name="random", inputs=random(30, 5, seed=1), outputs=random(12, 4), targets=torch.arange(30) % 12
    )
    whole = recall_score(random(5, 4), target, k=3)
    monkeypatch.setattr("mnemoscope.analyses.memory_recall.CHUNK", 50)
    xr.testing.assert_allclose(whole, recall_score(random(5, 4), target, k=3), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 3.0])
def test_a_positive_factor_changes_the_margin_only(scale):
    target = Association(name="random", inputs=random(30, 5, seed=1), outputs=random(30, 4, seed=2))
    one, other = recall_score(random(5, 4), target), recall_score(scale * random(5, 4), target)
    for name in ("recall", "permuted", "permuted_low", "recalled"):
        assert one[name].equals(other[name])
    assert other.mean_margin == pytest.approx(scale * float(one.mean_margin))


def test_the_expected_score_of_permuted_targets_is_the_mean_over_permutations():
    scores = random(40, 6, seed=3) + torch.tensor([1.0, 0.5, 0, 0, 0, 0])
    one = {"name": "random", "inputs": torch.eye(40), "outputs": torch.eye(6)}
    targets = torch.arange(40).clamp(max=5)
    weights = random(40, seed=4).abs()
    found = recall_score(scores, Association(**one, targets=targets), weights=weights)
    draws = seeded(7)
    drawn = [
        recall_score(scores, Association(**one, targets=targets[order]), weights=weights, n_draws=2)
        for order in (torch.randperm(40, generator=draws) for _ in range(300))
    ]
    recalled = np.array([float(each.recall) for each in drawn])
    assert found.permuted == pytest.approx(recalled.mean(), abs=4 * recalled.std() / math.sqrt(300))
    assert all(float(each.permuted) == pytest.approx(float(found.permuted)) for each in drawn)
    low, high = np.quantile(recalled, [0.025, 0.975])
    assert found.permuted_low == pytest.approx(low, abs=0.03)
    assert found.permuted_high == pytest.approx(high, abs=0.03)


def test_random_matrices_are_at_chance():
    n, d = 50, 40
    hits = sum(
        int(recall_score(random(d, d, seed=seed), Association(
            name="random", inputs=random(n, d, seed=100 + seed), outputs=random(n, d, seed=200 + seed)
        ), n_draws=2).recalled.sum())
        for seed in range(40)
    )  # fmt: skip
    low, high = stats.binom.interval(0.9999, 40 * n, 1 / n)
    assert low <= hits <= high


def predicted(n: int, d: int) -> float:
    """Recall of n associations of random unit vectors: the right score against n - 1 rivals, all normal."""
    own, rival = math.sqrt(n) / d, math.sqrt(2 / d + n / d**2)
    z = np.linspace(-6, 6, 2001)
    return float(np.trapezoid(stats.norm.pdf(z) * stats.norm.cdf((1 + own * z) / rival) ** (n - 1), z))


@pytest.mark.parametrize(("n", "low", "high"), [(24, 0.97, 1), (400, 0.2, 0.6), (4096, 0, 0.05)])
def test_a_sum_of_outer_products_stores_as_many_as_predicted(n, low, high):
    """Random embeddings of width 64: all of few, and next to none of as many as the matrix has entries."""
    inputs, outputs = (torch.nn.functional.normalize(random(n, 64, seed=seed)) for seed in (0, 1))
    found = recall_score(inputs.T @ outputs, Association(name="random", inputs=inputs, outputs=outputs), n_draws=2)
    assert low <= found.recall <= high
    assert found.recall == pytest.approx(predicted(n, 64), abs=0.07)


def test_a_result_is_labelled_and_can_be_written(tmp_path):
    with global_generators_untouched():
        found = recall_score(MATRIX, pairs(labels=("a", "b", "c")))
    assert found.association.values.tolist() == ["a", "b", "c"]
    assert found.attrs["target"] == "pairs"
    assert reads_back(found, tmp_path / "found.nc")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": torch.eye(2, 3)}, "pairs has 2 inputs and 3 outputs; say with targets="),
        ({"outputs": torch.eye(3)[[0, 0, 1]]}, "outputs of pairs must differ, since equal ones tie"),
        ({"outputs": torch.eye(3) / 0}, "outputs of pairs must be finite"),
        ({"targets": torch.tensor([0, 1, 3])}, "a target of pairs must be from 0 to 2; got 3"),
        ({"targets": torch.tensor([0, -1, 2])}, "a target of pairs must be from 0 to 2; got -1"),
        ({"targets": torch.tensor([0, 1])}, "targets of pairs must be one per input, 3; got 2"),
        ({"labels": ("a",)}, "labels of pairs must be one per input, 3; got 1"),
        ({"inputs": torch.zeros(0, 3)}, "the number of inputs of pairs must be at least 1; got 0"),
        ({"inputs": torch.eye(1, 3), "outputs": torch.eye(1, 3)}, "the number of outputs of pairs must be at least 2"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_associations_that_cannot_be_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        pairs(**changes)


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        (torch.ones(3, 4), {}, r"3 by 3; got \(3, 4\); transpose it if it acts on columns"),
        (MATRIX / 0, {}, "matrix must be finite"),
        (MATRIX, {"k": 3}, "k must be from 1 to 2; got 3"),
        (MATRIX, {"k": 0}, "k must be from 1 to 2; got 0"),
        (MATRIX, {"weights": torch.tensor([1.0, -1, 1])}, "weights must be one per association"),
        (MATRIX, {"weights": torch.zeros(3)}, "not all zero"),
        (MATRIX, {"n_draws": 1}, "n_draws must be at least 2"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_what_cannot_be_asked_is_refused(matrix, options, message):
    with pytest.raises(InputError, match=message):
        recall_score(matrix, pairs(), **options)


def test_among_few_candidates_by_hand():
    """Of 4 others 4, 2 and 0 are worse: of their 6 pairs C(4,2), C(2,2) and none leave the right one best."""
    scores = torch.tensor([[5.0, 1, 2, 3, 4], [1.0, 3, 2, 4, 5], [1.0, 2, 0, 3, 4]])
    targets = torch.tensor([0, 1, 2])
    found = recall_score(scores, Association(name="few", inputs=torch.eye(3), outputs=torch.eye(5), targets=targets))
    assert found["rank"].values.tolist() == [1, 3, 5]
    assert recall_among(found, 3) == pytest.approx((1 + 1 / 6 + 0) / 3)
    assert recall_among(found, 5) == found.recall  # all of them
    assert recall_among(found, 2) == pytest.approx((1 + 1 / 2 + 0) / 3)
    with pytest.raises(InputError, match="n_candidates"):
        recall_among(found, 6)


def test_among_few_candidates_is_what_draws_give():
    found = recall_score(random(12, 12), pairs(12))
    scores, draw = random(12, 12), seeded(3)
    hits = []
    for pair in range(12):
        others = torch.tensor([other for other in range(12) if other != pair])
        for _ in range(400):
            rivals = others[torch.randperm(11, generator=draw)[:3]]
            hits.append(bool(scores[pair, pair] > scores[pair, rivals].max()))
    assert recall_among(found, 4) == pytest.approx(np.mean(hits), abs=0.03)


def test_chance_alone_stays_at_one_in_as_many():
    values = [recall_among(recall_score(random(40, 40, seed=seed), pairs(40)), 5) for seed in range(40)]
    assert np.mean(values) == pytest.approx(0.2, abs=0.02)


def test_where_guessing_ends():
    """Of five at .2: three or more with .058, four or more with .0067."""
    assert chance_threshold(5, 0.2) == 0.8
    assert chance_threshold(5, 0.2, p=0.1) == 0.6
    assert chance_threshold(1, 0.2) == 2  # one association that is guessed says nothing
    for wrong in ({"n": 0}, {"chance": 1.0}, {"p": 0.0}):
        with pytest.raises(InputError):
            chance_threshold(**{"n": 5, "chance": 0.2, **wrong})
