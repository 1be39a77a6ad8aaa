"""Parts that both claims share: the gate of size, accuracies as effects, a model that knows and one that does not.

The answer is the most probable acceptable one, so that every question has one and no number of tries matters. Sampling,
the source's way, is a factor; a question that gets no acceptable answer in 20 tries counts as wrong there.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mnemoscope import Claim, Gate, ModelSpec
from mnemoscope.claims import GATE, Case, ClaimTexts, Measured, case
from mnemoscope.models import build
from mnemoscope.systems.retrieval_prompts.accuracy import MOST_PROBABLE, SAMPLED, Cell, retrieval_answers
from mnemoscope.systems.retrieval_prompts.questions import FORMULATIONS
from mnemoscope.systems.retrieval_prompts.scoring import Sampling, StandIn

LARGE = 7.0
"""Billions of parameters from which a model counts as large."""
N = 100
"""Questions of each kind."""
SEEN_BEFORE = (
    "The source asked five times as many questions; here models are the replicates. It names no models: large is read "
    f"as {LARGE:g} billion parameters or more, the smallest of the common sizes of general models of that time. Seen "
    "before these criteria were fixed: eight questions each of four kinds, put to SmolLM2-135M, which does not pass "
    "the gate, to time the scoring."
)
PLAIN = tuple(name for name, form in FORMULATIONS.items() if not form.conditional)

TEXTS = ClaimTexts(Path(__file__).with_name("claims") / "texts.yaml", {"n": N, "large": LARGE})
"""The texts of the claims, from `texts.yaml`."""
about_large_models = partial(
    Claim,
    system="retrieval-prompts",
    source="Mușat 2024, section 4",
    replicate="model",
    develops=False,
    gate=Gate(statement=f"has {LARGE:g} billion parameters or more", at_least=LARGE),
)


def accuracy_of(model: Any, asked: Sequence[Cell], *, n: int = N, scoring: str = MOST_PROBABLE) -> dict[str, float]:
    """Accuracy by label of the kind of questions, `n` of each; a question without an acceptable answer counts as wrong.

    `scoring` is `most probable` or `sampled`.
    """
    sampling = Sampling() if scoring == SAMPLED else None
    found = retrieval_answers(model, asked, n=n, sampling=sampling)
    shares = found.correct.sel(scoring=scoring).fillna(0.0).mean("question")
    return {str(label): float(share) for label, share in zip(shares.cell.values, shares.values, strict=True)}


def size(model: Any) -> dict[str, float]:
    """The quantity of the gate: billions of parameters."""
    n = model.n_parameters if isinstance(model, StandIn) else sum(p.numel() for p in model.parameters())
    return {GATE: n / 1e9}


def measured(
    number: int, *, measure: Callable[..., Measured], share: float, knows: tuple[str, ...] = tuple(FORMULATIONS)
) -> Mapping[str, Measured]:
    """The measure of a claim on a stand-in that answers rightly with a probability."""
    return {"model": measure(StandIn(share=share, knows=knows, seed=number))}


def random_weights(number: int) -> Mapping[str, Any]:
    """A small model that was not trained, and reads texts letter by letter."""
    tokenizer = _letters()
    spec = ModelSpec(n_layers=2, d_model=16, n_heads=2)
    model = build(spec, d_vocab=len(tokenizer), n_ctx=2048, seed=number)
    model.tokenizer = tokenizer
    return {"model": model}


def _letters() -> Any:
    """A tokenizer with a token for every printable character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    symbols = ["<unk>", "<bos>", "<end>", "\n", *map(chr, range(32, 127))]
    letters = Tokenizer(models.WordLevel({symbol: i for i, symbol in enumerate(symbols)}, unk_token="<unk>"))
    letters.pre_tokenizer, letters.decoder = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=letters, unk_token="<unk>", bos_token="<bos>", eos_token="<end>", pad_token="<end>"
    )


def right(share: float, measure: Callable[..., Measured]) -> Case:
    """A stand-in that answers this share of questions rightly."""
    return case(f"answers {100 * share:g} % of questions rightly", partial(measured, measure=measure, share=share))


def plain_only(measure: Callable[..., Measured]) -> Case:
    """A stand-in that knows plain retrieval, and guesses at the conditional formulations."""
    return case("knows plain retrieval only", partial(measured, measure=measure, share=0.995, knows=PLAIN))


untrained = case("random weights", random_weights, n=2)
