import math

import numpy as np
import pytest
import torch

from mnemoscope.analyses.attention_replacement.replacement import replace_each, replace_heads
from mnemoscope.core.errors import InputError
from mnemoscope.core.patterns import Mechanism, identity, previous, uniform, with_fallback
from mnemoscope.systems.tiny_recall.constructed import elimination_only
from tests.support import (
    EARLIER_X,
    EARLIER_Y,
    foreign_model,
    global_generators_untouched,
    random_model,
    seeded,
    small_spec,
)

TASK = small_spec("v3").task
BATCH = TASK.monitor(200, split="test", generator=seeded())
SKILLS = TASK.skills(BATCH)
ON_Y = with_fallback(EARLIER_Y, identity())
ON_X = with_fallback(EARLIER_X, identity())
SILENT = Mechanism(name="silent", pattern=lambda b: torch.full((len(b), 9, 9), torch.nan))


THREE = (ON_Y, ON_X, uniform())


def each(model=None, mechanisms=THREE, **options):
    return replace_each(model or elimination_only(), BATCH, mechanisms, skills=SKILLS, **options)


def test_the_elimination_head_is_as_good_with_its_mechanism():
    head = each().sel(layer=0, head=0)
    on_y = head.sel(mechanism=ON_Y.name)
    np.testing.assert_allclose(on_y["rise"], 0, atol=1e-5)
    assert bool(on_y.holds)
    assert bool(on_y.beats_control)
    assert on_y.recovered.sel(skill="elimination").item() == pytest.approx(1, abs=1e-4)
    assert not bool(head.holds.sel(mechanism=ON_X.name))
    assert head.recovered.sel(mechanism=ON_X.name, skill="elimination").item() < 0


def test_the_loss_of_uniform_attention_by_hand():
    # 9 keys: each used y has -40 / 9, but the y that stands there as an x too has -80 / 9; the unused value, the last
    # x or not, stands there once, as an x
    loss = each().sel(layer=0, head=0, mechanism="uniform", skill="elimination").loss.item()
    same = BATCH.inputs[:, ::2, None] == torch.arange(1, 6)
    count = same.sum(1) + (BATCH.inputs[:, 1::2, None] == torch.arange(1, 6)).sum(1)
    logits = -40 / 9 * count[SKILLS["elimination"][:, -1]]
    target = BATCH.targets[SKILLS["elimination"][:, -1], -1] - 1
    expected = torch.nn.functional.cross_entropy(logits, target)
    assert loss == pytest.approx(expected.item(), abs=1e-4)


def test_the_idle_head_has_nothing_to_recover():
    idle = each().sel(layer=0, head=1)
    assert not idle.needed.any()
    assert idle.recovered.isnull().all()
    assert idle.holds.all()
    np.testing.assert_allclose(idle["rise"], 0, atol=1e-6)


def test_needed_is_by_skill():
    needed = each().needed.sel(layer=0, head=0)
    assert bool(needed.sel(skill="elimination"))
    assert not bool(needed.sel(skill="recall")), "ablated it is no worse at recall, which the model cannot do"


def test_there_is_no_control_of_even_attention():
    result = each().sel(layer=0, head=0)
    assert result.control_loss.sel(mechanism="uniform").isnull().all()
    control = result.control_loss.sel(mechanism=ON_Y.name, skill="elimination")
    assert control.item() > 1


def test_saying_nothing_changes_nothing():
    result = each(random_model(n_layers=2), (SILENT,))
    np.testing.assert_array_equal(result["rise"], 0)
    assert result.covered.item() == 0
    assert each(mechanisms=(EARLIER_Y,)).covered.item() == pytest.approx(7 / 9)


def test_the_learned_pattern_as_a_mechanism_changes_nothing():
    model = random_model(n_layers=2)
    _, cache = model.run_with_cache(BATCH.inputs)
    own = {
        (layer, head): Mechanism(name="own", pattern=lambda b, p=cache["pattern", layer][:, head]: p)
        for layer in range(2)
        for head in range(2)
    }
    result = replace_heads(model, BATCH, own, skills=SKILLS)
    np.testing.assert_allclose(result["rise"], 0, atol=1e-6)
    assert bool(result.holds)
    assert result.attrs["n_replaced"] == 4


def test_clean_losses_are_those_of_the_model():
    result = replace_heads(elimination_only(), BATCH, {}, skills=SKILLS)
    np.testing.assert_array_equal(result.loss, result.clean_loss)
    unused = -math.log(1 / (1 + 4 * math.exp(-10)))
    assert result.clean_loss.sel(skill="elimination").item() == pytest.approx(unused, rel=1e-3)
    assert result.accuracy.sel(skill="elimination").item() == 1


def test_heads_are_replaced_together():
    one = replace_heads(elimination_only(), BATCH, {(0, 0): ON_X}, skills=SKILLS)
    two = replace_heads(elimination_only(), BATCH, {(0, 0): ON_X, (0, 1): ON_Y}, skills=SKILLS)
    np.testing.assert_allclose(one.loss, two.loss)
    assert not bool(two.holds)


def test_any_model_and_no_skill():
    model = foreign_model(n_layers=3, normalization_type="LN", attn_only=True)
    result = replace_each(model, BATCH, [uniform(), previous()], tolerance=0.1)
    assert dict(result.loss.sizes) == {"layer": 3, "head": 2, "mechanism": 2, "skill": 1}
    assert result.attrs["tolerance"] == 0.1
    assert all(isinstance(value, str | int | float) for value in result.attrs.values())


def test_the_model_and_the_generators_are_left_as_found():
    model = random_model()
    before = model(BATCH.inputs)
    with global_generators_untouched():
        each(model)
    assert torch.equal(model(BATCH.inputs), before)


def test_wrong_input_is_refused():
    with pytest.raises(InputError, match="twice"):
        each(mechanisms=(uniform(), uniform()))
    with pytest.raises(InputError, match="head"):
        replace_heads(random_model(), BATCH, {(0, 2): uniform()})
    with pytest.raises(InputError, match="take a model with more"):
        replace_heads(random_model(n_ctx=5), BATCH, {})
    broken = random_model()
    broken.blocks[0].attn.W_K.data[0, 0, 0] = torch.nan
    with pytest.raises(InputError, match="W_K holds NaN"):
        each(broken)
    future = Mechanism(name="future", pattern=lambda b: torch.ones(len(b), 9, 9) / 9)
    with pytest.raises(InputError, match="future must be causal"):
        replace_heads(random_model(), BATCH, {(0, 0): future})
