"""Metrics of prompt pairs, read from the logits of both runs and of every patched run.

A `Question` holds model, prompts, metrics, directions and budget; the sweeps say which cells are patched. `measured`
answers it: prompts are cut into chunks, both runs of a chunk are recorded, and the sweep gives the values of its cells
in each direction.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope.core.batch import Batch, Inputs
from mnemoscope.core.errors import InputError, one_of
from mnemoscope.core.metrics import LOGIT_DIFF, Metric, check_metric
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.protocols import HookedModel
from mnemoscope.core.seeding import generator
from mnemoscope.engine.architecture import resumable_transformer
from mnemoscope.engine.budget import CACHE_BYTES, MAX_BYTES, Sizes, n_prompts_at_once
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.recordings import Place, RecordedRun, check_no_nan

Direction = Literal["noising", "denoising"]
"""Corrupted activations in the clean run, or clean ones in the corrupted run."""
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def weight_processing(model: HookedModel) -> str:
    """The processing of a model's weights, for results."""
    return "LayerNorm folded" if str(model.cfg.normalization_type).endswith("Pre") else "unprocessed"


@runtime_checkable
class _HasLogits(Protocol):
    """A forward pass of which at least the logits at the positions that metrics read are known."""

    @property
    def logits(self) -> Tensor: ...


AnyRun = TypeVar("AnyRun", bound=_HasLogits)


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepQuestion:
    """The measurement that a sweep makes, whatever its cells are.

    Under `noising` cells take from the corrupted run and go into the clean one, under `denoising` the other way round.
    The value of a prompt is the mean of a metric over its scored positions. Hooks on the model stay and act.
    `max_bytes` bounds what is allocated on the way, weights and result excepted.
    """

    model: HookedModel
    pairs: PromptPairs
    metrics: Sequence[Metric] = (LOGIT_DIFF,)
    directions: Sequence[Direction] = DIRECTIONS
    max_bytes: int = MAX_BYTES
    seed: int = 0

    def __post_init__(self) -> None:
        names = [metric.name for metric in self.metrics]
        for argument, given in (("metrics", names), ("directions", list(self.directions))):
            if not given or len(set(given)) < len(given):
                raise InputError(f"{argument} must name at least one, each once; got {', '.join(given) or 'none'}")
        for direction in self.directions:
            one_of("a direction", direction, DIRECTIONS)

    @cached_property
    def read(self) -> Int[Tensor, " read"]:
        """The positions at which some prompt is scored, ascending."""
        return self.pairs.scored.any(0).nonzero()[:, 0]

    @property
    def n_pos(self) -> int:
        """Length of the prompts."""
        return self.pairs.clean.inputs.shape[1]

    @property
    def sizes(self) -> Sizes:
        """The sizes on which the memory of a prompt depends."""
        return Sizes(cfg=self.model.cfg, n_pos=self.n_pos, n_read=len(self.read))

    @cached_property
    def weights(self) -> Transformer | str:
        """The engine's transformer of the model, from which runs can be resumed; or, in words, why there is none."""
        return resumable_transformer(self.model, self.n_pos)

    @cached_property
    def best_bytes(self) -> int:
        """Bytes of a fast forward pass: on a CPU those of the cache, or a quarter of the weights that it reads."""
        weights = [weight for _, weight in self.model.named_parameters()]
        if weights[0].device.type != "cpu":
            return self.max_bytes
        return max(CACHE_BYTES, sum(weight.nbytes for weight in weights) // 4)


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The measurements of a sweep, in float64 and on the CPU; `method` is `stream`, `gradients` or `hooks`."""

    value: Float[Tensor, "direction metric cell prompt"]
    clean: Float[Tensor, "metric prompt"]
    corrupted: Float[Tensor, "metric prompt"]
    method: str


@dataclass(frozen=True, kw_only=True)
class PatchedLogits:
    """Logits under the patches of some cells, at the read positions from number `first` on.

    With `prompts` the logits are of one prompt for each of `cells`, along the axis of prompts.
    """

    cells: Sequence[int]
    first: int
    logits: Float[Tensor, "cell prompt read d_vocab"]
    prompts: Sequence[int] | None = None


@dataclass(frozen=True, kw_only=True)
class Chunk(Generic[AnyRun]):
    """Both runs of some prompts, in one direction.

    `into` is the side that is patched: 0 for the clean one, 1 for the corrupted one. `runs` and `values`, the unpatched
    metrics, have the clean side first. `shared` holds what the answers in one direction keep for the other.
    """

    pairs: PromptPairs
    into: int
    runs: Sequence[AnyRun]
    reader: "MetricReader"
    values: Sequence[Float[Tensor, "metric prompt read"]]
    shared: dict[Any, Tensor]

    @property
    def direction(self) -> Direction:
        """The direction in which cells are patched."""
        return DIRECTIONS[self.into]

    @property
    def batch(self) -> Batch:
        """The prompts that are patched."""
        return (self.pairs.clean, self.pairs.corrupted)[self.into]

    @property
    def base(self) -> AnyRun:
        """The run that is patched."""
        return self.runs[self.into]

    @property
    def source(self) -> AnyRun:
        """The run that patches come from."""
        return self.runs[1 - self.into]

    def measure_patched(self, patched: Iterable[PatchedLogits]) -> Iterator["CellMetrics"]:
        """The metrics of patched logits; InputError where either hold NaN."""
        for some in patched:
            check_no_nan(some.logits)
            reader, unpatched = self.reader, self.values[self.into]
            if some.prompts is not None:
                reader, unpatched = reader.select(some.prompts), unpatched[:, some.prompts]
            values = reader.values(some.logits, some.first)
            earlier = unpatched[:, None, :, : some.first].expand(-1, len(some.logits), -1, -1)
            cells = (some.cells,) if some.prompts is None else (some.cells, some.prompts)
            yield cells, reader.mean(torch.cat((earlier, values), -1))

    def add_estimate(self, by: Float[Tensor, "metric cell prompt"]) -> Iterator["CellMetrics"]:
        """The metrics moved by an estimate, for all cells."""
        yield (range(by.shape[1]),), self.reader.mean(self.values[self.into])[:, None] + by.double().cpu()


CellMetrics = tuple[tuple[Sequence[int], ...], Float[Tensor, "metric cell prompt"]]
"""Numbers of some cells, or of cells and of one prompt for each, and every metric with each of them patched."""


@dataclass(frozen=True, kw_only=True)
class Plan(Generic[AnyRun]):
    """The way in which cells are run, `n_prompts` at a time; those that `answers` leaves out change nothing."""

    method: str
    n_prompts: int
    run: Callable[[Inputs], AnyRun]
    measure_chunk: Callable[[Chunk[AnyRun]], Iterator[CellMetrics]]


def plan_recorded_runs(
    question: SweepQuestion,
    places: Collection[Place],
    run: Callable[[Inputs], RecordedRun],
    patched: Callable[[Chunk[RecordedRun], int], Iterator[PatchedLogits]],
    *,
    method: str,
    copied: int = 0,
    working_bytes: int = 0,
) -> Plan[RecordedRun]:
    """Plan cells that need both runs recorded at some places, within the budget.

    `patched` maps a chunk and the bytes that it may take to logits of cells. `copied` are the bytes of weights that are
    laid out anew, `at_work` those of one cell on one prompt.
    """
    sizes = question.sizes
    room, kept = question.max_bytes - sizes.weight_bytes() - copied, sizes.recorded_bytes(places)
    working_bytes, n = max(sizes.hooked_pass_bytes(everywhere=False), working_bytes), len(question.pairs)
    n_prompts = n_prompts_at_once(
        n, working_bytes=working_bytes, kept_bytes=kept, max_bytes=room, target=question.best_bytes
    )
    left = room - n_prompts * kept
    return Plan(
        method=method,
        n_prompts=n_prompts,
        run=run,
        measure_chunk=lambda chunk: chunk.measure_patched(patched(chunk, left)),
    )


@torch.no_grad()
def measure_sweep(question: SweepQuestion, n_cells: int, plan: Plan) -> SweepResult:
    """Measure the cells of a sweep as planned; InputError where a metric measures no prediction or is NaN."""
    n, n_metrics = len(question.pairs), len(question.metrics)
    value = torch.zeros(len(question.directions), n_metrics, n_cells, n, dtype=torch.double)
    unpatched = torch.zeros(2, n_metrics, n, dtype=torch.double)
    for start in range(0, n, plan.n_prompts):
        rows = slice(start, start + plan.n_prompts)
        _measure(question, rows, plan, value[..., rows], unpatched[..., rows])
    return SweepResult(value=value, clean=unpatched[0], corrupted=unpatched[1], method=plan.method)


def _measure(
    question: SweepQuestion,
    rows: slice,
    plan: Plan,
    value: Float[Tensor, "direction metric cell prompt"],
    unpatched: Float[Tensor, "side metric prompt"],
) -> None:
    """Fill in the results of some prompts, those without a patch included."""
    pairs = question.pairs.select(rows)
    runs = [plan.run(side.inputs) for side in (pairs.clean, pairs.corrupted)]
    reader = MetricReader.from_pairs(pairs, question.read, question.metrics, runs[0].logits.detach())
    reader.check(generator(question.seed, "metrics"))
    values = [reader.values(run.logits.detach()[None])[:, 0] for run in runs]
    unpatched[:] = torch.stack([reader.mean(everywhere) for everywhere in values])
    shared: dict[Any, Tensor] = {}
    for number, direction in enumerate(question.directions):
        into = DIRECTIONS.index(direction)
        chunk = Chunk(pairs=pairs, into=into, runs=runs, reader=reader, values=values, shared=shared)
        value[number] = unpatched[into][:, None]
        for cells, found in plan.measure_chunk(chunk):
            value[number][:, *map(list, cells)] = found if len(cells) == 1 else found[:, 0]


_TRIED = 8
"""Positions at which the check of the metrics looks."""


@dataclass(frozen=True, kw_only=True)
class MetricReader:
    """The answers that metrics need about some prompts, at the positions that are read.

    `foil` is the right answer on the corrupted prompt; `clean` has the logits, or output vectors, of the clean prompts.
    """

    metrics: Sequence[Metric]
    answer: Int[Tensor, "prompt read"] | Float[Tensor, "prompt read d_vocab"]
    foil: Int[Tensor, "prompt read"] | Float[Tensor, "prompt read d_vocab"]
    scored: Bool[Tensor, "prompt read"]
    clean: Float[Tensor, "prompt read d_vocab"]

    @staticmethod
    def from_pairs(
        pairs: PromptPairs,
        read: Int[Tensor, " read"],
        metrics: Sequence[Metric],
        clean: Float[Tensor, "prompt read d_vocab"],
    ) -> "MetricReader":
        """The reader of some pairs; InputError where the model has no logit for an answer or a foil."""
        answer, foil, scored = (
            values[:, read.to(values.device)].to(clean.device) for values in (pairs.answer, pairs.foil, pairs.scored)
        )
        # Where nothing is scored a target may be anything, also no token.
        if answer.is_floating_point():
            if answer.shape[-1] != clean.shape[-1]:
                widths = f"{answer.shape[-1]}; the model's outputs have {clean.shape[-1]}"
                raise InputError(f"answers and foils must be as wide as the model's outputs; got {widths}")
            return MetricReader(metrics=metrics, answer=answer, foil=foil, scored=scored, clean=clean)
        answer, foil = (torch.where(scored, tokens, 0) for tokens in (answer, foil))
        highest = int(max(answer.max(), foil.max()))
        if highest >= clean.shape[-1]:
            raise InputError(
                f"answers and foils must be tokens that the model predicts, 0 to {clean.shape[-1] - 1}; got {highest}"
            )
        return MetricReader(metrics=metrics, answer=answer, foil=foil, scored=scored, clean=clean)

    def select(self, prompts: Sequence[int]) -> "MetricReader":
        """The reader of some prompts, which may come several times."""
        rows = {name: getattr(self, name)[prompts] for name in ("answer", "foil", "scored", "clean")}
        return replace(self, **rows)

    def check(self, generator: torch.Generator) -> None:
        """Refuse invalid metrics, tried at a few of the positions; errors as for `check_metric`."""
        prompt, position = self.scored.nonzero()[:_TRIED].unbind(1)
        for metric in self.metrics:
            of_some = (tokens[prompt, position] for tokens in (self.clean, self.answer, self.foil))
            check_metric(metric, *of_some, generator=generator)

    def values(
        self, logits: Float[Tensor, "cell prompt some d_vocab"], first: int = 0
    ) -> Float[Tensor, "metric cell prompt some"]:
        """Every metric at the positions from number `first` on."""
        rows = logits.shape if self.answer.is_floating_point() else logits.shape[:-1]
        answer, foil = (tokens[:, first:].expand(rows) for tokens in (self.answer, self.foil))
        clean = self.clean[:, first:].expand(logits.shape)
        return torch.stack([metric(logits, answer, foil, clean).double() for metric in self.metrics])

    def mean(self, values: Float[Tensor, "metric *cell prompt read"]) -> Float[Tensor, "metric *cell prompt"]:
        """The mean over the scored positions of each prompt, on the CPU; InputError where it is NaN."""
        total = torch.where(self.scored, values, 0).sum(-1)
        result = (total / self.scored.sum(-1)).cpu()
        for metric, of_metric in zip(self.metrics, result, strict=True):
            if of_metric.isnan().any():
                raise InputError(f"metric {metric.name} is NaN on these logits; change it or choose other positions")
        return result
