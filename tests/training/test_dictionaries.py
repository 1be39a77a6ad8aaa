import pytest
import torch

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.core.seeding import generator
from mnemoscope.interventions.recordings import record_activations
from mnemoscope.training import dictionaries
from mnemoscope.training.dictionaries import _fit, _rows
from tests.support import global_generators_untouched, random_model
from tests.toys import Sums

RECIPE = ms.DictionaryRecipe(width=2, k=3, n_steps=30, batch_size=64)


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(dictionaries, "_MAX_ROWS", 2**12)


def batch(n: int = 200, *, seed: int = 0, **fields) -> ms.Batch:
    tokens = torch.randint(6, (n, 9), generator=generator(seed, "tokens"))
    return ms.Batch(inputs=tokens, targets=tokens, scored=torch.ones_like(tokens, dtype=torch.bool), **fields)


def train(seed: int = 0, model=None, **changes) -> ms.Dictionary:
    recipe = ms.DictionaryRecipe(**{**vars(RECIPE), **changes})
    return ms.train_dictionary(model or random_model(mlp=True), batch(), recipe=recipe, seed=seed)


def test_the_same_seed_gives_the_same_dictionary():
    with global_generators_untouched():
        one = train()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert train() == one
    finally:
        torch.set_default_dtype(before)
    with torch.inference_mode():
        assert train() == one
    assert train(1).digest != one.digest


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (32, "mlp_in", "mlp_out", False)),
        ({"kind": "skip-transcoder"}, (32, "mlp_in", "mlp_out", True)),
        ({"kind": "sae"}, (16, "mlp_out", "mlp_out", False)),
        ({"kind": "sae", "read": "resid_post", "width": 0.5}, (4, "resid_post", "resid_post", False)),
    ],
)
def test_kinds_have_their_sizes_and_places(changes, expected):
    found = train(**changes)
    assert (found.n_features, found.reads, found.writes, found.skip is not None) == expected
    assert (found.activation, found.k, found.centre) == ("topk", 3, None)


@pytest.mark.full
def test_directions_that_were_planted_are_found():
    """Rows are sparse sums of eight orthogonal directions, one of which is three times as long."""
    draws = generator(0, "planted")
    basis = torch.linalg.qr(torch.randn(8, 8, generator=draws, dtype=torch.float32)).Q
    active = torch.rand(4000, 8, generator=draws, dtype=torch.float32) < 0.1
    values = active * (1 + torch.rand(4000, 8, generator=draws, dtype=torch.float32))
    rows = (values * torch.tensor([3.0] + [1] * 7)) @ basis + 5

    def closest(n_steps: int) -> torch.Tensor:
        recipe = ms.DictionaryRecipe(kind="sae", n_steps=n_steps, batch_size=128, k=2)
        return (torch.nn.functional.normalize(_fit(rows, rows, recipe, 12, 0).w_dec) @ basis.T).amax(0)

    assert closest(500).median() > 0.9 > 0.75 > closest(1).median()


@pytest.mark.full
def test_a_linear_mlp_is_the_skip_connection():
    model = random_model(mlp=True, act_fn="identity")
    recipe = ms.DictionaryRecipe(kind="skip-transcoder", width=0.25, k=1, n_steps=800, batch_size=256)
    found = ms.train_dictionary(model, batch(), recipe=recipe)
    norm, mlp = model.blocks[0].ln2, model.blocks[0].mlp
    assert found.skip is not None
    x, y = _rows(model, batch(), ["blocks.0.ln2.hook_normalized", "blocks.0.hook_mlp_out"])
    torch.testing.assert_close((x * norm.w + norm.b) @ mlp.W_in @ mlp.W_out + mlp.b_in @ mlp.W_out + mlp.b_out, y)
    left = (y - found.reconstruct(x)).square().sum() / (y - y.mean(0)).square().sum()
    assert left < 1e-3


@pytest.mark.full
def test_a_penalty_makes_features_sparse():
    rows = record_activations(random_model(mlp=True), batch(), {"blocks.0.hook_mlp_out"})["blocks.0.hook_mlp_out"]
    weak, strong = (train(kind="sae", activation="relu", l1=l1, n_steps=150) for l1 in (0.0, 2.0))
    assert weak.k is None
    assert (strong.encode(rows) > 0).sum() < 0.6 * (weak.encode(rows) > 0).sum()


def test_rows_are_drawn_by_weight_and_without_padding():
    weights, lengths = torch.zeros(200), torch.full((200,), 9)
    weights[3], lengths[3] = 1, 4
    model, place = random_model(mlp=True), "blocks.0.hook_mlp_out"
    rows, again = _rows(model, batch(weights=weights, lengths=lengths), [place, place])
    assert torch.equal(rows, again)
    own = record_activations(model, batch(), {place}, by_engine=True)[place][3, :4]
    assert {tuple(row) for row in rows.unique(dim=0).tolist()} == {tuple(row) for row in own.unique(dim=0).tolist()}


def test_a_task_is_sampled_from_its_training_split():
    task = Sums(split_seed=1)
    model = random_model(mlp=True, d_vocab=5, n_ctx=2)
    rows, _ = _rows(model, task, ["blocks.0.hook_resid_pre"] * 2)
    seen = record_activations(model, task.enumerate(split="train"), {"blocks.0.hook_resid_pre"}, by_engine=True)
    allowed = seen["blocks.0.hook_resid_pre"].flatten(0, 1)
    assert {tuple(r) for r in rows.unique(dim=0).tolist()} <= {tuple(r) for r in allowed.tolist()}


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        ({"mlp": False}, {}, "no MLP"),
        ({"mlp": True}, {"layer": 1}, "layer of a dictionary must be 0; got 1"),
        ({"mlp": True}, {"k": 33}, "from 1 to 32; got 33"),
    ],
)
def test_a_model_that_lacks_something_is_refused(model, changes, words):
    with pytest.raises(InputError, match=words):
        train(model=random_model(**model), **changes)


@pytest.mark.usefixtures("as_installed")
def test_what_cannot_be_trained_on_is_refused():
    with pytest.raises(InputError, match="must be a task or a batch"):
        ms.train_dictionary(random_model(mlp=True), recipe=RECIPE)
    one = torch.ones(5, 3, dtype=torch.long)
    same = ms.Batch(inputs=one, targets=one, scored=one.bool())
    with pytest.raises(InputError, match="does not vary"):
        ms.train_dictionary(random_model(mlp=True, attention=False, positions=False), same, recipe=RECIPE)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "crosscoder"}, "kind of a dictionary must be one of: sae, transcoder, skip-transcoder"),
        ({"read": "resid_post"}, "read of a dictionary of kind transcoder must be one of: mlp"),
        ({"kind": "sae", "read": "mlp_in"}, "got 'mlp_in'"),
        ({"activation": "jumprelu"}, "one of: topk, relu"),
        ({"width": 0}, "width"),
        ({"n_steps": 0}, "n_steps"),
        ({"l1": -1}, "l1"),
        ({"learning_rate": float("nan")}, "learning_rate"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_a_recipe_that_makes_no_sense_is_refused(changes, words):
    with pytest.raises(InputError, match=words):
        ms.DictionaryRecipe(**changes)


def test_activations_of_one_position_alone_can_be_taken():
    model = random_model(mlp=True)
    place = "blocks.0.hook_mlp_out"
    (last,) = _rows(model, batch(5), [place], -1)
    (every,) = _rows(model, batch(5), [place])
    assert torch.equal(last, every.unflatten(0, (5, -1))[:, -1])
    weighted = batch(5, weights=torch.tensor([0.0, 1, 0, 0, 0]))
    (drawn,) = _rows(model, weighted, [place], -1)
    torch.testing.assert_close(drawn, last[1].expand_as(drawn))
