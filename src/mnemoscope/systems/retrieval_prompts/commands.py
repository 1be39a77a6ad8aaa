"""`mnemoscope prompts retrieval`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import UseAppendAction

import mnemoscope as ms
from mnemoscope.cli import COMMANDS, Command, Display, ResultOptions, present
from mnemoscope.core import in_range

if TYPE_CHECKING:
    import xarray as xr

    from mnemoscope.systems.retrieval_prompts.accuracy import Cell
    from mnemoscope.systems.retrieval_prompts.kept import Kept


@dataclass(frozen=True, kw_only=True)
class PromptsRetrieval(ResultOptions):
    """Ask language models questions that take several steps of retrieval: accuracy over difficulty, beside chance."""

    model: UseAppendAction[tuple[str, ...]] = ()
    """Language model: smollm2 (packaged; asked where none is named), a directory, a GGUF file, a name on the hub; may
    be repeated."""
    formulations: tuple[str, ...] = ()
    """Some of equations, lives-with, kingdoms, functions, relatives; none: all five."""
    difficulties: str = "1-5"
    """Steps of a chain, such as 1-5 or 1,3,6; equations and lives-with only."""
    questions: int = 500
    """Questions of each formulation and difficulty."""
    chains: int = 4
    """Interleaved chains, which are as many as acceptable answers; equations and lives-with only."""
    seed: int = 0
    """Of the questions and of what is sampled."""
    sampling: bool = True
    """Sample answers until an acceptable one comes out, beside looking for the most probable acceptable one."""
    tries: int = 20
    """Sampled answers to a question at most."""
    temperature: float = 1.0
    """Of sampling; 0 takes the most probable token every time."""
    chat: bool = True
    """Ask through the chat template where the tokenizer has one; otherwise the text, a line break and `Answer:`."""
    device: str = "cpu"
    """Where the models go."""
    dtype: str = "float32"
    """Of their weights."""
    out: Path = Path("results/retrieval-prompts")
    """Directory for the arrays, the tables, a page with the figure, and the answers as they come in: the same command
    goes on where it stopped, and more questions, difficulties or models add to what is there."""


NOTES = (
    "Every question interleaves several chains, one of which leads to the answer, as in the source. Bars are exact 95% "
    "intervals over questions. The dashed line is chance, one in so many acceptable answers.",
    "'Most probable' is the acceptable answer with the largest log-probability, summed over its tokens: every question "
    "gets one. 'Sampled' draws answers until an acceptable one comes out, which is how the source asks; its accuracy "
    "is among the questions that got one within the tries ('answered'). 'Probability' is that of all acceptable "
    "answers together, the mean over questions: near 0 the model does not answer in the form that is asked for.",
    "The source shows its accuracies of large language models in a figure, whose numbers are not in its text. What the "
    "text says stands in the table of published sentences.",
    "An accuracy above chance does not show that a model follows the chain step by step, and one at chance does not "
    "show that it could not in other words, with examples, or with room to reason before it answers.",
)


def run(options: PromptsRetrieval) -> None:
    """Ask every model, print and write."""
    import xarray as xr

    from mnemoscope.systems.retrieval_prompts.accuracy import accuracies, cells
    from mnemoscope.systems.retrieval_prompts.figures import accuracy_figure, accuracy_table, published_table
    from mnemoscope.systems.retrieval_prompts.scoring import Sampling

    in_range("--questions", options.questions, 1, float("inf"))
    sources = tuple(dict.fromkeys(options.model)) or ("smollm2",)
    named = {"formulations": options.formulations} if options.formulations else {}
    asked = cells(**named, difficulties=_parse_numbers(options.difficulties), n_chains=options.chains)
    sampling = Sampling(tries=options.tries, temperature=options.temperature, seed=options.seed)
    found = [_ask_model(source, asked, options, sampling if options.sampling else None) for source in sources]
    together = xr.concat(found, xr.DataArray(list(sources), dims="model", name="model"), combine_attrs="drop_conflicts")
    measured = accuracies(together)
    caption = f"Accuracy with exact intervals over {options.questions} questions each; dashed: chance."
    shown = Display(
        tables=[accuracy_table(measured), published_table()],
        figures=[(caption, accuracy_figure(measured))],
        notes=NOTES,
    )
    results = {"answers": together, "accuracy": measured}
    present("retrieval", ", ".join(sources), results, shown, options.out, options=options)


def _ask_model(source: str, asked: Sequence[Cell], options: PromptsRetrieval, sampling: Any) -> xr.Dataset:
    """The answers of one model; with a bar that shows how far it is."""
    from mnemoscope.systems.retrieval_prompts.accuracy import retrieval_answers

    kept = _answer_store(source, options)
    model = ms.models.named_language_model(source, device=options.device, dtype=options.dtype)
    with _progress(source, len(asked) * options.questions) as advance:
        return retrieval_answers(
            model,
            asked,
            n=options.questions,
            seed=options.seed,
            chat=None if options.chat else False,
            sampling=sampling,
            kept=kept,
            report=lambda cell, n: advance(cell.label, n),
        )


def _answer_store(source: str, options: PromptsRetrieval) -> Kept:
    """The place of a model's answers; those through a template and those of texts lie apart."""
    from importlib.metadata import version

    from mnemoscope.systems.retrieval_prompts.kept import Kept, source_digest

    packages = " ".join(f"{name} {version(name)}" for name in ("torch", "transformer-lens", "transformers"))
    stamp = f"{ms.models.fingerprint(source)} {options.dtype} {packages} {source_digest()}"
    name = re.sub(r"[^\w.@-]+", "-", source).strip("-")
    return Kept(directory=options.out / "asked" / name / ("chat" if options.chat else "text"), stamp=stamp)


@contextmanager
def _progress(source: str, total: int) -> Iterator[Any]:
    """A function that takes what is worked on and how many questions were answered."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(f"{source}: loading", total=total)

        def advance(cell: str, n: int) -> None:
            bars.update(task, advance=n, description=f"{source}: {cell}")

        yield advance


def _parse_numbers(text: str) -> list[int]:
    """The numbers of `1-5` or `1,3,6`; an `InputError` where the text says something else."""
    numbers: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise ms.InputError(f"--difficulties must look like 3, 1-5 or 1,3,6; got {text!r}")
        numbers += range(int(low), int(high or low) + 1)
    if not numbers:
        raise ms.InputError(f"--difficulties must name at least one; got {text!r}")
    return numbers


COMMANDS.add(
    "prompts retrieval",
    Command(options=PromptsRetrieval, run=run, section="study a model of your own or a language model"),
)
