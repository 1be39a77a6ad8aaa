"""Where in a model something is read or changed."""

from dataclasses import dataclass
from typing import Literal

from mnemoscope.core.errors import InputError, in_range, one_of

Kind = Literal["z", "mlp_out"]
KINDS: tuple[str, ...] = ("z", "mlp_out")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A place in the residual network, in TransformerLens's words.

    Attributes:
        kind: `z`: the output of an attention head before W_O; `mlp_out`: the output of a layer's MLP.
        layer: Number of the block, from 0.
        head: Number of the head, for `z`.
    """

    kind: Kind
    layer: int
    head: int | None = None

    def __post_init__(self) -> None:
        one_of("the kind of a site", self.kind, KINDS)
        in_range("the layer of a site", self.layer, 0, float("inf"))
        if (self.kind == "z") != (self.head is not None):
            raise InputError(f"a site of kind z names its head and no other kind does; got {self}")

    def __str__(self) -> str:
        return f"L{self.layer}H{self.head}" if self.kind == "z" else f"L{self.layer} MLP"

    @property
    def hook(self) -> str:
        """Name of the hook point."""
        return f"blocks.{self.layer}.attn.hook_z" if self.kind == "z" else f"blocks.{self.layer}.hook_mlp_out"
