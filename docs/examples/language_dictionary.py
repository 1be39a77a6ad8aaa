"""A transcoder of one MLP of a language model, trained on text that every Python brings along: its own reference."""

import sys
from pathlib import Path
from pydoc_data.topics import topics

import torch

import mnemoscope as ms

N_POS, EVERY = 128, 8
n_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
model = ms.language_model("smollm2")


def windows(texts: list[str]) -> ms.Batch:
    """Windows of equal length of all texts in a row; all positions but the last of each are scored."""
    tokens = torch.cat([model.to_tokens(text, prepend_bos=False)[0] for text in texts])
    inputs = tokens[: len(tokens) // N_POS * N_POS].view(-1, N_POS)
    scored = torch.ones_like(inputs, dtype=torch.bool)
    scored[:, -1] = False
    return ms.Batch(inputs=inputs, targets=inputs.roll(-1, 1), scored=scored)


names = sorted(topics)
unseen = windows([topics[name] for name in names[::EVERY]]).select(slice(None, None, 4))
seen = windows([topics[name] for place, name in enumerate(names) if place % EVERY])
recipe = ms.DictionaryRecipe(layer=4, width=1.5, k=32, n_steps=n_steps, learning_rate=1e-3)
features = ms.train_dictionary(model, seen, recipe=recipe)
ms.save_dictionary(features, Path("smollm2-mlp-4.safetensors"))
quality = ms.analyses.dictionary_quality(model, [features], unseen).isel(dictionary=0)
print(seen.inputs.numel(), "tokens seen,", unseen.inputs.numel(), "unseen;", features.n_features, "features")
print("variance explained", quality.variance_explained.round(2).item(), "dead", quality.dead.round(2).item())
print("loss", quality.clean_loss.round(3).item(), "with features in place", quality.loss.round(3).item())
print("loss recovered", quality.recovered.round(2).to_series().to_dict(), "active", quality.l0.round(1).item())
