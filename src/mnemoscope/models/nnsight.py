"""Hook points on a model of nnsight: a pass is a trace, in which each point reads and sets what nnsight offers there.

Needs the package nnsight (`pip install "mnemoscope[nnsight]"`). The limits are those of `adapted`.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from mnemoscope.core.errors import InputError
from mnemoscope.models.adapted import Acts, AdaptedModel, Runner, change_first


def from_nnsight(model: Any, *, names: Mapping[str, str] | None = None) -> AdaptedModel:
    """Give hook points to a model of nnsight (`NNsight` or `LanguageModel`).

    Args:
        model: With its weights loaded; its tokenizer is taken over.
        names: As for `from_transformers`; errors too.

    >>> from nnsight import NNsight  # doctest: +SKIP
    >>> model = ms.models.from_nnsight(NNsight(theirs))  # doctest: +SKIP
    """
    module = getattr(model, "_module", None)
    if not isinstance(module, nn.Module) or not hasattr(model, "trace"):
        raise InputError(f"model must be a model of nnsight; got {type(model).__name__}: NNsight(module) makes one")
    return AdaptedModel(module, getattr(model, "tokenizer", None), names, _traced(model))


def _traced(given: Any) -> Runner:
    from nnsight import NNsight  # pyright: ignore

    def run(module: nn.Module, tokens: Tensor, acts: Acts, options: Mapping[str, Any]) -> Any:
        model = given if given._module is module else NNsight(module)  # of a copy
        places = [(_part(model, place.module), place.side, act) for place, act in acts.items()]
        with model.trace(tokens, **options):
            for part, side, act in places:
                new = change_first(getattr(part, side), act)
                if new is not None:
                    setattr(part, side, new)
            output = model.output.save()
        return output  # noqa: RET504 - within a trace nothing is returned

    return run


def _part(model: Any, name: str) -> Any:
    for step in name.split("."):
        model = model[int(step)] if step.isdigit() else getattr(model, step)
    return model
