"""A transcoder of the first MLP of a language model, trained on docstrings of the standard library."""

import ast
import sysconfig
from pathlib import Path

import torch

import mnemoscope as ms

N_POS, N_SEEN, N_UNSEEN, N_STEPS = 128, 800, 16, 6000  # positions a window, windows, updates
library = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
modules = [ast.parse(path.read_text(encoding="utf-8")) for path in library]
nodes = [node for module in modules for node in ast.walk(module)]
documented = [node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
texts = [text for text in dict.fromkeys(map(ast.get_docstring, documented)) if text and len(text) > 200]
model = ms.language_model("smollm2")


def windows(chosen: list[str], n: int) -> ms.Batch:
    """Windows of texts in a row; every position but the last of a window predicts the next token."""
    tokens = torch.cat([model.to_tokens(text, prepend_bos=False)[0] for text in chosen])
    inputs = tokens[: n * N_POS].view(-1, N_POS)
    scored = torch.ones_like(inputs, dtype=torch.bool)
    scored[:, -1] = False
    return ms.Batch(inputs=inputs, targets=inputs.roll(-1, 1), scored=scored)


seen = windows([text for place, text in enumerate(texts) if place % 10], N_SEEN)
unseen = windows(texts[::10], N_UNSEEN)
recipe = ms.DictionaryRecipe(layer=0, width=1.5, k=32, n_steps=N_STEPS, learning_rate=1e-3)
features = ms.train_dictionary(model, seen, recipe=recipe)
ms.save_dictionary(features, Path("smollm2-mlp-0.safetensors"))
quality = ms.analyses.dictionary_quality(model, [features], unseen).isel(dictionary=0)
print(features.n_features, "features,", round(quality.l0.item(), 1), "active,", round(quality.dead.item(), 2), "dead")
print("variance explained", round(quality.variance_explained.item(), 2))
print("loss", round(quality.clean_loss.item(), 2), "with features in place", round(quality.loss.item(), 2))
print("loss recovered", quality.recovered.round(2).to_series().to_dict())
