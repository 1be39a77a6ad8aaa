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
class PageClamp:
    """A clamp of training, as `js/clamps.js` computes it."""

    kind: str
    """`zero`, `scale`, `knockout`, `pattern` or `ideal`; `weight`: it is in the weights, or changes nothing."""
    sites: Sequence[Mapping[str, int | str]] = ()
    """Places, each of one position or all; none: the logits."""
    factor: float | None = None
    """The factor of a clamp that scales an activation; None for all other kinds."""
    rows: int | None = None
    """Tensor of a pattern (query, key) that no token changes; NaN in rows that stay as they are."""
    mechanism: str = ""
    """The page's name of a pattern that depends on tokens."""
    period: int = 1
    """Length of the slots at whose same place tokens are compared."""
    ideal: str = ""
    """Name of an ideal part of the task, whose script computes it."""
    reads: Sequence[Mapping[str, int | str]] = ()
    """Activations that an ideal part reads."""


@dataclass(frozen=True, kw_only=True)
class PageClamps:
    """The clamps of training, of which the page shows a model with and without."""

    words: Sequence[str]
    """All of them as the recipe has them."""
    refused: str = ""
    """Why the page shows the model without them only; empty: it can show both."""
    parts: Sequence[PageClamp] = ()
    """All of them in their order."""
    shares: Sequence[Sequence[float]] = ()
    """By checkpoint the part of each change that is in force, from 0 to 1."""
    weights: Sequence[Mapping[str, int]] = ()
    """By checkpoint the parameters with the clamps of weights; empty: those of the checkpoint."""


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
    clamps: PageClamps | None = None
    """Clamps of the run's training; None: it had none."""
