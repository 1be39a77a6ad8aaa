"""A run as a directory for those who do not have this library.

`config.json` holds arguments of TransformerLens's `HookedTransformerConfig`; `model.safetensors` the weights, also a
checkpoint of this library; `README.md` a model card: what was trained on what, how well, and how to load it;
`transformers/` the same as a GPT-2, where that architecture can hold it.
"""

import json
import shutil
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from mnemoscope.core.errors import InputError
from mnemoscope.core.protocols import has_linear_attention, reads_vectors
from mnemoscope.models.checkpoint import configuration_of, save_checkpoint
from mnemoscope.models.export.card import card
from mnemoscope.models.export.gpt2 import as_gpt2, obstacles
from mnemoscope.models.files import write_atomically
from mnemoscope.models.run import Run

WEIGHTS, CONFIGURATION, CARD, GPT2 = "model.safetensors", "config.json", "README.md", "transformers"


def export_run(run: Run, place: Path, *, step: int | None = None) -> list[str]:
    """Write one checkpoint of a run to a directory; what an earlier export left there is replaced.

    The run may be unfinished but has a checkpoint; without `step` its last is written. The directory is made. Raises
    InputError where there is no such checkpoint, or the directory holds something else.

    Returns a sentence for each reason why other libraries cannot load it; nothing where they can.
    """
    if place.exists() and not place.is_dir():
        raise InputError(f"{place} is a file; name a directory")
    foreign = (
        {file.name for file in place.iterdir()} - {WEIGHTS, CONFIGURATION, CARD, GPT2} if place.exists() else set()
    )
    if foreign:
        raise InputError(f"{place} holds something else ({min(foreign)}); name an empty directory")
    model = run.model(step)
    step = run.steps[-1] if step is None else step
    kinds = {
        "reads vectors": reads_vectors(model),
        "has linear attention": has_linear_attention(model),
        "has linear MLPs": model.cfg.act_fn == "identity",
    }
    own = [what for what, holds in kinds.items() if holds]
    sentences = [f"a plain HookedTransformer cannot hold it: it {' and '.join(own)}"] if own else []
    against = obstacles(model)
    sentences += [f"GPT-2's architecture cannot hold it: {'; '.join(against)}"] if against else []
    save_checkpoint(model, place / WEIGHTS, step=step)
    config = json.dumps(configuration_of(model.cfg), indent=2)
    write_atomically(place / CONFIGURATION, (config + "\n").encode())
    shutil.rmtree(place / GPT2, ignore_errors=True)
    if not against:
        disable_progress_bar()
        as_gpt2(model).save_pretrained(place / GPT2)
    write_atomically(place / CARD, card(run, step, plain=not own, against=against).encode())
    return sentences
