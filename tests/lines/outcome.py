"""What the package makes under one line of TransformerLens, as text to compare: `python -m tests.lines.outcome DIR`.

Digests of logits of the zoo, of runs that are trained a few steps, and of language models read from disk.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mnemoscope as ms
from mnemoscope.core.batch import Batch
from mnemoscope.models.lens import HAS_HOOKED_TRANSFORMER
from mnemoscope.models.zoo import labels
from tests.language_models import KINDS, N_TOKENS, save
from tests.support import contents, seeded, small_spec

TRAINED = ("v1", "v3", "birth-1-layer", "memories", "facts-narrow", "facts-linear", "k-hop-4-2-layers")
CLAIMS = {"tiny-recall": "T1", "k-hop": "K1"}
"""By system a claim that is decided within seconds."""


def digest(value: Any) -> str:
    """Of every bit of an array."""
    array = np.ascontiguousarray(value.detach() if isinstance(value, torch.Tensor) else value)
    return f"{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"


@torch.no_grad()
def zoo() -> dict[str, str]:
    """By configuration the logits of its first run."""
    found = {}
    for label in labels():
        run = ms.find_runs(Path(f"zoo:{label}"))[0]
        batch = run.spec.task.sample(8, split="test", generator=seeded())
        found[label] = digest(run.model()(batch.inputs))
    return found


def training(place: Path) -> dict[str, dict[str, str]]:
    """By preset every file of a short run."""
    found = {}
    for name in TRAINED:
        short = {"recipe.n_steps": 12, "recipe.checkpoint_steps": (5,), "recipe.warmup_steps": 2}
        ms.train(small_spec(name, changes=short), place / name)
        files = contents(place / name)
        run = dict(files.pop("run.json"))
        del run["versions"]
        found[name] = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
        found[name]["run.json"] = json.dumps(run, sort_keys=True)
    return found


@torch.no_grad()
def language(place: Path) -> dict[str, dict[str, str]]:
    """By family logits and the table of a patch, of a tiny random model."""
    found = {}
    for kind in KINDS:
        model = ms.language_model(save(kind, place / kind))
        tokens = torch.randint(3, N_TOKENS, (4, 2, 10), generator=seeded())
        scored = torch.zeros(2, 10, dtype=torch.bool)
        scored[:, -1] = True
        clean, corrupted = (Batch(inputs=tokens[i], targets=tokens[i + 2], scored=scored) for i in range(2))
        pairs = ms.PromptPairs(clean=clean, corrupted=corrupted, name="random")
        patched = ms.patch(model, pairs, kind="z", over=("layer", "head"))
        found[kind] = {"logits": digest(model(tokens[0])), "patch": digest(patched.value.values)}
    return found


def main(place: Path) -> None:
    """Write the outcomes."""
    place.mkdir(parents=True, exist_ok=True)
    found = {"language": language(place / "language"), "training": training(place / "runs"), "zoo": zoo()}
    content = {"line": 3 if HAS_HOOKED_TRANSFORMER else 4, **found}
    (place / "outcome.json").write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
