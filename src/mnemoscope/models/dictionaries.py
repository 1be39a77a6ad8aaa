"""A model whose activations are split into the features of dictionaries and an error.

Where a dictionary writes, the activation is what its features write plus an error, and both can be seen and changed
(`engine.splices`). Until something changes them, outputs stay the same to the bit. Without the errors the model is the
one that its dictionaries reconstruct.

*Does not show* that the parts which a dictionary names are units of the model: the error carries what it misses, and a
change of features leaves the error as it was.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.dictionary import Dictionary, activation_hook
from mnemoscope.core.dictionary_places import dictionary_points
from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import HookedModel, ModelLike, is_hooked, resolve_model
from mnemoscope.core.specification import RunSpec
from mnemoscope.engine.splices import split
from mnemoscope.models.dictionary_files import load_dictionary
from mnemoscope.models.lens import HookedTransformer
from mnemoscope.models.run import Run, run_place


class _Reader:
    """A hook point that keeps the activation as it leaves it, until the dictionary has read it."""

    def __call__(self: Any, x: Tensor) -> Tensor:
        x = super().__call__(x)  # pyright: ignore
        if self.splice.is_active():
            self.splice.seen[:] = [x]
        return x


class _Split:
    """A hook point at which a dictionary splits the activation, before the functions that are called there."""

    def forward(self: Any, x: Tensor) -> Tensor:
        """The activation with what is changed at its features and its error."""
        return self.splice(super().forward(x))  # pyright: ignore


class _Splice:
    """A dictionary at work: its hook points, and what it reads where that is another activation."""

    def __init__(self, dictionary: Dictionary, points: Sequence[Sequence[Any]], *, error: bool):
        self.dictionary, self.points, self.error = dictionary, points, error
        self.seen: list[Tensor] = []

    def is_active(self) -> bool:
        """True if something can differ from the model as it is."""
        return not self.error or any(self._called(points) for points in self.points)

    def __call__(self, x: Tensor) -> Tensor:
        read = self.seen.pop() if self.seen else x
        if not self.is_active():
            return x
        features, errors = map(self._called, self.points)
        by_name = {point.name: point for point in (*features, *errors)}
        names = ([point.name for point in features], [point.name for point in errors])
        if self.error:
            return split(
                self.dictionary, x, read, lambda name, y: by_name[name](y), of_features=names[0], of_error=names[1]
            )
        result, error = self.dictionary.encode(read), torch.zeros_like(x)
        for point in features:
            result = point(result)
        for point in errors:
            error = point(error)
        return self.dictionary.decode(result, read) + error

    def _called(self, points: Sequence[Any]) -> list[Any]:
        return [point for point in points if point._forward_hooks or point._backward_hooks]


@cache
def _before(kind: type, other: type) -> type:
    return type(other.__name__, (kind, other), {})


@check_arguments
def with_dictionaries(model: ModelLike, dictionaries: Sequence[Dictionary], *, error: bool = True) -> HookedModel:
    """Give a model the features and errors of dictionaries as sites.

    The result shares the weights of the model, which stays as it is. `Site(kind="feature", layer=l, neuron=i)` is
    feature i of the dictionary of layer l, and `Site(kind="error", layer=l)` what the dictionary leaves out. Their hook
    points are `blocks.l.hook_feature` and `blocks.l.hook_error`; each comes after the one with SAELens's name, such as
    `blocks.l.hook_mlp_out.hook_sae_acts_post` and `...hook_sae_error`.

    Args:
        model: A HookedTransformer, or a run or subject with one, without hooks. It may have dictionaries already.
        dictionaries: At most one a layer. They are brought to the device and the precision of the model.
        error: True: errors are kept, and outputs are those of the model to the bit until something is changed. False:
            each activation is replaced by its reconstruction. `ms.Zero` at an error does so for one run.

    Raises:
        InputError: A layer, a width or a kind of activation does not exist in the model, two dictionaries are in one
            layer, or the model carries hooks or is no HookedTransformer.

    >>> eye = torch.eye(model.cfg.d_model)
    >>> signs = {"w_enc": torch.cat([eye, -eye]), "b_enc": torch.zeros(64), "b_dec": torch.zeros(32)}
    >>> kinds = {"layer": 0, "reads": "mlp_out", "writes": "mlp_out"}
    >>> dictionary = ms.Dictionary(name="signs", w_dec=signs["w_enc"], **signs, **kinds)
    >>> split = ms.with_dictionaries(model, [dictionary])
    >>> off = ms.Zero(site=ms.Site(kind="feature", layer=0, neuron=3))
    >>> ms.run_with(split, batch, [off]).shape
    torch.Size([64, 9, 6])
    """
    model = resolve_model(model)
    if not isinstance(model, HookedTransformer):
        raise InputError(
            f"model must be a HookedTransformer to take dictionaries; got a {type(model).__name__}: "
            "ms.language_model(...) gives one"
        )
    if is_hooked(model):
        raise InputError("model must carry no hooks to take dictionaries; put hooks on the result")
    kept = tuple(getattr(model, "dictionaries", ()))
    if kept and error != model.has_errors:
        raise InputError(f"error must be {model.has_errors}, as for the dictionaries that the model has; got {error}")
    weight = next(model.parameters())
    given = tuple(dictionary.to(weight.device, weight.dtype) for dictionary in dictionaries)
    layers = [dictionary.layer for dictionary in (*kept, *given)]
    if len(set(layers)) < len(layers):
        raise InputError(f"dictionaries must lie in different layers; got L{', L'.join(map(str, sorted(layers)))}")
    for dictionary in given:
        _check(model, dictionary)
    shared = [*model.parameters(), *model.buffers(), *kept, getattr(model, "tokenizer", None)]
    result: Any = copy.deepcopy(model, {id(each): each for each in shared})
    result.dictionaries, result.has_errors = (*kept, *given), error
    result.cfg.n_features = max((dictionary.n_features for dictionary in result.dictionaries), default=0)
    for dictionary in given:
        _put(result, dictionary, error=error)
    result.setup()
    return result


def run_with_dictionaries(run: Run, files: Sequence[Path]) -> Run:
    """The same run, whose models have these dictionaries (`load_dictionary`); its label ends in `-dictionaries`.

    Runs may have dictionaries of their own under one name: a path is looked for in the directory of the run first, and
    `DIR/NAME` then as `DIR/<label>/seed-<seed>/NAME`, where `mnemoscope dictionary train` puts it. Raises InputError
    where a model takes clamps already, and on loading a model where a dictionary does not fit.
    """
    if run.prepare is not None:
        raise InputError("a model with clamps takes no dictionaries; look at either")
    places = tuple(_place(run, Path(file)) for file in files)
    return replace(run, prepare=partial(_with_files, files=places), view="-dictionaries")


def dictionary_files(run: Run) -> tuple[Path, ...]:
    """The files of the dictionaries that `run_with_dictionaries` gave a run; none without."""
    return getattr(run.prepare, "keywords", {}).get("files", ())


def _place(run: Run, file: Path) -> Path:
    """The path of a dictionary for a run."""
    own = (run.path / file, run_place(file.parent, run.label, run.spec.seed) / file.name)
    return next((place for place in own if place.exists()), file)


def _with_files(model: Any, spec: RunSpec, step: int, *, files: Sequence[Path]) -> Any:
    return with_dictionaries(model, [load_dictionary(file, model=model) for file in files])


def _put(model: Any, dictionary: Dictionary, *, error: bool) -> None:
    """Put the hook points of a dictionary into a model, which has to be set up after it."""
    block, kind = model.blocks[dictionary.layer], type(model.hook_embed)
    written = model.hook_dict[f"blocks.{dictionary.layer}.hook_{dictionary.writes}"]
    points = [[kind(), kind()] for _ in range(2)]
    for (passed, own), names in zip(points, dictionary_points(dictionary), strict=True):
        written.add_module(names[0].rpartition(".")[2], passed)
        block.add_module(names[1].rpartition(".")[2], own)
    splice = _Splice(dictionary, points, error=error)
    written.__class__, written.splice = _before(_Split, type(written)), splice
    if dictionary.reads != dictionary.writes:
        reader = model.hook_dict[activation_hook(dictionary.reads, dictionary.layer, model.cfg)]
        reader.__class__, reader.splice = _before(_Reader, type(reader)), splice


def _check(model: Any, dictionary: Dictionary) -> None:
    """Refuse a dictionary that does not fit a model."""
    cfg = model.cfg
    for kind in (dictionary.reads, dictionary.writes):
        hook = activation_hook(kind, dictionary.layer, cfg)
        if hook not in model.hook_dict:
            raise InputError(f"the model has no {hook} for {dictionary}; take a dictionary of another activation")
    if dictionary.reads == "resid_pre" != dictionary.writes:
        raise InputError(f"a dictionary that reads resid_pre must write it too; got {dictionary}")
    if {dictionary.d_in, dictionary.d_out} != {cfg.d_model}:
        raise InputError(
            f"a dictionary must read and write width {cfg.d_model}, the model's; {dictionary.name} has "
            f"{dictionary.d_in} and {dictionary.d_out}"
        )
