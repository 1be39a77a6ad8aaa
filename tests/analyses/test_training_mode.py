"""A model left in training mode: analyses measure it in evaluation mode, and leave its mode as they found it."""

import ast
import copy
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import xarray as xr
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

import mnemoscope as ms
from mnemoscope import analyses
from mnemoscope.analyses.forward import read_logits_at
from tests.language_models import tokenizer, transformer

WORDS = tokenizer()
TEXTS = [f"When {a} and {b} went to the store , {a} gave a drink to" for a, b in pairwise(("John", "Mary", "Paul"))]
OTHER = [text.replace("John gave", "Anna gave").replace("Mary gave", "Anna gave") for text in TEXTS]
BATCH = ms.prompts(WORDS, TEXTS, answers=["Mary", "Paul"])
EVERY = ms.prompts(WORDS, TEXTS)
PAIRS = ms.prompt_pairs(WORDS, TEXTS, OTHER, answers=["Mary", "Paul"], foils=["him", "her"])
SKILLS = {"all": EVERY.scored}
ABLATED = {"skills": SKILLS, "reference": EVERY}
ZERO = ms.Zero(site=ms.Site(kind="z", layer=0, head=1))
PARITY = analyses.with_latent(EVERY, "parity", EVERY.inputs % 2)


def intervened(model):
    with ms.interventions.intervene(model, BATCH, [ZERO]):
        return model(BATCH.inputs)


def read(model):
    return read_logits_at(model, BATCH, BATCH.scored, lambda logits, *_: {"total": logits.logsumexp(-1)})["total"]


def estimated(kind):
    return lambda model: analyses.estimate(model, PAIRS, kind=kind, over=("layer", "head"))


ANALYSES = {
    "run_with nothing": lambda model: ms.run_with(model, BATCH, []),
    "run_with": lambda model: ms.run_with(model, BATCH, [ZERO]),
    "intervened": intervened,
    "read_at": read,
    "patch": lambda model: ms.patch(model, PAIRS, kind="z", over=("layer", "head")),
    "patch, the stream": lambda model: ms.patch(model, PAIRS, kind="resid_pre", over=("layer", "pos")),
    "estimate": estimated("z"),
    "estimate, attention": lambda m: analyses.estimate(
        m, PAIRS, kind="q", over=("layer", "head"), attention="recomputed"
    ),
    "ablate": lambda model: ms.ablate(model, EVERY, **ABLATED),
    "shapley": lambda model: ms.shapley(model, EVERY, **ABLATED, interactions=False),
    "logit_lens": lambda model: ms.logit_lens(model, BATCH),
    "logit_attribution": lambda model: ms.logit_attribution(model, BATCH),
    "probe": lambda m: ms.probe(m, PARITY, "parity", sites=[ms.Site(kind="resid_post", layer=1)], n_shuffles=1),
    "patterns": lambda model: analyses.patterns(model, BATCH),
    "named_patterns": lambda model: analyses.named_patterns(model, BATCH),
    "layer_attention": lambda model: analyses.layer_attention(model, 1, BATCH),
    "repeated tokens": lambda m: analyses.head_scores(m, analyses.repeated_tokens(m, n=2, length=6)),
}


@pytest.fixture
def bridge():
    """GPT-2 with the dropout that is its default."""
    theirs = copy.deepcopy(transformer("gpt2"))
    assert theirs.config.resid_pdrop == theirs.config.attn_pdrop == 0.1
    return build_bridge_from_module(theirs, "GPT2LMHeadModel", hf_config=theirs.config).eval()


def modes(bridge) -> list[bool]:
    return [module.training for root in (bridge, bridge.original_model) for module in root.modules()]


def numbers(result) -> dict[str, torch.Tensor]:
    """All numbers of a result."""
    if isinstance(result, torch.Tensor):
        return {"": result.detach().double()}
    found = result.to_dataset(name="value") if isinstance(result, xr.DataArray) else result
    return {str(n): torch.tensor(v.values).double() for n, v in found.data_vars.items() if v.dtype.kind in "fib"}


@pytest.mark.parametrize("name", ANALYSES)
def test_a_model_in_training_mode_is_measured_as_in_evaluation_mode(name, bridge):
    expected = numbers(ANALYSES[name](bridge))
    bridge.train()
    bridge.blocks[1].eval()  # a mixed state is restored too
    before = modes(bridge)
    assert any(before)
    found = numbers(ANALYSES[name](bridge))
    assert modes(bridge) == before
    assert expected
    assert found.keys() == expected.keys()
    for part, values in expected.items():
        torch.testing.assert_close(found[part], values, equal_nan=True, msg=lambda text, part=part: f"{part}: {text}")


def test_dropout_would_be_seen(bridge):
    bridge.train()
    assert (bridge(BATCH.inputs) - bridge(BATCH.inputs)).abs().max() > 0.1


def test_training_mode_comes_back_after_an_exception(bridge):
    def fails(activation, hook):
        raise RuntimeError(f"{any(modes(bridge))} on the way")

    bridge.train()
    bridge.blocks[0].hook_out.add_hook(fails)
    with pytest.raises(RuntimeError, match="False on the way"):
        ms.run_with(bridge, BATCH, [])
    assert all(modes(bridge))


SOURCE = Path(ms.__file__).parent
QUIET = {"evaluation_mode", "unembed_only", "intervene", "without_hooks"}
ROOMS = ("analyses", "interventions")


def runs(tree: ast.Module):
    """Calls that run a model, with whether something around them sets evaluation mode.

    A function within a function is handed to `logits_at`, which does.
    """

    def visit(node, quiet: bool, depth: int):
        if isinstance(node, ast.With):
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            names = {getattr(call.func, "id", getattr(call.func, "attr", "")) for call in calls}
            quiet = quiet or bool(names & QUIET)
        if isinstance(node, ast.FunctionDef):
            depth += 1
        if isinstance(node, ast.Call) and (
            getattr(node.func, "attr", "") in ("run_with_hooks", "run_with_cache")
            or getattr(node.func, "id", "") == "model"
        ):
            yield node.lineno, quiet or depth > 1
        for child in ast.iter_child_nodes(node):
            yield from visit(child, quiet, depth)

    yield from visit(tree, False, 0)


def test_every_run_of_a_model_is_in_evaluation_mode():
    found = [
        (path.relative_to(SOURCE).as_posix(), line, quiet)
        for room in ROOMS
        for path in sorted((SOURCE / room).rglob("*.py"))
        for line, quiet in runs(ast.parse(path.read_text()))
    ]
    assert len(found) > 12
    assert [(path, line) for path, line, quiet in found if not quiet] == []
