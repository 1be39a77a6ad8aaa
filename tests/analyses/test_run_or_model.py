"""An analysis takes a run or a subject in place of a model, with the same result to the bit, and refuses the rest."""

import ast
import inspect
import reprlib
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

import mnemoscope as ms
from tests.doc_examples import examples_of, public_objects, shared_names


def parameters_of(item, kind) -> list[str]:
    """The parameters of a public function or class that have an annotation."""
    try:
        parameters = inspect.signature(item).parameters.values()
    except ValueError:  # an error has no signature
        return []
    return [parameter.name for parameter in parameters if parameter.annotation == kind]


def models_of(item) -> list[str]:
    return parameters_of(item, ms.core.ModelLike)


OBJECTS = {name: item for name, item in public_objects().items() if models_of(item)}


def own_call(name: str, names: dict) -> ast.Call:
    """The call of a function in its example; `names` get what the example defines before."""
    for example in examples_of(public_objects()[name]):
        calls = [node for node in ast.walk(ast.parse(example.source)) if isinstance(node, ast.Call)]
        found = [call for call in calls if ast.unparse(call.func) == name]
        if found:
            return found[0]
        exec(example.source, names)
    raise AssertionError(f"the example of {name} does not call it")


def with_runs(name: str, call: ast.Call) -> str:
    """The call with `run` in place of `model`, and with a subject in place of any other model."""

    def swap(parameter: str | None, given: ast.expr) -> str:
        text = ast.unparse(given)
        if parameter not in models_of(OBJECTS[name]):
            return text
        return "run" if text == "model" else f"ms.Subject(model={text}, task=task, seed=0)"

    placed = zip(inspect.signature(OBJECTS[name]).parameters, call.args, strict=False)
    given = [swap(*each) for each in placed]
    given += [
        f"{word.arg}={swap(word.arg, word.value)}" if word.arg else f"**{ast.unparse(word.value)}"
        for word in call.keywords
    ]
    return f"{name}({', '.join(given)})"


def same(one, other) -> bool:
    """Whether two results hold the same bits."""
    if isinstance(one, xr.Dataset | xr.DataArray | xr.DataTree):
        return one.identical(other)
    if isinstance(one, torch.Tensor):
        return torch.equal(one.nan_to_num(), other.nan_to_num()) and torch.equal(one.isnan(), other.isnan())
    if isinstance(one, dict | list | tuple):
        pairs = (
            zip(one.values(), other.values(), strict=True) if isinstance(one, dict) else zip(one, other, strict=True)
        )
        keys = list(one) == list(other) if isinstance(one, dict) else True
        return type(one) is type(other) and keys and all(same(*pair) for pair in pairs)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    if isinstance(one, torch.nn.Module):
        return same(one.state_dict(), other.state_dict())
    if isinstance(one, ms.analyses.Setting):
        return same(one.ends, other.ends)
    if is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    return callable(one) or one == other


def test_every_analysis_of_a_model_is_here():
    """A public parameter that is a hooked model and nothing else would refuse a run."""
    assert len(OBJECTS) > 60
    narrow = [name for name, item in public_objects().items() if parameters_of(item, ms.HookedModel)]
    assert narrow == ["ms.Subject"]


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_a_run_gives_what_its_model_gives(name):
    names = shared_names()
    call = own_call(name, names)
    changed = with_runs(name, call)
    assert changed != ast.unparse(call)
    assert same(eval(changed, names), eval(ast.unparse(call), names))


@pytest.mark.parametrize(
    ("given", "way_out"),
    [
        ("zoo:v3-quick/seed-16", "open it with ms.open_run"),
        (Path("runs/v3"), "open it with ms.open_run"),
        (["a run", "another"], "give one at a time, or call ms.analyses.over_runs"),
        (None, "ms.open_run gives a run, ms.language_model a model"),
    ],
    ids=["a word", "a path", "a list", "nothing"],
)
@pytest.mark.usefixtures("as_installed")
def test_what_is_neither_run_nor_model_is_refused_in_one_line(given, way_out):
    with pytest.raises(ms.InputError, match=r"^model must be a run, a subject or a hooked model such as a ") as caught:
        ms.core.resolve_model(given)
    assert str(caught.value).endswith(f"{reprlib.repr(given)}: {way_out}")


@pytest.mark.usefixtures("as_installed")
def test_a_setting_refuses_what_is_no_model_when_it_is_made():
    pairs = shared_names()["pairs"]
    with pytest.raises(ms.InputError, match="model must be a run"):
        ms.analyses.Setting(model="v3", pairs=pairs)  # pyright: ignore[reportArgumentType]


def test_an_analysis_leaves_a_run_as_it_is():
    names = shared_names()
    before = vars(names["run"]).copy()
    ms.analyses.head_scores(names["run"], names["batch"])
    assert vars(names["run"]) == before
