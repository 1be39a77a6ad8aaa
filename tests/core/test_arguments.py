"""One item in place of a list, tokens in place of a batch: every public function refuses them at its door."""

import inspect

import pytest
import torch

import mnemoscope as ms
from mnemoscope.core.arguments import _kind
from tests.doc_examples import public_objects

FUNCTIONS = {
    **public_objects(),
    **{f"ms.interventions.{name}": getattr(ms.interventions, name) for name in ms.interventions.__all__},
}
PARAMETERS = [
    (name, each.name, _kind(each.annotation))
    for name, item in sorted(FUNCTIONS.items())
    if inspect.isfunction(item)
    for each in inspect.signature(item).parameters.values()
]
WANTED = {"list": "must be a list", "tuple": "must be a tuple, such as"}

pytestmark = pytest.mark.usefixtures("as_installed")


def test_there_are_many_of_them():
    assert sum(kind == "list" for _, _, kind in PARAMETERS) > 80


@pytest.mark.parametrize(
    ("name", "parameter", "kind"), [each for each in PARAMETERS if each[2] in WANTED], ids=lambda value: value
)
def test_a_single_item_is_no_list(name, parameter, kind):
    with pytest.raises(ms.InputError, match=f"^{parameter} {WANTED[kind]}") as refusal:
        FUNCTIONS[name](**{parameter: 0})
    assert "\n" not in str(refusal.value)


def test_a_word_is_no_list_and_is_not_read_by_letters():
    with pytest.raises(ms.InputError, match=r"^through must be a list, such as \['Q'\]; got 'Q'"):
        ms.analyses.composition("a model", through="Q")


def test_a_single_intervention_is_named():
    with pytest.raises(ms.InputError, match=r"^interventions must be a list; got a single Zero: put it in brackets"):
        ms.run_with("a model", None, ms.Zero(site=ms.Site(kind="z", layer=0)))


def test_generators_tuples_and_none_are_lists():
    run = ms.open_run("zoo:v3-quick/seed-16")
    batch = run.spec.task.sample(2, split="test", generator=ms.generator(0, "arguments"))
    nothing = ms.run_with(run, batch, ())
    assert torch.equal(nothing, ms.run_with(run, batch, []))
    assert ms.analyses.check_indices("layers", None, 2) == [0, 1]


def test_rooms_of_interventions_take_a_run():
    run = ms.open_run("zoo:v3-quick/seed-16")
    batch = run.spec.task.sample(2, split="test", generator=ms.generator(0, "arguments"))
    at_scored = ms.interventions.run_at(run, batch, [], batch.scored)
    assert torch.equal(at_scored, ms.interventions.run_at(run.hooked(), batch, [], batch.scored))
    assert ms.Subject(model=run, task=run.spec.task, seed=0).hooked().cfg.n_heads == 2
    with pytest.raises(ms.InputError, match="model must be a run"):
        ms.interventions.Recordings(torch.zeros(2))
