"""The content of a page, as values that its script reads as JSON (`js/weights.js`); tensors by `Packer`
number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class PageExample:
    """A sequence of the task, or one that a model was given with."""

    tokens: list[int]
    group: str = ""
    """The task's group; empty: none."""
    pairs: Mapping[str, "PageExample"] = field(default_factory=dict)
    """Minimal pairs by kind."""
    places: Sequence[int] = ()
    """Positions for which exact predictors are known; none: the page computes them, or there are none."""
    rows: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Rows of `Record.exact` at each of these, by predictor."""
    scored: Sequence[int] = ()
    """Positions that the task scores in this sequence; none: those of the record."""


@dataclass(frozen=True, kw_only=True)
class SkillNeeds:
    """Accuracy of every skill over many sequences, intact and with one part at its mean."""

    skills: Sequence[str]
    clean: Sequence[float]
    without: Mapping[str, Sequence[float]]
    """By component, `L0H1` or `L0 MLP`."""
    n: int
    """Number of sequences per skill."""


@dataclass(frozen=True, kw_only=True)
class SkillCurves:
    """The log of training on unseen sequences."""

    steps: Sequence[int]
    values: Mapping[str, Sequence[float]]
    share: bool
    """True if values are shares (accuracy), False if they are losses."""


@dataclass(frozen=True, kw_only=True)
class PageTask:
    """A task's name, and its configuration as far as a script can read it."""

    name: str
    fields: Mapping[str, Any]
    about: str
    """The task in sentences."""


@dataclass(frozen=True, kw_only=True)
class PageDictionary:
    """A dictionary of the model, whose features the page shows in the place of neurons."""

    name: str
    layer: int
    reads: str
    writes: str
    activation: str
    k: int | None
    n: int
    """Number of features."""
    error: bool
    """True if the error is kept."""
    tensors: Mapping[str, int]
    """`w_enc` (d_in, feature), `b_enc`, `w_dec` (feature, d_out), `b_dec`; `skip` (d_in, d_out) and `threshold` if it
    has them. What is taken from an activation before it is encoded is in `b_enc`."""


@dataclass(frozen=True, kw_only=True)
class PageCode:
    """The Python code by which a reader gets the content of the page."""

    start: str
    """The first lines, which say where the model comes from."""
    model: str
    """The line that makes the model; STEP stands for the checkpoint."""
    drawn: str
    """The line that draws the reference sequences."""


@dataclass(frozen=True, kw_only=True)
class PageRecord:
    """A model with its sequences. Fields that need a task are empty without one."""

    name: str | None
    """The run's name, as commands take it; None: there is no run."""
    label: str
    seed: int | None
    cfg: Mapping[str, Any]
    """From `page_configuration`."""
    steps: Sequence[int]
    checkpoints: Sequence[Mapping[str, int]]
    """Parameters by name, one mapping for each of `steps`."""
    python: PageCode
    symbols: Sequence[str]
    outputs: Sequence[str]
    """Names of what is predicted: the symbols of tokens, or classes."""
    named: bool
    """True if outputs are classes."""
    positions: Sequence[str]
    """The task's names of its positions; empty: they have numbers only."""
    answers: Sequence[int]
    """Outputs that can be right."""
    slot: int
    """Number of tokens that stand together."""
    scored: Sequence[int]
    """Positions at which predictions are read."""
    alphabet: Sequence[int]
    """Tokens that occur."""
    reference: Sequence[Sequence[int]]
    """Sequences that means are taken over."""
    lengths: Sequence[int]
    """Lengths of these sequences without padding; empty: none is padded."""
    classes: Mapping[str, Sequence[int]]
    """The class of every one of these, by latent."""
    examples: Sequence[PageExample]
    """The examples to draw from."""
    exact: int | None = None
    """The distributions of exact predictors, (row, token)."""
    references: Sequence[str] = ()
    best: str | None = None
    """The exact predictor that predicts the reference sequences best."""
    task: PageTask | None = None
    curves: SkillCurves | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    """Roles of components."""
    needs: SkillNeeds | None = None
    dictionaries: Sequence[PageDictionary] = ()
    files: Sequence[str] = ()
    """Files of these dictionaries, as `--dictionary` takes them."""
