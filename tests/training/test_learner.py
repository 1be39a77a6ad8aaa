import pytest
import torch

from mnemoscope.core.specification import ModelSpec, Recipe
from mnemoscope.models.building import build, detached_parameters
from mnemoscope.training.learner import Learner
from mnemoscope.training.schedule import Examples
from tests.support import seeded

SPEC = ModelSpec(d_model=8, n_heads=2, dtype="float64")
SCORED = torch.tensor([0, 2, 4, 6, 8])


def learner(n: int = 1, moments=None, **recipe) -> Learner:
    params = [detached_parameters(build(SPEC, d_vocab=6, n_ctx=9, seed=seed)) for seed in range(n)]
    return Learner(SPEC, Recipe(**recipe), params, moments or [{}] * n)


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.randint(1, 6, shape, generator=seeded(seed)) for shape in ((16, 9), (16, 5)))


def picked(outputs, batch):
    """A loss that picks by a mask, so that `vmap` cannot compute it."""
    return torch.nn.functional.cross_entropy(outputs[batch.scored], batch.targets[batch.scored])


def weighed(outputs, batch):
    """The same loss, which `vmap` can compute."""
    losses = torch.nn.functional.cross_entropy(outputs.mT, batch.targets, reduction="none")
    return (losses * batch.scored).sum() / batch.scored.sum()


def losses(learner: Learner, seeds, loss=weighed) -> torch.Tensor:
    return learner.losses(loss, examples(seeds), SCORED)


def examples(seeds) -> Examples:
    inputs, targets = (torch.stack(parts) for parts in zip(*map(batch, seeds), strict=True))
    scored = torch.zeros(inputs.shape, dtype=torch.bool).index_fill(-1, SCORED, True)
    everywhere = torch.zeros_like(inputs).index_copy(-1, SCORED, targets)
    return Examples(inputs, everywhere, scored)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_updates_are_those_of_adam_on_the_hooked_model(weight_decay):
    ours = learner(weight_decay=weight_decay, beta1=0.8, beta2=0.95)
    model = build(SPEC, d_vocab=6, n_ctx=9, seed=0)
    adam = torch.optim.AdamW(model.parameters(), lr=0.1, betas=(0.8, 0.95), weight_decay=weight_decay)
    for step, rate in enumerate((0.01, 0.02, 0.005)):
        ours.update(losses(ours, [step]), learning_rate=rate)
        inputs, targets = batch(step)
        adam.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs)[:, SCORED].flatten(0, 1), targets.flatten()).backward()
        adam.param_groups[0]["lr"] = rate
        adam.step()
    for name, value in model.named_parameters():
        torch.testing.assert_close(ours.parameters(0)[name], value.detach(), atol=1e-9, rtol=0)


def test_the_first_update_has_the_size_of_the_rate():
    ours = learner()
    before = {name: value.clone() for name, value in ours.parameters(0).items()}
    ours.update(losses(ours, [0]), learning_rate=0.01)
    moved = (ours.parameters(0)["unembed.W_U"] - before["unembed.W_U"]).abs()
    assert moved.flatten().tolist() == pytest.approx([0.01] * 48, rel=1e-4)
    ours.update(losses(ours, [0]), learning_rate=0.0)
    moved = (ours.parameters(0)["unembed.W_U"] - before["unembed.W_U"]).abs()
    assert moved.flatten().tolist() == pytest.approx([0.01] * 48, rel=1e-4)


def test_what_is_held_keeps_value_and_moments():
    ours = learner(weight_decay=0.1)
    ours.update(losses(ours, [0]), learning_rate=0.01)
    before = {name: value.clone() for name, value in ours.parameters(0).items()}
    moments = {name: {k: v.clone() for k, v in m.items()} for name, m in ours.moments(0).items()}
    ours.hold(frozenset({"unembed.W_U"}))
    ours.update(losses(ours, [1]), learning_rate=0.01)
    for name, value in ours.parameters(0).items():
        assert torch.equal(value, before[name]) == (name == "unembed.W_U"), name
    assert all(torch.equal(v, moments["unembed.W_U"][k]) for k, v in ours.moments(0)["unembed.W_U"].items())


@pytest.mark.parametrize("loss", [weighed, picked])
def test_many_seeds_are_computed_as_one_by_one(loss):
    together = learner(3)
    alone = [Learner(SPEC, Recipe(), [together.parameters(i)], [{}]) for i in range(3)]
    outputs = together.evaluate(examples(range(3)).inputs, SCORED)
    for i, one in enumerate(alone):
        torch.testing.assert_close(outputs[i], one.evaluate(examples([i]).inputs, SCORED)[0], atol=1e-12, rtol=0)
    together.update(losses(together, range(3), loss), learning_rate=0.01)
    for i, one in enumerate(alone):
        one.update(losses(one, [i], loss), learning_rate=0.01)
        for name, value in one.parameters(0).items():
            torch.testing.assert_close(together.parameters(i)[name], value, atol=1e-9, rtol=0)


def test_a_loss_is_called_once_for_all_seeds():
    together, called = learner(3), []
    for _ in range(4):
        losses(together, range(3), lambda *args: called.append(1) or weighed(*args))
    assert len(called) == 5  # and once to see whether that can be


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("n", [1, 3])
def test_parameters_and_moments_are_all_that_continuing_needs(n, optimizer):
    first = learner(n, optimizer=optimizer)
    first.hold(frozenset({"embed.W_E"}))
    first.update(losses(first, range(n)), learning_rate=0.01)
    moments = [first.moments(i) for i in range(n)]
    assert "embed.W_E" not in moments[0]
    copies = [{name: value.clone() for name, value in first.parameters(i).items()} for i in range(n)]
    kept = [{name: {k: v.clone() for k, v in m.items()} for name, m in part.items()} for part in moments]
    second = Learner(SPEC, Recipe(optimizer=optimizer), copies, kept)
    first.hold(frozenset())
    for one in (first, second):
        one.update(losses(one, range(n)), learning_rate=0.01)
    for i in range(n):
        for name, value in first.parameters(i).items():
            assert torch.equal(second.parameters(i)[name], value), name


def test_the_given_parameters_are_not_changed():
    params = detached_parameters(build(SPEC, d_vocab=6, n_ctx=9, seed=0))
    before = {name: value.clone() for name, value in params.items()}
    ours = Learner(SPEC, Recipe(), [params], [{}])
    ours.update(losses(ours, [0]), learning_rate=0.01)
    assert all(torch.equal(params[name], before[name]) for name in params)


def test_updates_are_those_of_sgd_with_momentum_on_the_hooked_model():
    ours = learner(optimizer="sgd", momentum=0.8, weight_decay=0.01)
    model = build(SPEC, d_vocab=6, n_ctx=9, seed=0)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8, weight_decay=0.01)
    for step, rate in enumerate((0.5, 0.2, 0.1)):
        ours.update(losses(ours, [step]), learning_rate=rate)
        inputs, targets = batch(step)
        sgd.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs)[:, SCORED].flatten(0, 1), targets.flatten()).backward()
        sgd.param_groups[0]["lr"] = rate
        sgd.step()
    for name, value in model.named_parameters():
        torch.testing.assert_close(ours.parameters(0)[name], value.detach(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("n", [1, 3])
def test_gradients_are_clipped_per_run_by_their_norm(n):
    ours = learner(n, optimizer="sgd", momentum=0.0, clip_norm=0.25)
    plain = learner(n, optimizer="sgd", momentum=0.0)
    factors = torch.tensor([1.0, 1e-3, 1.0], dtype=torch.double)[:n]
    before = [{name: value.clone() for name, value in ours.parameters(run).items()} for run in range(n)]
    for each in (ours, plain):
        each.update(losses(each, range(n)) * factors, learning_rate=1.0)
    for run in range(n):
        moved, wanted = ({k: v - before[run][k] for k, v in each.parameters(run).items()} for each in (ours, plain))
        norm = torch.cat([value.flatten() for value in wanted.values()]).norm()
        assert (norm > 0.25) == (run != 1)
        for name, value in wanted.items():
            torch.testing.assert_close(moved[name], value * min(1, 0.25 / norm), atol=1e-10, rtol=1e-7)


def test_what_is_held_gets_no_gradient_until_it_is_let_go():
    ours = learner()
    for held in (frozenset({"unembed.W_U"}), frozenset()):
        ours.hold(held)
        before = ours.parameters(0)["unembed.W_U"].clone()
        ours.update(losses(ours, [0]), learning_rate=0.01)
        assert torch.equal(ours.parameters(0)["unembed.W_U"], before) == bool(held)
