"""Dictionaries in a forward pass: an activation is what its features write, and an error.

    x = decode(features, read) + error        features = encode(read)

The error is that of the run itself at that place, and stays when features are changed; so changed features f' and a
changed error e' give x + (f' - features) W_dec + (e' - error). Where nothing changes, every bit of x stays.

Features and error pass two hook points each, first the one with SAELens's name. Then follow changes of x itself.
"""

from collections.abc import Callable, Mapping, Sequence

from jaxtyping import Float
from torch import Tensor

from mnemoscope.core.dictionary import Dictionary
from mnemoscope.core.dictionary_places import dictionary_points
from mnemoscope.engine.changes import MLP_INPUT, Change, Changes
from mnemoscope.engine.pointwise import Norm


def split(
    dictionary: Dictionary,
    x: Float[Tensor, "*rows d_out"],
    read: Float[Tensor, "*rows d_in"],
    at: Callable[[str, Tensor], Tensor | None],
    *,
    of_features: Sequence[str],
    of_error: Sequence[str],
) -> Float[Tensor, "*rows d_out"]:
    """The activation with the changes `at` the points of its features and of its error, in their order."""
    if not (of_features or of_error):
        return x
    features = dictionary.encode(read)
    result = x
    if of_features:
        result = result + (_passed(features, at, of_features) - features) @ dictionary.w_dec
    if of_error:
        error = x - dictionary.decode(features, read)
        result = result + (_passed(error, at, of_error) - error)
    return result


def _passed(activation: Tensor, at: Callable[[str, Tensor], Tensor | None], points: Sequence[str]) -> Tensor:
    """An activation behind some points. They see another tensor, so that its gradient is that of what follows."""
    for point in points:
        activation = activation.view_as(activation)
        changed = at(point, activation)
        activation = activation if changed is None else changed
    return activation


def splice(at: Changes, dictionaries: Sequence[tuple[Dictionary, Norm]]) -> Changes:
    """The changes of a run, with those at features and errors turned into one where their dictionary writes.

    Each dictionary comes with the normalisation before its MLP, without gain and bias.
    """
    by_point = dict(at.by_point)
    for dictionary, norm in dictionaries:
        points = [[name for name in names if name in by_point] for names in dictionary_points(dictionary)]
        if any(points):
            own = {name: by_point.pop(name) for names in points for name in names}
            _put(by_point, dictionary, norm, points, own)
    return Changes(by_point, where_read=at.where_read, exact=at.exact)


def _put(
    by_point: dict[str, Change],
    dictionary: Dictionary,
    norm: Norm,
    points: Sequence[Sequence[str]],
    own: Mapping[str, Change],
) -> None:
    """Add the change where a dictionary writes, and an observer where it reads something else."""
    block, of_mlp, seen = f"blocks.{dictionary.layer}.", dictionary.reads == "mlp_in", list[Tensor]()
    read_at = block + (MLP_INPUT if of_mlp else f"hook_{dictionary.reads}")
    written_at = f"{block}hook_{dictionary.writes}"
    before, after = by_point.get(read_at), by_point.get(written_at)

    def see(x: Tensor) -> Tensor | None:
        changed = None if before is None else before(x)
        read = x if changed is None else changed
        seen[:] = [norm(read) if of_mlp else read]
        return changed

    def change(x: Tensor) -> Tensor:
        read = seen.pop() if seen else x
        x = split(dictionary, x, read, lambda point, y: own[point](y), of_features=points[0], of_error=points[1])
        changed = None if after is None else after(x)
        return x if changed is None else changed

    by_point[written_at] = change
    if read_at != written_at:
        by_point[read_at] = see
