"""Attention of any model on a page: the CircuitsVis view of every head on some sequences, in a notebook or as a file.

Patterns are correlational: where a head looks is not what it contributes.

Weights of attention are rounded to thousandths and packed, without keys after the query where no head attends to one,
so that long sequences fit; the browser unpacks them.
"""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import circuitsvis
import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from mnemoscope.analyses.attention import named_patterns
from mnemoscope.analyses.roles import with_roles
from mnemoscope.core.arguments import check_arguments
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.html import macros
from mnemoscope.core.protocols import HookedModel, VectorTask
from mnemoscope.core.text import prompts
from mnemoscope.models.files import write_atomically
from mnemoscope.models.run import Run
from mnemoscope.models.subjects import Subject
from mnemoscope.report.page import TEMPLATES, Page
from mnemoscope.report.plain_report import roles
from mnemoscope.report.task_report import find_report

MAX_WEIGHTS = 40_000_000
"""Weights of attention that a page may hold: 144 heads on 512 tokens, which a browser still shows."""
SCALE = 1000
"""Weights are kept in units of 1 / SCALE."""
_TEMPLATE = f"{TEMPLATES}attention.html.jinja"
_LEAD = "Select a head to see it in full size; rows are queries, columns keys. Patterns are correlational."


@check_arguments
def attention(
    model: Run | Subject | HookedModel,
    sequences: str | Sequence[str] | Batch | Int[Tensor, "*batch pos"] | None = None,
    *,
    names: Mapping[str, str] | None = None,
    symbols: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    step: int | None = None,
    path: str | Path | None = None,
) -> Page:
    """A page with the CircuitsVis view of every head on every sequence; a notebook shows it.

    Args:
        model: A run, whose heads are called by their roles; a subject; or any hooked model, such as a
            `HookedTransformer`.
        sequences: Sequences in the form of the task, or texts for a model with a tokenizer; or tokens (pos or batch
            pos); or a batch. None: one unseen sequence of the task.
        names: Names of heads by `L0H1`, in place of roles.
        symbols: The name of every token, for a model without a task; None: as the batch calls them, else their numbers.
        layers: The layers that are shown; None: all.
        step: The checkpoint of a run; None: the last.
        path: A file that gets the page, which needs no network.

    Returns:
        The page; `.html()` is its text.

    Raises:
        InputError: Sequences are missing or do not fit the model, a layer or a name is of no head, or the page would
            hold more than 40 million weights.

    >>> page = ms.attention(model, batch.select(slice(1)), path="attention.html")
    >>> Path("attention.html").exists()
    True
    """
    if isinstance(sequences, Sequence) and not all(isinstance(each, str) for each in sequences):
        raise InputError("sequences must be texts, tokens as a tensor (batch, pos), or a batch; got a list of others")
    if step is not None and not isinstance(model, Run):
        raise InputError(f"step is for runs; got step={step} and a model: open the run and give that")
    if not isinstance(model, Run | Subject):
        examples = _examples_of_model(model, sequences, symbols)
    elif symbols is None:
        examples = _examples_of_task(model, sequences, step)
    else:
        raise InputError("symbols are for a model without a task; a task names its tokens")
    if layers is not None:
        for layer in layers:
            one_of("layers", layer, examples[0]["layer"].values.tolist())
        examples = [example.sel(layer=list(layers)) for example in examples]
    if names:
        heads = [f"L{layer}H{head}" for layer in examples[0]["layer"].values for head in examples[0]["head"].values]
        for name in names:
            one_of("a key of names", name, heads)
        examples = [with_roles(example, names) for example in examples]
    n_weights = sum(example.pattern.size for example in examples)
    if n_weights > MAX_WEIGHTS:
        raise InputError(
            f"the page would hold {n_weights:,} weights of attention, and {MAX_WEIGHTS:,} are allowed; "
            "name fewer layers, or give fewer or shorter sequences"
        )
    title = f"{model.label}, seed {model.spec.seed}" if isinstance(model, Run) else "Attention"
    page = Page(title, _LEAD)
    library = (
        (files(circuitsvis) / "dist" / "cdn" / "iife.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    )
    unpack = (files("mnemoscope.report") / "attention.js").read_text(encoding="utf-8")
    page.block(macros(_TEMPLATE).scripts(library, unpack))
    for number, example in enumerate(examples):
        page.block(_view_html(example, f"view-{number}"))
    if path is not None:
        write_atomically(Path(path), page.html().encode())
    return page


def _examples_of_task(model: Run | Subject, sequences: Any, step: int | None) -> list[xr.Dataset]:
    """The patterns on each sequence of a task, with heads called by role where a run has roles."""
    task = model.spec.task if isinstance(model, Run) else model.task
    entry = find_report(task)
    if sequences is None:
        sequences = entry.example(task)
    if isinstance(sequences, str):
        sequences = [sequences]
    if isinstance(sequences, Tensor):
        sequences = _batch_of(sequences)
    batches = [sequences] if isinstance(sequences, Batch) else [entry.parse(task, text) for text in sequences]
    hooked = model.hooked(step) if isinstance(model, Run) else model.model
    found = [row for batch in batches for row in _rows(entry.patterns(hooked, task, batch))]
    named = roles(model) if isinstance(model, Run) and not isinstance(task, VectorTask) else {}
    return [with_roles(example, named) for example in found] if named else found


def _examples_of_model(model: HookedModel, sequences: Any, symbols: Sequence[str] | None) -> list[xr.Dataset]:
    """The patterns of a model without a task on each sequence."""
    if sequences is None:
        raise InputError("a model without a task needs sequences: ms.attention(model, sequences); got none")
    if isinstance(sequences, Tensor):
        batch = _batch_of(sequences)
    elif isinstance(sequences, Batch):
        batch = sequences
    else:
        tokenizer = getattr(model, "tokenizer", None)
        if tokenizer is None:
            raise InputError("the model has no tokenizer for texts; give tokens, a tensor (batch, pos), and symbols")
        batch = prompts(tokenizer, sequences)
    if symbols is not None and not batch.has_vectors and len(symbols) <= (highest := int(batch.inputs.max())):
        raise InputError(f"symbols must name tokens 0 to {highest}, the highest of the sequences; got {len(symbols)}")
    found = named_patterns(model, batch) if batch.has_vectors else named_patterns(model, batch, symbols)
    return _rows(found)


def _batch_of(tokens: Int[Tensor, "*batch pos"]) -> Batch:
    """Sequences to be looked at, without targets."""
    inputs = torch.atleast_2d(tokens)
    return Batch(inputs=inputs, targets=torch.zeros_like(inputs), scored=torch.zeros_like(inputs, dtype=torch.bool))


def _rows(examples: xr.Dataset) -> list[xr.Dataset]:
    return [examples.isel(example=index) for index in range(examples.sizes["example"])]


def _view_html(example: xr.Dataset, place: str) -> str:
    """The HTML of one view."""
    if "n_tokens" in example:
        real = slice(int(example.n_tokens))
        example = example.isel(query=real, key=real)
    pattern = example.pattern.transpose("layer", "head", "query", "key")
    names = [f"L{layer}H{head}" for layer in pattern["layer"].values for head in pattern["head"].values]
    if "called" in example:
        names = example.called.transpose("layer", "head").values.ravel().tolist()
    tokens = [str(token) for token in example.token.values]
    packed, causal = _pack_weights(pattern.values.reshape(len(names), len(tokens), len(tokens)))
    properties = {"attentionHeadNames": names, "maskUpperTri": causal}
    shown = json.dumps({"tokens": [escape(token, quote=False) for token in tokens], **properties}).replace(
        "<", "\\u003c"
    )
    call = f'showAttention("{place}", {shown}, "{packed}", {len(names)}, {json.dumps(causal)}, {SCALE})'
    caption = " ".join(tokens) if len(tokens) <= 64 else f"{' '.join(tokens[:64])} … ({len(tokens)} tokens)"
    return macros(_TEMPLATE).view(place, call, caption)


def _pack_weights(patterns: Float[np.ndarray, "head query key"]) -> tuple[str, bool]:
    """Weights in thousandths, compressed, as text; and whether keys after the query are left out."""
    causal = not bool(np.triu(patterns, 1).any())
    values = np.nan_to_num(patterns * SCALE).clip(0, 65535).round().astype("<u2")
    if causal:
        values = values[:, *np.tril_indices(patterns.shape[1])]
    return base64.b64encode(gzip.compress(values.tobytes(), mtime=0)).decode(), causal
