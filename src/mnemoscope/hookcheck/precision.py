"""A subject whose model is a copy in another precision."""

import copy
from contextlib import suppress
from dataclasses import replace

import torch
from torch import nn

from mnemoscope.interventions.subject import TestSubject


def in_precision(subject: TestSubject, dtype: torch.dtype, *, fresh: bool = False) -> TestSubject:
    """The subject in this precision: a copy, or itself where it has it already; `fresh` for a copy in any case."""
    first = next((weight for _, weight in subject.model.named_parameters()), None)
    if first is None:
        subject.skip("the model has no parameters")
    if first.dtype == dtype and not fresh:
        return subject
    key = f"in {dtype}"
    if fresh or key not in subject.memory:
        made = replace(subject, model=subject.call(lambda: _copied(subject.model, dtype)), memory={})
        if fresh:
            return made
        subject.memory[key] = made
    return subject.memory[key]


def _copied(model: object, dtype: torch.dtype) -> object:
    made = copy.deepcopy(model)
    roots = [getattr(made, "good", made), getattr(made, "original_model", None)]
    for root in roots:
        if isinstance(root, nn.Module):
            nn.Module.to(root, dtype)
    cfg = getattr(made, "cfg", None)
    if cfg is not None and getattr(cfg, "dtype", dtype) != dtype:
        with suppress(AttributeError):  # a frozen one keeps what it was made with
            cfg.dtype = dtype
    return made
