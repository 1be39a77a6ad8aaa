"""The estimate where the coefficient is known, its health, and the models it takes.

Tolerances were fixed before the first measurement: .1 of the value where it is known at this temperature, .1 of the
formula where its multiplicity is one, and .75 to 1.05 of it otherwise, since that is approached with 1 / log n.
"""

import math
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

import mnemoscope as ms
from mnemoscope.analyses import LangevinChains, learning_coefficient, loss_learning_coefficient
from mnemoscope.analyses.langevin import Drawn
from mnemoscope.analyses.local_learning import describe_health, label_draws
from mnemoscope.models.building import build, build_untrained
from tests.support import MINUTES
from tests.toys import Sums

N = 1000
N_BETA = N / math.log(N)
WITHIN = 0.1


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def regression(width):
    """A linear regression at its least squares: its loss, its weights, and the curvatures."""
    x = normal(N, width) * torch.logspace(0, -1, width, dtype=torch.float64)
    y = x @ normal(width, seed=1) + normal(N, seed=2) / 10
    best = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    return lambda w: (x @ w["w"] - y).square().mean() / 2, {"w": best}, torch.linalg.eigvalsh(x.T @ x / N)


def counted(curvatures, pull, n_beta=N_BETA):
    """A half for every direction, as far as it outweighs the pull."""
    return float((curvatures * n_beta / (curvatures * n_beta + pull) / 2).sum())


@pytest.mark.parametrize(
    "width", [4, pytest.param(16, marks=pytest.mark.thorough), pytest.param(64, marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("pull", [0.01, pytest.param(10, marks=pytest.mark.thorough)])
def test_a_regular_model_has_half_its_parameters(width, pull):
    loss, best, curvatures = regression(width)
    found = loss_learning_coefficient(loss, best, n=N, chains=LangevinChains(localisation=pull))
    assert abs(float(found.estimate) - counted(curvatures, pull)) < WITHIN * width / 2
    if pull < 1:
        assert abs(float(found.estimate) - width / 2) < WITHIN * width / 2
    assert not found.negative
    assert not found.drifting


@pytest.mark.drawn(1)
@pytest.mark.thorough
@pytest.mark.parametrize(("width", "steps"), [(4, (0.2, 0.8, 3.2, 6.4)), (16, (0.2, 0.8, 3.2)), (64, (0.1, 0.4, 1.6))])
def test_the_step_size_does_not_matter(width, steps):
    loss, best, curvatures = regression(width)
    for step in steps:
        chains = LangevinChains(localisation=0.01, step_size=step, draws=1000)
        found = loss_learning_coefficient(loss, best, n=N, chains=chains)
        assert abs(float(found.estimate) - counted(curvatures, 0.01)) < WITHIN * width / 2, step
        assert float(found.step_size) == pytest.approx(step)


def product_value(a, b, n_beta, pull):
    """The mean of n_beta (w1^a w2^b)²/2 by quadrature on logarithms of the weights."""
    u = np.linspace(-16, 3, 2000)
    energy = n_beta / 2 * np.exp(2 * a * u[:, None] + 2 * b * u)
    density = np.exp(-energy - pull / 2 * (np.exp(2 * u[:, None]) + np.exp(2 * u)) + u[:, None] + u)
    return float((energy * density).sum() / density.sum())


@pytest.mark.drawn(1)
@pytest.mark.thorough
@pytest.mark.parametrize(("a", "b", "value", "multiplicity"), [(1, 1, 1 / 2, 2), (2, 1, 1 / 4, 1), (2, 2, 1 / 4, 2)])
def test_a_product_of_weights(a, b, value, multiplicity):
    start = {name: torch.zeros((), dtype=torch.float64) for name in ("w1", "w2")}
    chains = LangevinChains(localisation=1, draws=5000, n_chains=8)
    found = loss_learning_coefficient(lambda w: (w["w1"] ** a * w["w2"] ** b).square() / 2, start, n=N, chains=chains)
    exact = product_value(a, b, N_BETA, 1)
    assert abs(float(found.estimate) - exact) < WITHIN * exact
    large = product_value(a, b, 1e8, 1)
    assert (0.9 if multiplicity == 1 else 0.75) * value < large < 1.05 * value


def reduced_rank(n_in, n_out, hidden, rank):
    """The coefficient of a product of two matrices, and its multiplicity (Aoyagi & Watanabe 2005)."""
    m, n, h = n_in, n_out, hidden + rank
    if n + rank > m + hidden:
        return (hidden * m - hidden * rank + n * rank) / 2, 1
    if m + rank > n + hidden:
        return (hidden * n - hidden * rank + m * rank) / 2, 1
    if h > m + n:
        return m * n / 2, 1
    odd = (m + n + h) % 2
    return (odd - h**2 - m**2 - n**2 + 2 * h * (m + n) + 2 * m * n) / 8, 1 + odd


def test_the_formula_of_reduced_rank_regression():
    assert reduced_rank(1, 1, 1, 0) == (1 / 2, 2)
    assert reduced_rank(4, 4, 2, 2) == (
        2 * (4 + 4 - 2) / 2,
        1,
    )  # full rank: no redundant direction but the choice of basis
    assert reduced_rank(2, 5, 3, 2) == (2 * 5 / 2, 1)  # wide enough: any matrix


@pytest.mark.drawn(2)
@pytest.mark.thorough
@pytest.mark.parametrize("sizes", [(3, 3, 2, 0), (4, 4, 2, 0), (4, 4, 2, 2), (5, 2, 1, 0), (3, 3, 2, 1)], ids=str)
def test_reduced_rank_regression(sizes):
    n_in, n_out, hidden, rank = sizes
    a, b = torch.zeros(hidden, n_in, dtype=torch.float64), torch.zeros(n_out, hidden, dtype=torch.float64)
    a[range(rank), range(rank)] = b[range(rank), range(rank)] = 1
    truth = b @ a
    chains = LangevinChains(localisation=1, burn_in=1000, draws=3000)
    found = loss_learning_coefficient(
        lambda w: (w["b"] @ w["a"] - truth).square().sum() / 2, {"a": a, "b": b}, n=100_000, chains=chains
    )
    value, multiplicity = reduced_rank(*sizes)
    low, high = (1 - WITHIN, 1 + WITHIN) if multiplicity == 1 else (0.75, 1.05)
    assert low * value < float(found.estimate) < high * value


def test_directions_that_the_loss_ignores_do_not_count():
    loss, best, _ = regression(4)
    flat = {**best, "dead": torch.ones(3, 5, dtype=torch.float64)}
    found = loss_learning_coefficient(loss, flat, n=N, chains=LangevinChains(localisation=0.01))
    assert abs(float(found.estimate) - 2) < WITHIN * 2
    assert found.attrs["n_weights"] == 19


def sums(n=4096):
    task = Sums(n=4)
    return task, task.sample(n, split="train", generator=ms.generator(0, "sums"))


def relu_model(*, own=True):
    spec = ms.ModelSpec(d_model=8, n_heads=2, n_layers=1, act_fn="relu")
    return build(spec, seed=0, d_vocab=4, n_ctx=2, own=own)


def fit_output_bias(model, task, batch):
    """Put the bias of the unembedding at the least loss."""
    bias = model.unembed.b_U
    optimizer = torch.optim.LBFGS([bias], max_iter=200, tolerance_grad=1e-9)

    def loss():
        optimizer.zero_grad()
        value = task.loss(model(batch.inputs), batch)
        value.backward()
        return value

    optimizer.step(loss)
    return model


@MINUTES
@pytest.mark.thorough
def test_logits_of_a_model_have_a_redundant_direction_and_dead_neurons_none():
    task, batch = sums()
    model = relu_model()
    with torch.no_grad():
        model.blocks[0].mlp.b_in.fill_(-1e3)
    fit_output_bias(model, task, batch)
    half = (task.d_vocab - 1) / 2
    for parameters in (["unembed.b_U"], ["unembed.b_U", "blocks.0.mlp.W_*"]):
        chains = LangevinChains(localisation=0.1, draws=1000)
        found = learning_coefficient(model, task, batch, chains=chains, parameters=parameters)
        assert abs(float(found.estimate) - half) < WITHIN * half, parameters


QUICK = LangevinChains(burn_in=20, draws=10, n_chains=2)


def test_it_leaves_everything_as_it_was_and_repeats():
    task, batch = sums(32)
    model = relu_model().train()
    weights, state = [value.clone() for value in model.parameters()], torch.random.get_rng_state()
    first, again = (learning_coefficient(model, task, batch, chains=QUICK) for _ in range(2))
    other = learning_coefficient(model, task, batch, chains=replace(QUICK, seed=1))
    assert first.identical(again)
    assert not first.loss.equals(other.loss)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(map(torch.equal, weights, model.parameters()))
    assert model.training
    assert all(value.grad is None for value in model.parameters())


@pytest.mark.parametrize("own", [True, pytest.param(False, marks=pytest.mark.full)])
def test_the_engine_and_the_model_itself_agree(own):
    task, batch = sums(32)
    model = relu_model(own=own)
    by_engine = learning_coefficient(model, task, batch, chains=QUICK)
    model.hook_dict["blocks.0.hook_mlp_out"].add_hook(lambda x, hook: x)
    by_model = learning_coefficient(model, task, batch, chains=QUICK)
    assert np.allclose(by_engine.loss, by_model.loss, atol=1e-4)
    model.hook_dict["blocks.0.hook_mlp_out"].add_hook(lambda x, hook: 0 * x)
    assert not np.allclose(by_engine.start_loss, learning_coefficient(model, task, batch, chains=QUICK).start_loss)


def test_the_loss_is_that_of_the_task():
    task, batch = sums(32)
    model = relu_model()
    found = learning_coefficient(model, task, batch, chains=QUICK)
    assert float(found.start_loss) == pytest.approx(task.loss(model(batch.inputs), batch).item(), abs=1e-5)
    assert float(learning_coefficient(model, None, batch, chains=QUICK).start_loss) == pytest.approx(
        float(found.start_loss), abs=1e-5
    )


@pytest.mark.parametrize("preset", ["retrieval-2-1-layer", "k-hop-2", "brackets"])
def test_tasks_of_vectors_tokens_and_classes(preset):
    spec = ms.preset(preset)
    task = spec.task.for_seed(0)
    model = build_untrained(spec, own=True)
    batch = task.sample(8, split="train", generator=ms.generator(0, preset))
    found = learning_coefficient(model, task, batch, chains=QUICK)
    assert np.isfinite(found.loss).all()
    assert found.attrs["loss_unit"] == ("squared error" if batch.has_vectors else "nats")


def test_flags_say_what_is_wrong():
    loss, best, _ = regression(4)
    slope = loss_learning_coefficient(loss, {"w": best["w"] + 1}, n=N)
    assert bool(slope.negative)
    assert "no minimum" in slope.attrs["health"]
    slow = loss_learning_coefficient(loss, best, n=N, chains=LangevinChains(step_size=1e-4, localisation=0.01))
    assert bool(slow.sticking)
    assert "independent draws" in slow.attrs["health"]


@pytest.mark.parametrize(("rise", "flagged"), [(0.5, True), (0.05, False)])
def test_a_drift_is_flagged(rise, flagged):
    losses = 3 + np.random.default_rng(0).normal(size=(4, 200)) / 10 + np.linspace(0, 2 * rise, 200)
    ones = np.ones(4)
    drawn = Drawn(losses=losses, start_loss=1, acceptance=ones, distance=ones, step_size=1)
    found = label_draws(drawn, 1)
    assert float(found.drift) == pytest.approx(rise, abs=0.03)
    assert bool(found.drifting) == flagged
    assert ("drifts" in describe_health(found)) == flagged


def with_weights(batch):
    return replace(batch, weights=torch.linspace(1, 2, len(batch)) / len(batch))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, t, b: learning_coefficient(m, t, with_weights(b)), "equal weights.*task.sample"),
        (
            lambda m, t, b: learning_coefficient(m, t, b, parameters=["unembed.b_V"]),
            "matches none.*the nearest: unembed",
        ),
        (lambda m, t, b: learning_coefficient(m, t, b, parameters=[]), "at least one"),
        (lambda m, t, b: learning_coefficient(m, t, b, parameters="embed.W_E"), "must be a list"),
        (lambda m, t, b: learning_coefficient(m.to(torch.bfloat16), t, b), "float32 or float64"),
        (lambda m, t, b: loss_learning_coefficient(lambda w: w["a"].sum(), {"a": torch.ones(2)}, n=1), "n must be"),
        (lambda m, t, b: loss_learning_coefficient(lambda w: w["a"].log().sum(), {"a": -torch.ones(2)}, n=9), "finite"),
        (lambda m, t, b: loss_learning_coefficient(lambda w: torch.ones(()), {"a": torch.ones(2)}, n=9), "depend"),
        (lambda m, t, b: LangevinChains(draws=3), "draws must be at least 10"),
        (lambda m, t, b: LangevinChains(step_size=0), "step_size must be"),
    ],
)
def test_refusals(call, message):
    task, batch = sums(8)
    with pytest.raises(ms.InputError, match=message):
        call(relu_model(), task, batch)


def test_a_step_size_that_is_too_large_is_refused():
    loss, best, _ = regression(64)
    with pytest.raises(ms.InputError, match=r"accept at least 0.05 of their steps; at 50 .* take a smaller one"):
        loss_learning_coefficient(loss, best, n=N, chains=LangevinChains(step_size=50, draws=20))


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("devinterp") is None, reason="devinterp is not installed")
@pytest.mark.filterwarnings("ignore")
def test_devinterp_agrees(tmp_path):
    """Its chains, of small steps and without their burn-in, on a regression that fits into a loss of rows."""
    from datasets import Dataset
    from devinterp.slt.llc import llc

    class Regression(torch.nn.Module):
        def __init__(self, weights):
            super().__init__()
            self.w = torch.nn.Parameter(weights.float())

    width, burn_in, n = 8, 200, 100
    n_beta = n / math.log(n)
    x = normal(n, width)
    y = x @ normal(width, seed=1) + normal(n, seed=2) / 10
    best = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    rows = Dataset.from_dict({"input_ids": [[row, row] for row in range(n)]}).with_format("torch")

    def loss_of_rows(model, input_ids):
        chosen = input_ids[:, 0]
        return ((x[chosen].float() @ model.w - y[chosen].float()).square() / 2)[:, None]

    state = torch.random.get_rng_state()
    sizes = {
        "num_chains": 4,
        "num_draws": 700,
        "num_burnin_steps": burn_in,
        "batch_size": n,
        "num_init_loss_batches": 1,
    }
    theirs = llc(
        Regression(best), rows, {}, lr=5e-3, n_beta=n_beta, loss_fn=loss_of_rows, localization=1.0, **sizes,
        device="cpu", output_path=tmp_path / "draws.zarr",
    )  # fmt: skip
    torch.random.set_rng_state(state)
    after = float(n_beta * (theirs.loss_trace.values[:, burn_in:].mean() - float(theirs.init_loss)))
    ours = loss_learning_coefficient(
        lambda w: (x @ w["w"] - y).square().mean() / 2,
        {"w": best},
        n=n,
        chains=LangevinChains(localisation=1, draws=1000),
    )
    expected = counted(torch.linalg.eigvalsh(x.T @ x / n), 1, n_beta)
    assert abs(float(ours.estimate) - expected) < WITHIN * expected
    assert abs(after - float(ours.estimate)) < 2 * WITHIN * width / 2
