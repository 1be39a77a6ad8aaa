"""Interactive views of attention."""

import xarray as xr

from mnemoscope.viz.page import Page


def attention_view(page: Page, example: xr.Dataset, caption: str) -> None:
    """An interactive view of the attention of every head on one sequence.

    Args:
        page: Where it goes.
        example: `pattern` over (layer, head, query, key) and `token` over key.
        caption: Above it.
    """
    heads = [f"L{layer}H{head}" for layer in range(example.sizes["layer"]) for head in range(example.sizes["head"])]
    patterns = example.pattern.values.reshape(len(heads), example.sizes["query"], example.sizes["key"])
    page.attention([str(token) for token in example.token.values], patterns, heads, caption)
