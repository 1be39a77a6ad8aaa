from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch

from mnemoscope.analyses.ablation import ablate, heads_and_mlps, make_removal, position_targets
from mnemoscope.analyses.forward import to_log_probs
from mnemoscope.analyses.games import make_game
from mnemoscope.analyses.roles import targets_by_role
from mnemoscope.analyses.shapley import shapley
from mnemoscope.core.batch import Named
from mnemoscope.core.errors import InputError
from mnemoscope.core.site import Site
from mnemoscope.core.skills import skill_places
from mnemoscope.interventions.run import run_with
from mnemoscope.systems.tiny_recall.constructed import dissociated, store_and_match, twin_elimination
from tests.bridge import as_bridge
from tests.support import global_generators_untouched, random_model, reads_back, seeded, small_spec

TASK = small_spec("v3").task
PAIR = {"component": "L0H0", "other": "L0H1"}


def prompts(n: int = 20, seed: int = 0):
    return TASK.monitor(n, split="test", generator=seeded(seed))


def values_of(model, batch=None, **arguments):
    batch = prompts() if batch is None else batch
    given = {"skills": TASK.skills(batch), "reference": prompts(seed=1)}
    return shapley(model, batch, **{**given, **arguments})


def one_at_a_time(model, batch, absent, kind, within=None, seed=0):
    """Log-probabilities of the answers at the tested places, without some targets."""
    source = Named(name="reference", value=prompts(seed=1))
    interventions = [make_removal(kind, site, source, within) for sites in absent for site in sites]
    log_probs = to_log_probs(run_with(model, batch, interventions, seed=seed))
    return log_probs.gather(-1, batch.targets[..., None])[:, -1, 0]


@pytest.mark.parametrize("kind", ["zero", "mean", "resample"])
def test_values_are_averages_over_all_orders_of_coming(kind):
    model, batch = random_model(), prompts()
    players = heads_and_mlps(model)
    skill = TASK.skills(batch)["recall"][:, -1]

    def worth(there):
        absent = [sites for name, sites in players.items() if name not in there]
        return one_at_a_time(model, batch, absent, kind)[skill].mean().item()

    gains = dict.fromkeys(players, 0.0)
    for order in permutations(players):
        for place, name in enumerate(order):
            gains[name] += (worth(order[: place + 1]) - worth(order[:place])) / 6
    result = values_of(model, batch, kinds=(kind,)).sel(kind=kind, skill="recall", metric="log_prob")
    assert result.value.values.tolist() == pytest.approx(list(gains.values()), abs=1e-5)
    assert (result.full.item(), result.empty.item()) == pytest.approx((worth(tuple(players)), worth(())), abs=1e-5)
    one, two, third = players
    expected = [
        worth((*rest, one, two)) - worth((*rest, one)) - worth((*rest, two)) + worth(rest) for rest in ((), (third,))
    ]
    assert result.interaction.sel(PAIR).item() == pytest.approx(np.mean(expected), abs=1e-5)


MIXED = {
    "a position of a head": [Site(kind="z", layer=0, head=0, pos=-1)],
    "neurons": [Site(kind="post", layer=0, neuron=(1, 5))],
    "other neurons, a head": [Site(kind="post", layer=0, neuron=7), Site(kind="z", layer=1, head=1)],
    "where it was seen": [Site(kind="z", layer=0, head=1, pos="source_pos")],
    "a path": [Site(kind="pattern", layer=1, head=0, pos=8, key=3)],
    "positions": [Site(kind="pos_embed", pos=(2, 4))],
}


@pytest.mark.parametrize(
    ("kind", "within"), [("zero", None), ("mean", None), ("mean", "is_repeat"), ("resample", None)]
)
@pytest.mark.parametrize("budget", [None, 300_000, 120_000])
def test_coalitions_in_one_batch_are_those_run_one_at_a_time(kind, within, budget):
    model, batch = random_model(n_layers=2), prompts()
    places, source = skill_places(batch, TASK.skills(batch)), Named(name="reference", value=prompts(seed=1))
    given = {"kind": kind, "source": source, "within": within, "seed": 3}
    play = make_game(model, batch, players=MIXED, places=places, max_bytes=budget, **given)
    there = torch.rand(9, len(MIXED), generator=seeded()) > 0.5
    found = play(there)[:, len(places.pos) :]
    for row, values in zip(there.tolist(), found, strict=True):
        absent = [sites for here, sites in zip(row, MIXED.values(), strict=True) if not here]
        torch.testing.assert_close(values, one_at_a_time(model, batch, absent, kind, within, seed=3), atol=1e-5, rtol=0)


def test_losses_and_their_errors_are_those_of_the_ablation():
    model, batch = random_model(n_layers=2), prompts(60)
    given = {"skills": TASK.skills(batch), "reference": prompts(seed=1), "kinds": ("mean", "resample"), "seed": 5}
    result, expected = shapley(model, batch, interactions=False, **given), ablate(model, batch, **given)
    for metric in ("accuracy", "log_prob"):
        ours, lost = result.lost.sel(metric=metric), expected[f"clean_{metric}"] - expected[metric]
        np.testing.assert_allclose(ours, lost.transpose(*ours.dims), atol=1e-6)
    errors = result.lost_error.sel(metric="accuracy") * (60 / 59) ** 0.5
    np.testing.assert_allclose(errors, expected.accuracy_error, atol=1e-9)
    np.testing.assert_allclose(result.value.sum("component"), result.carried, atol=1e-6)
    np.testing.assert_allclose(result.carried, result.full - result.empty, atol=1e-9)


def test_the_interval_is_over_sequences():
    """Values of halves of the sequences differ as the errors say; the interval is 1.96 of them."""
    result = values_of(random_model(), prompts(200))
    assert (result.sampling_error == 0).all()
    np.testing.assert_allclose(result.high - result.low, 2 * 1.96 * result.error, atol=1e-12)
    parts = [values_of(random_model(), prompts(50, seed)).value.sel(metric="log_prob") for seed in range(12)]
    spread = np.std(np.stack(parts), axis=0, ddof=1)
    ratio = spread / (2 * result.error.sel(metric="log_prob").values)  # a quarter of the sequences
    assert 0.7 < ratio.mean() < 1.4


def test_weights_of_sequences_count():
    batch = prompts()
    double = batch.select(torch.cat((torch.arange(len(batch)), torch.arange(5))))
    weighted = replace(batch, weights=torch.where(torch.arange(len(batch)) < 5, 2.0, 1.0))
    np.testing.assert_allclose(values_of(random_model(), weighted).value, values_of(random_model(), double).value)


def test_each_skill_belongs_to_its_own_head():
    """Elimination is all of head 0's; recall is shared by those that are needed for it together."""
    result = values_of(dissociated(), prompts(100)).sel(kind="mean", metric="accuracy")
    elimination, recall = result.sel(skill="elimination"), result.sel(skill="recall")
    assert elimination.value.values == pytest.approx([elimination.carried.item(), 0, 0])
    assert elimination.interaction.sum("other").values == pytest.approx([0, 0, 0])
    assert recall.value.sel(component="L0H1") == pytest.approx(recall.value.sel(component="L0 MLP").item())
    assert recall.value.sel(component="L0H1") > 0.4
    assert recall.value.sel(component="L0H0") < 0
    assert recall.interaction.sel(component="L0H1", other="L0 MLP") > 0.8


def test_parts_that_stand_in_for_each_other_share_what_neither_is_needed_for():
    result = values_of(twin_elimination(), prompts(100)).sel(kind="mean", metric="accuracy", skill="elimination")
    assert result.lost.values.tolist() == [0, 0]
    assert result.value.values == pytest.approx([result.carried.item() / 2] * 2)
    assert result.interaction.sel(PAIR).item() == pytest.approx(-result.carried.item())


def test_parts_that_must_meet_work_together():
    """Who says what stood where and who says which slot repeats: recall needs both, elimination only the first."""
    result = values_of(store_and_match(), prompts(100)).sel(kind="mean", metric="accuracy")
    assert (result.interaction.sel(skill="recall").stack(pair=("component", "other")).dropna("pair") > 0.4).all()
    assert result.interaction.sel(skill="elimination", **PAIR).item() == pytest.approx(0, abs=1e-9)
    assert (result.lost.sel(skill="recall") > 2 * result.value.sel(skill="recall")).all()


def test_an_untrained_model_has_hardly_anything_to_share_out():
    for seed in range(4):
        result = values_of(random_model(seed=seed), prompts(100)).sel(metric="accuracy", kind="mean")
        assert (abs(result.value) < 0.15).all()
        assert (result.full < 0.35).all()


def test_sampled_orders_agree_with_every_coalition_within_their_interval():
    model, batch = random_model(n_layers=2), prompts(5)
    exact, sampled = (values_of(model, batch, n_samples=n) for n in (None, 16))
    assert (exact.attrs["method"], exact.attrs["n_coalitions"]) == ("every coalition", 64)
    assert (sampled.attrs["method"], sampled.attrs["n_coalitions"]) == ("sampled orders", 16 * 6 * 12)
    for prefix, name in (("", "value"), ("interaction_", "interaction")):
        error = sampled[f"{prefix}sampling_error"]
        assert float(error.max()) > 0
        inside = abs(sampled[name] - exact[name]) <= 2.13 * error + 1e-6  # t with 15 degrees of freedom
        assert float(inside.where(error.notnull()).mean()) > 0.9
        half = (sampled[f"{prefix}high"] - sampled[f"{prefix}low"]) / 2
        both = np.hypot(1.96 * sampled[f"{prefix}error"], 2.13145 * error)
        np.testing.assert_allclose(half, both, rtol=1e-5)
    for name in ("full", "empty", "lost", "carried"):
        np.testing.assert_allclose(sampled[name], exact[name], atol=1e-6)
    np.testing.assert_allclose(sampled.value.sum("component"), sampled.carried, atol=1e-6)


def test_many_players_are_sampled():
    model, batch = random_model(), prompts(2)
    players = dict(list(position_targets(model, 9).items())[-13:])
    result = values_of(model, batch, targets=players, interactions=False, n_samples=8)
    assert result.attrs["method"] == "sampled orders"
    assert "interaction" not in result
    np.testing.assert_allclose(result.value.sum("component"), result.carried, atol=1e-6)


def test_players_may_be_called_by_their_roles():
    model, named = dissociated(), {"L0H1": "recall head", "L0H0": "elimination head"}
    batch = prompts()
    by_number = values_of(model, batch)
    result = values_of(model, batch, targets=targets_by_role(heads_and_mlps(model), named))
    assert (
        result.component.values.tolist()
        == result.other.values.tolist()
        == ["recall head", "elimination head", "L0 MLP"]
    )
    order = ["L0H1", "L0H0", "L0 MLP"]
    np.testing.assert_allclose(result.value, by_number.value.sel(component=order), atol=1e-12)
    np.testing.assert_allclose(result.interaction, by_number.interaction.sel(component=order, other=order), atol=1e-12)


def test_a_bridge_gives_the_same():
    model = random_model(d_mlp=16)
    ours, theirs = values_of(model), values_of(as_bridge(model))
    np.testing.assert_allclose(ours.value, theirs.value, atol=1e-5)


def test_the_stream_between_attention_and_mlp_of_a_bridge_is_a_player():
    model = random_model(d_mlp=16)
    players = {"stream": [Site(kind="resid_mid", layer=0, pos=-1)], "MLP": [Site(kind="mlp_out", layer=0)]}
    ours, theirs = (values_of(one, targets=players) for one in (model, as_bridge(model)))
    np.testing.assert_allclose(ours.value, theirs.value, atol=1e-5)
    assert abs(ours.value.sel(component="stream")).max() > 0.01


@pytest.mark.full
def test_a_result_is_a_plain_file_and_follows_its_seed(tmp_path):
    model = random_model()
    with global_generators_untouched():
        first = values_of(model, kinds=("mean", "resample"), n_samples=8, seed=1)
    assert first.equals(values_of(model, kinds=("mean", "resample"), n_samples=8, seed=1))
    other = values_of(model, kinds=("mean", "resample"), n_samples=8, seed=2)
    assert not first.value.sel(kind="mean").equals(other.value.sel(kind="mean"))
    assert reads_back(first, tmp_path / "values.nc")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kinds": ("knockout",)}, "the kind of a removal must be one of: zero, mean, resample; got 'knockout'"),
        ({"kinds": ()}, "kinds must name at least one"),
        ({"targets": {"a": [Site(kind="z", layer=0)]}}, r"the number of players .* must be from 2 to 128; got 1"),
        ({"targets": {"a": [Site(kind="z", layer=0)], "b": []}}, "player b has no site"),
        ({"targets": {n: [Site(kind="z", layer=0)] for n in "ab"}}, "L0 z belongs to a and to b"),
        ({"targets": {f"{n}": [Site(kind="result", layer=0, head=n)] for n in (0, 1)}}, "cannot be a player; take z"),
        (
            {"targets": {f"{n}": [Site(kind="z", layer=0, head=n)] for n in (0, 2)}},
            "head of site L0H2 .*; got 2",
        ),
        ({"n_samples": 4}, "n_samples must be at least 8; got 4"),
        ({"skills": {}}, "skills must name at least one; got none"),
        ({"within": "slot", "kinds": ("mean",)}, "the latent that classes are of must be one of"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_what_is_no_game_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        values_of(random_model(), **change)


def test_a_model_that_is_too_small_or_broken_is_refused():
    with pytest.raises(InputError, match="the model has 5 tokens and the batch uses token 5"):
        values_of(random_model(d_vocab=5))
    model = random_model()
    with torch.no_grad():
        model.unembed.b_U.fill_(torch.inf)
    with pytest.raises(InputError, match="the model's logits hold NaN"):
        values_of(model)
