"""Parts of an induction circuit at their ideal form, which a clamp can hold during training.

The circuit has three subcircuits. *A*, copy: from the label that a head of layer 1 attends to, to the output. *B*,
routing: from an exemplar to the label after it, by previous-token attention of layer 0. *C*, match: from the query to
the label that holds its exemplar, by queries and keys of layer 1. Singh et al. 2024 hold some of them ideal while the
others learn.

| part | held | left to learn, with one head in layer 1 |
| --- | --- | --- |
| `perfect-layer-1` | what layer 0 adds at a label: the stream of the exemplar before it | A and C |
| `perfect-match` | the attention of L1H0 from the query: the right label | A |
| `perfect-copy` | the output: the logarithm of L1H0's attention from each place, added up by label | B and C |
| `perfect-layer-1`, `perfect-copy` | both | C |
| `perfect-key`, `perfect-copy` | the attention of L1H0 from the query, as `agreement` says, and the output | B |

All are about head 0 of layer 1, unless a clamp names another place.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mnemoscope import Site
from mnemoscope.core import IdealPart

LABELS, QUERY = (1, 3), 4
"""Positions of the labels, each after its exemplar, and of the query."""
SHARPNESS = 8.0
"""Score of a perfect key that agrees in full."""
FLOOR = 1e-6
"""Added to the attention before its logarithm is taken."""
_STREAM = Site(kind="resid_pre", layer=0)
_ATTENTION = Site(kind="pattern", layer=1, head=0, pos=QUERY)


def perfect_parts(n_labels: int) -> dict[str, IdealPart]:
    """The ideal parts by name, for so many labels, which are the first tokens."""

    def copied(inputs: Int[Tensor, "batch pos"], pattern: Float[Tensor, "batch query key"]) -> Tensor:
        return (label_attention(inputs, pattern, n_labels) + FLOOR).log()

    return {
        "perfect-layer-1": IdealPart(
            site=Site(kind="attn_out", layer=0, pos=LABELS), value=exemplar_before, reads=(_STREAM,)
        ),
        "perfect-match": IdealPart(site=_ATTENTION, value=match),
        "perfect-key": IdealPart(site=_ATTENTION, value=agreement, reads=(_STREAM, Site(kind="attn_out", layer=0))),
        "perfect-copy": IdealPart(site="logits", value=copied, reads=(Site(kind="pattern", layer=1, head=0),)),
    }


def exemplar_before(
    inputs: Int[Tensor, "batch pos"], stream: Float[Tensor, "batch pos d_model"]
) -> Float[Tensor, "batch pos d_model"]:
    """The stream one place before; at the first place that of the last, which is not used."""
    return stream.roll(1, 1)


def right_label(inputs: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch key"]:
    """True at the label after the exemplar that is the query's."""
    same = inputs == inputs[:, QUERY:]
    after = same.roll(1, 1)
    at = torch.arange(inputs.shape[1], device=inputs.device)
    return after & ((at == LABELS[0]) | (at == LABELS[1]))


def match(inputs: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch query key"]:
    """All attention on the right label, from every place alike; only that from the query is used."""
    return right_label(inputs).float()[:, None].expand(-1, inputs.shape[1], -1)


def agreement(
    inputs: Int[Tensor, "batch pos"],
    stream: Float[Tensor, "batch pos d_model"],
    written: Float[Tensor, "batch pos d_model"],
) -> Float[Tensor, "batch query key"]:
    """Softmax over keys of the cosine between the query's stream and what layer 0 wrote there, times `SHARPNESS`.

    It is that of the last place, the query; only there it is used.
    """
    asked = torch.nn.functional.normalize(stream[:, QUERY:], dim=-1)
    scores = SHARPNESS * (asked * torch.nn.functional.normalize(written, dim=-1)).sum(-1)
    return scores.softmax(-1)[:, None].expand(-1, inputs.shape[1], -1)


def label_attention(
    inputs: Int[Tensor, "batch pos"], pattern: Float[Tensor, "batch query key"], n_labels: int
) -> Float[Tensor, "batch query label"]:
    """The attention on each label, from every place."""
    labels = torch.arange(n_labels, device=inputs.device)
    return pattern @ (inputs[..., None] == labels).to(pattern.dtype)
