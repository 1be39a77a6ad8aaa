"""The model card of an exported run, in the form of the Hugging Face hub."""

import json
from collections.abc import Sequence

from mnemoscope.core.errors import InputError
from mnemoscope.models.run import Run

_PLAIN = """import json

import torch
from safetensors.torch import load_file
from transformer_lens import HookedTransformer, HookedTransformerConfig

with open("config.json") as file:
    config = json.load(file)
config["dtype"] = getattr(torch, config["dtype"])
model = HookedTransformer(HookedTransformerConfig(**config))
model.load_state_dict(load_file("model.safetensors"))
model.eval()
"""
_OWN = """from pathlib import Path

from mnemoscope.models.checkpoint import load_checkpoint

model = load_checkpoint(Path("model.safetensors"))
"""
_GPT2 = """from transformers import GPT2LMHeadModel

model = GPT2LMHeadModel.from_pretrained("transformers")
"""
_TAGS = ("mechanistic-interpretability", "transformer-lens", "mnemoscope")


def card(run: Run, step: int, *, plain: bool, against: Sequence[str]) -> str:
    """A model card in Markdown of a run at a checkpoint.

    `plain` models fit a `HookedTransformer` of TransformerLens 3.9 alone. `against` gives the reasons why GPT-2's
    architecture cannot hold the model, none where it can.
    """
    spec = run.spec
    head = ["---", "library_name: transformer-lens", "tags:", *(f"- {tag}" for tag in _TAGS), "---"]
    parts = [
        "\n".join(head),
        f"# {run.label}, seed {spec.seed}",
        f"A small transformer trained on the task {spec.task.name} for {step:,} steps (preset {spec.preset}, recipe "
        f"{spec.recipe.name}), exported by mnemoscope.",
        "## Loading",
        f"With mnemoscope, on any line of TransformerLens from 3.9 on:\n\n{_code(_OWN)}",
    ]
    if plain:
        parts.append(f"With TransformerLens 3.9 alone (4.0 has no `HookedTransformer`):\n\n{_code(_PLAIN)}")
    if against:
        parts.append(f"`transformers` cannot load it: {'; '.join(against)}.")
    else:
        parts.append(f"As a GPT-2 of `transformers`, with the same logits up to rounding:\n\n{_code(_GPT2)}")
    if measured := _measured(run, step):
        parts += ["## Evaluation", "On monitoring batches, as training logged it; losses in nats.", measured]
    parts += ["## Specification", _code(json.dumps(spec.to_dict(), indent=2), "json")]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _code(text: str, language: str = "python") -> str:
    return f"```{language}\n{text.strip()}\n```"


def _measured(run: Run, step: int) -> str:
    """The metrics of the step as a table; nothing where none were logged then."""
    try:
        metrics = run.metrics()
    except InputError:
        return ""
    if step not in metrics.step.values:
        return ""
    line = metrics.sel(step=step)
    rows = [f"| {name} | {float(value):.4g} |" for name, value in line.data_vars.items()]
    return "\n".join(["| metric | value |", "|---|---|", *rows])
