"""A training run as a value: a task, an architecture, a recipe and one seed."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from mnemoscope.core.clamp import Clamp
from mnemoscope.core.errors import InputError, in_range, one_of
from mnemoscope.core.guests import Registry
from mnemoscope.core.html import html_tables
from mnemoscope.core.protocols import Task


def _check_task(name: str, task: type) -> None:
    """Refuse a class that is no task."""
    members = [member for member in (*Task.__annotations__, *vars(Task)) if not member.startswith("_")]
    abstract = getattr(task, "__abstractmethods__", ())
    missing = [member for member in members if member in abstract or not hasattr(task, member)]
    if missing or not dataclasses.is_dataclass(task):
        lacks = f"has no {', '.join(missing)}" if missing else "is no dataclass"
        raise InputError(
            f"the task {name!r} must be a frozen dataclass with all that ms.Task lists; {task.__name__} {lacks}: "
            "inherit from ms.BaseTask, which brings most of it"
        )
    own = getattr(task, "name", None)
    if own != name:
        raise InputError(f"the task {name!r} must be registered under its own name; got a class with {own!r}")


TASKS: Registry[type] = Registry("task", "tasks", check=_check_task)
"""Every class of tasks by name; `TASKS.add` registers one."""
NEWER = {"newer": True}
"""Metadata of fields that specifications did not always have: while they have their default they are left out of
`RunSpec.to_dict`, so that what was written and registered before stays as it is.
"""


INITIALISATIONS = ("gpt2", "gpt2-scaled", "memories", "normal", "one-hot", "by-width", "small")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Architecture of a small decoder-only transformer; the task adds vocabulary and context length.

    >>> spec = ms.ModelSpec(d_model=16, n_heads=2, n_layers=2)
    >>> ms.models.build(spec, d_vocab=8, n_ctx=12, seed=0).cfg.n_layers
    2
    """

    d_model: int = 32
    """Width of the residual stream."""
    n_heads: int = 2
    """Attention heads per layer."""
    n_layers: int = 1
    """Number of blocks."""
    d_mlp: int | None = None
    """Width of the MLP; none: 2 * d_model."""
    normalization: Literal["LN", "none"] = "LN"
    """Layer normalisation before attention, MLP and unembedding (LN), or none."""
    act_fn: Literal["relu", "gelu", "identity"] = "relu"
    """Activation function of the MLP; with identity it is linear."""
    attention: bool = True
    """False: attention is held at exactly zero (a model of MLPs only)."""
    mlp: bool = True
    """False: an attention-only model."""
    first_mlp: int = 0
    """First layer that has an MLP; those before it are held at exactly zero."""
    positions: bool = True
    """False: the positional embedding is held at exactly zero."""
    initialisation: Literal["gpt2", "gpt2-scaled", "memories", "normal", "one-hot", "by-width", "small"] = "gpt2"
    """TransformerLens's own (gpt2); the same with W_O and W_out over the root of the number of writes to the residual
    stream, as GPT-2 was (gpt2-scaled); that of associative memories: W_Q the identity, embeddings standard normal,
    other weights uniform within 1/sqrt of their input width, biases held at zero (memories); every weight normal, with
    variance one over d_head for Q, K, V, over d_mlp for W_out and over d_model for the others (normal); embeddings
    and unembedding the identity, as are W_K and W_V, and everything else 1e-5 (one-hot); every weight normal, with
    variance one over d_mlp for W_out, over the number of outputs for the unembedding and over d_model for the others,
    and no biases but those of the MLP (by-width); or every weight normal, with a standard deviation of .01 for W_O and
    W_out and of .02 for the others, and no biases but those of MLPs and normalisations (small)."""
    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point type of the parameters."""
    d_head: int | None = field(default=None, metadata=NEWER)
    """Width of a head; none: d_model / n_heads."""
    attention_dir: Literal["causal", "bidirectional"] = field(default="causal", metadata=NEWER)
    """Attention of a position to those up to itself (causal), or to all."""
    softmax: bool = field(default=True, metadata=NEWER)
    """False: linear attention, whose scores are neither scaled nor normalised (`models.linear_attention`)."""
    embeddings: Literal["trained", "frozen"] = field(default="trained", metadata=NEWER)
    """Frozen embeddings and unembedding stay as they are initialised."""
    silent: int | None = field(default=None, metadata=NEWER)
    """Token whose embedding is zero, counted from the end of the vocabulary where it is negative: a position that holds
    it asks with the bias of the queries alone, and its residual stream holds what is written there and nothing else."""
    masked: int | None = field(default=None, metadata=NEWER)
    """Token to which no position attends, counted from the end of the vocabulary where it is negative: padding."""
    attention_mix: float = field(default=1.0, metadata=NEWER)
    """Share c of the softmax in attention: the pattern is c softmax + (1 - c), so that with 0 every weight is 1."""
    position_kind: Literal["absolute", "rotary", "relative"] = field(default="absolute", metadata=NEWER)
    """Learned vectors added to the residual stream (absolute); queries and keys turned by an angle that grows with the
    position, with a base of 10,000 (rotary); or a learned vector for each distance and layer, added to the keys of all
    heads (relative, Shaw et al. 2018: `models.attention`)."""
    initial_size: float | None = field(default=None, metadata=NEWER)
    """Standard deviation of the normal weights that a one-hot model starts with, drawn by the seed; none: all 1e-5."""

    def __post_init__(self) -> None:
        for name in ("d_model", "n_heads", "n_layers"):
            in_range(f"model.{name}", getattr(self, name), 1, math.inf)
        in_range("model.d_head", self.head_width, 1, math.inf)
        in_range("model.d_mlp", self.mlp_width, 1, math.inf)
        one_of("model.normalization", self.normalization, ("LN", "none"))
        in_range("model.first_mlp", self.first_mlp, 0, self.n_layers - 1)
        one_of("model.act_fn", self.act_fn, ("relu", "gelu", "identity"))
        one_of("model.dtype", self.dtype, ("float32", "float64"))
        one_of("model.attention_dir", self.attention_dir, ("causal", "bidirectional"))
        one_of("model.initialisation", self.initialisation, INITIALISATIONS)
        in_range("model.attention_mix", self.attention_mix, 0, 1)
        if self.attention_mix < 1 and not self.softmax:
            raise InputError("model.attention_mix below 1 needs model.softmax true: it is the share of the softmax")
        one_of("model.position_kind", self.position_kind, ("absolute", "rotary", "relative"))
        if self.position_kind == "rotary" and (not self.positions or not self.softmax or self.head_width % 2):
            raise InputError(
                "model.position_kind rotary needs model.positions true, model.softmax true and an even model.d_head; "
                f"got {self.positions}, {self.softmax} and {self.head_width}"
            )
        one_of("model.embeddings", self.embeddings, ("trained", "frozen"))
        if self.position_kind == "relative" and not (self.positions and self.attention_dir == "causal"):
            raise InputError(
                "model.position_kind relative needs model.positions true and model.attention_dir causal; got "
                f"{self.positions} and {self.attention_dir}"
            )
        if self.initialisation == "memories" and (self.n_heads > 1 or self.normalization != "none"):
            raise InputError(
                "model.initialisation memories needs model.n_heads 1 and model.normalization none; got "
                f"{self.n_heads} and {self.normalization}"
            )
        if self.silent is not None and self.embeddings != "frozen":
            raise InputError("model.silent needs model.embeddings frozen, or training gives the token an embedding")
        if self.initialisation == "one-hot" and (self.n_heads, self.head_width) != (1, self.d_model):
            raise InputError("model.initialisation one-hot needs model.n_heads 1 and model.d_head = model.d_model")
        if self.initial_size is not None:
            one_of("model.initialisation with model.initial_size", self.initialisation, ("one-hot",))
            in_range("model.initial_size", self.initial_size, 0, math.inf)
        if self.d_head is None and self.d_model % self.n_heads:
            raise InputError(
                f"model.n_heads must divide model.d_model = {self.d_model}; got {self.n_heads}; change one of the two, "
                "or set model.d_head"
            )

    @property
    def head_width(self) -> int:
        """Width of a head, d_model / n_heads by default."""
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @property
    def mlp_width(self) -> int:
        """Number of neurons per layer, 2 * d_model by default."""
        return 2 * self.d_model if self.d_mlp is None else self.d_mlp


@dataclass(frozen=True, kw_only=True)
class Freeze:
    """Parameters that do not move from step `start` to before step `stop`.

    >>> ms.preset("v3", changes={"recipe.frozen": (ms.Freeze(parameters="embed.*", stop=100),)}).recipe.frozen[0].stop
    100
    """

    parameters: str
    """Shell-style pattern over parameter names, such as `blocks.0.attn.*`."""
    start: int = 0
    stop: int | None = None
    """None: to the end of training."""


@dataclass(frozen=True, kw_only=True)
class TaskChange:
    """A field of the task that takes another value from step `step` on (a curriculum)."""

    step: int
    field: str
    value: bool | int | float | tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The training of a model: Adam, or SGD with momentum, on fresh samples, with schedules.

    >>> ms.Recipe(n_steps=100, save_every=50).checkpoints
    (0, 1, 2, 3, 5, 6, 9, 12, 16, 22, 29, 40, 54, 74, 100)
    """

    name: str = "custom"
    """Name that results carry; recipes of different names are never pooled."""
    n_steps: int = 3000
    """Number of optimiser steps."""
    batch_size: int = 256
    """Sequences a step, all freshly sampled."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """adam (with decoupled weight decay), or sgd (with momentum; weight decay is added to the gradient)."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    momentum: float = 0.9
    """Momentum of SGD."""
    warmup_steps: int = 0
    """Steps of linear warm-up."""
    decay: Literal["constant", "cosine", "linear"] = "constant"
    """Course of the learning rate after warm-up; cosine and linear end at `final_rate`."""
    beta1: float = 0.9
    """Adam's first-moment decay."""
    beta2: float = 0.999
    """Adam's second-moment decay."""
    weight_decay: float = 0.0
    """Weight decay."""
    frozen: tuple[Freeze, ...] = ()
    """The parameters that are held fixed, and when."""
    task_changes: tuple[TaskChange, ...] = ()
    """Changes of the task, of its data and its loss, during training."""
    metrics_every: int = 50
    """Steps between two lines of metrics.jsonl."""
    checkpoint_steps: tuple[int, ...] | None = None
    """Steps kept as checkpoints; none: log-spaced. Step 0 and the last step are always kept."""
    save_every: int = 250
    """Steps between two writes of the state that an interrupted run continues from."""
    final_rate: float = field(default=0.0, metadata=NEWER)
    """Learning rate at the end of a decay."""
    full_batch: bool = field(default=False, metadata=NEWER)
    """True: every step sees all sequences of the split `train`, which the task enumerates; `batch_size` is not used. A
    task whose split follows the seed has a field `split_seed`, None by default, which `for_seed` sets."""
    clip_norm: float | None = field(default=None, metadata=NEWER)
    """Largest norm of the gradient over all parameters of a run; a longer one is scaled down to it. None: any."""
    stop_at: float | None = field(default=None, metadata=NEWER)
    """Early stopping: training ends with the first line of metrics by which every skill has at least this accuracy on
    test prompts; none: after n_steps."""
    clamps: tuple[Clamp, ...] = field(default=(), metadata=NEWER)
    """The places that training holds at a value, and when; those at one place act in this order."""

    def __post_init__(self) -> None:
        for name in ("n_steps", "batch_size", "metrics_every", "save_every"):
            in_range(f"recipe.{name}", getattr(self, name), 1, math.inf)
        in_range("recipe.warmup_steps", self.warmup_steps, 0, self.n_steps)
        in_range("recipe.learning_rate", self.learning_rate, 0, math.inf)
        in_range("recipe.weight_decay", self.weight_decay, 0, math.inf)
        one_of("recipe.optimizer", self.optimizer, ("adam", "sgd"))
        for name in ("beta1", "beta2", "momentum"):
            in_range(f"recipe.{name}", getattr(self, name), 0, 1 - 1e-12)
        one_of("recipe.decay", self.decay, ("constant", "cosine", "linear"))
        in_range("recipe.final_rate", self.final_rate, 0, self.learning_rate)
        if self.final_rate and self.decay == "constant":
            raise InputError(
                f"recipe.final_rate needs recipe.decay cosine or linear; got {self.final_rate:g} with constant"
            )
        if self.stop_at is not None:
            in_range("recipe.stop_at", self.stop_at, 0, 1)
        if self.clip_norm is not None:
            in_range("recipe.clip_norm", self.clip_norm, 1e-12, math.inf)
        for step in self.checkpoint_steps or ():
            in_range("recipe.checkpoint_steps", step, 0, self.n_steps)
        for clamp in self.clamps:
            in_range(f"start of the clamp {clamp}", clamp.start, 0, self.n_steps - 1)

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Steps at which a checkpoint is kept, in ascending order."""
        steps = self.checkpoint_steps
        if steps is None:
            steps = tuple(round(self.n_steps ** (i / 15)) for i in range(16))
        return tuple(sorted({0, *steps, self.n_steps}))


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One trained model: everything that decides its weights.

    >>> spec = ms.preset("v3", "quick", seed=3)
    >>> spec.seed, spec.recipe.n_steps == run.spec.recipe.n_steps
    (3, True)
    """

    task: Task
    model: ModelSpec
    recipe: Recipe
    seed: int
    preset: str = "custom"
    """Name of the preset it came from; changed ones carry a digest of the changes."""

    @property
    def label(self) -> str:
        """Preset and recipe, without the seed."""
        return f"{self.preset}-{self.recipe.name}"

    @property
    def configuration(self) -> tuple[Task, ModelSpec, Recipe]:
        """Everything but the seed, and what `Task.for_seed` sets of the task: fields that are none without it."""
        task: Any = self.task
        for f in dataclasses.fields(task):
            if f.default is None and getattr(task, f.name) is not None:
                unset = dataclasses.replace(task, **{f.name: None})
                task = unset if unset.for_seed(self.seed) == task else task
        return task, self.model, self.recipe

    def replicates(self, other: "RunSpec") -> bool:
        """True if they differ in the seed only: what a task fixes is the same in both or follows the seed in both."""
        same = (self.task, self.model, self.recipe) == (other.task, other.model, other.recipe)
        return same or self.configuration == other.configuration

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` is its inverse."""
        return {
            "preset": self.preset,
            "seed": self.seed,
            "task": {"name": self.task.name, **_plain(self.task)},
            "model": _plain(self.model),
            "recipe": _plain(self.recipe),
        }

    def _repr_html_(self) -> str:
        """Task, model and recipe as tables, for notebooks."""
        parts = {name: part for name, part in self.to_dict().items() if isinstance(part, dict)}
        return html_tables(f"{self.label}, seed {self.seed}", {name: part.items() for name, part in parts.items()})

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> "RunSpec":
        """Read what `to_dict` wrote.

        Raises InputError where a key is missing or unknown, a value has the wrong type, or the task is not registered.
        """
        try:
            if type(data["seed"]) is not int:
                raise InputError(f"seed must be a whole number; got {data['seed']!r}")
            if not isinstance(data["preset"], str):
                raise InputError(f"preset must be a name; got {data['preset']!r}")
            task = dict(data["task"])
            return RunSpec(
                preset=data["preset"],
                seed=data["seed"],
                task=from_plain(TASKS.get(task.pop("name")), task, "task"),
                model=from_plain(ModelSpec, data["model"], "model"),
                recipe=from_plain(Recipe, data["recipe"], "recipe"),
            )
        except (KeyError, TypeError) as error:
            raise InputError(f"a run specification needs preset, seed, task, model and recipe: {error!r}") from error


def _plain(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, without newer ones that have their default."""
    unset = {
        f.name for f in dataclasses.fields(value) if f.metadata.get("newer") and getattr(value, f.name) == f.default
    }
    return {name: content for name, content in dataclasses.asdict(value).items() if name not in unset}


@lru_cache
def _adapter(cls: type) -> TypeAdapter:
    return TypeAdapter(cls)


def from_plain(cls: type, data: Mapping[str, Any], where: str) -> Any:
    """Build the dataclass `cls` from plain data; refuses unknown keys, and values that do not fit the annotations.

    The message has the key under `where`, the allowed values and the given one.
    """
    allowed = [f.name for f in dataclasses.fields(cls)]
    for key in data:
        one_of(f"a key of {where}", key, allowed)
    try:
        return _adapter(cls).validate_python(dict(data))
    except ValidationError as error:
        first = error.errors()[0]
        if isinstance(cause := first.get("ctx", {}).get("error"), InputError):
            raise cause from None
        place = ".".join([where, *(str(part) for part in first["loc"])])
        raise InputError(f"{place}: {first['msg']}; got {first['input']!r}") from None


def replace_fields(value: Any, changes: Mapping[str, Any], where: str) -> Any:
    """A copy of the dataclass `value` with some fields changed, checked like `structure`."""
    current = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    for key in changes:
        one_of(f"a key of {where}", key, current)
    return from_plain(type(value), {**current, **changes}, where)
