"""The lookup task with ideal parts, as a guest would offer them."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from mnemoscope.core.clamp import IdealPart
from mnemoscope.core.site import Site
from mnemoscope.core.specification import TASKS
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup


def shifted(x: torch.Tensor) -> torch.Tensor:
    """The row of the position before; zero at the first."""
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)


def copied(inputs: torch.Tensor, pattern: torch.Tensor) -> torch.Tensor:
    return 3 * pattern @ torch.nn.functional.one_hot(inputs, 6).to(pattern)


@dataclass(frozen=True, kw_only=True)
class WithParts(PermutationLookup):
    """The lookup task with ideal parts, as a guest would offer them."""

    name: ClassVar[str] = "lookup-with-parts"

    def ideal_parts(self) -> dict[str, IdealPart]:
        return {
            "previous": IdealPart(
                site=Site(kind="attn_out", layer=0, pos=(1, 3, 5, 7)),
                value=lambda inputs, stream: shifted(stream),
                reads=(Site(kind="resid_pre", layer=0),),
            ),
            "match": IdealPart(
                site=Site(kind="pattern", layer=1, head=0),
                value=lambda inputs: torch.eye(inputs.shape[1]).expand(len(inputs), -1, -1),
            ),
            "copy": IdealPart(site="logits", value=copied, reads=(Site(kind="pattern", layer=1, head=0),)),
            "too wide": IdealPart(site=Site(kind="z", layer=0, head=0), value=lambda inputs: inputs[..., None, None]),
            "backwards": IdealPart(
                site=Site(kind="z", layer=0), value=lambda inputs, z: z, reads=(Site(kind="z", layer=1),)
            ),
        }


if "lookup-with-parts" not in TASKS.names():
    TASKS.add("lookup-with-parts", WithParts)
