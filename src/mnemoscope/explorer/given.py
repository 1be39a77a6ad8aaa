"""The content of a page on a model without a task: its weights and given sequences; no predictors, pairs or roles."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mnemoscope.analyses.forward import check_fits
from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError, in_range
from mnemoscope.core.protocols import HookedModel
from mnemoscope.explorer.content import classes_of, n_reference
from mnemoscope.explorer.examples import MAX_EXAMPLES
from mnemoscope.explorer.packing import Packer, page_configuration
from mnemoscope.explorer.record import Code, Example, Record
from mnemoscope.report.guesses import visible

Sequences = Batch | Tensor
"""A batch, or whole numbers (batch, pos); anything else is refused with its shape and type."""


def model_content(
    model: HookedModel,
    sequences: Sequences,
    packer: Packer,
    *,
    symbols: Sequence[str] | None = None,
    pos: int | Sequence[int] | None = None,
) -> Record:
    """The page's record of a model with sequences, tokens or a batch, all of one length.

    Without `symbols`, tokens have the names of the batch, else their numbers. Without `pos`, predictions are read where
    the batch is scored, for tokens at the last position. Raises InputError where the page cannot run the model, or the
    sequences, names or positions do not fit it.
    """
    configuration = page_configuration(model)
    batch = _batch(model, sequences)
    n_tokens, n_pos = max(model.cfg.d_vocab, model.cfg.d_vocab_out), batch.inputs.shape[1]
    kept = batch.inputs[: n_reference(n_pos)]
    drawn = "sequences.select(slice(0, N))" if isinstance(sequences, Batch) else "batch(sequences[:N])"
    return Record(
        name=None,
        label=_label(model),
        seed=None,
        cfg=configuration,
        steps=[0],
        checkpoints=[packer.checkpoint(model)],
        symbols=_symbols(batch, symbols, n_tokens),
        positions=list(batch.positions[:n_pos]),
        answers=list(range(model.cfg.d_vocab_out)),
        slot=1,
        scored=_scored(batch, pos),
        alphabet=sorted(batch.inputs.unique().tolist()),
        reference=kept.tolist(),
        classes=classes_of(batch.select(slice(0, len(kept)))) if isinstance(sequences, Batch) else {},
        examples=[Example(tokens=tokens) for tokens in kept[:MAX_EXAMPLES].tolist()],
        python=Code(
            start="# model and sequences: what this page was made of",
            model="model",
            drawn=drawn.replace("N", str(len(kept))),
        ),
    )


def _batch(model: HookedModel, sequences: Sequences) -> Batch:
    """The sequences as a batch that the model can run on."""
    if isinstance(sequences, Batch):
        batch = sequences
    else:
        tokens = torch.as_tensor(sequences)
        if tokens.ndim != 2 or tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
            given = f"shape {tuple(tokens.shape)} of {str(tokens.dtype).removeprefix('torch.')}"
            raise InputError(f"sequences must be a Batch, or numbers of tokens (batch, pos); got {given}")
        scored = torch.zeros_like(tokens, dtype=torch.bool)
        scored[:, -1:] = True
        batch = Batch(inputs=tokens, targets=tokens, scored=scored)
    if batch.inputs.numel() == 0:
        raise InputError("sequences must hold at least one token; got none")
    if batch.ragged:
        raise InputError("the explorer takes sequences of one length; got padded ones: group them by length")
    check_fits(model, batch)
    return batch


def _label(model: HookedModel) -> str:
    name = str(getattr(model.cfg, "model_name", "") or "")
    return "A model" if name in ("", "custom") else name


def _symbols(batch: Batch, symbols: Sequence[str] | None, n_tokens: int) -> list[str]:
    if symbols is not None and len(symbols) != n_tokens:
        raise InputError(f"symbols must name each of the model's {n_tokens} tokens; got {len(symbols)}")
    called = symbols.__getitem__ if symbols is not None else batch.symbol or str
    return [visible(str(called(token))) for token in range(n_tokens)]


def _scored(batch: Batch, pos: int | Sequence[int] | None) -> list[int]:
    """The positions at which predictions are read, from 0."""
    n_pos = batch.inputs.shape[1]
    if pos is None:
        scored = batch.scored.any(0).nonzero()[:, 0].tolist()
        return scored or [n_pos - 1]
    given = [pos] if isinstance(pos, int) else list(pos)
    for place in given:
        in_range("pos", place, -n_pos, n_pos - 1)
    if not given:
        raise InputError("pos must name at least one position; got none")
    return sorted({place % n_pos for place in given})
