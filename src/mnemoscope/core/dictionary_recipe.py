"""The recipe of a small dictionary: its kind, its size and its training."""

from dataclasses import dataclass
from typing import Literal, cast, get_args

from mnemoscope.core.dictionary import WRITE_KINDS, ReadKind, WriteKind
from mnemoscope.core.errors import in_range, one_of

DictionaryKind = Literal["sae", "transcoder", "skip-transcoder"]
DICTIONARY_KINDS: tuple[DictionaryKind, ...] = get_args(DictionaryKind)


@dataclass(frozen=True, kw_only=True)
class DictionaryRecipe:
    """The kind, the size and the training of a dictionary.

    Attributes:
        kind: `sae` reconstructs what it reads; `transcoder` reads the input of an MLP and reconstructs its output;
            `skip-transcoder` adds a linear map of the input.
        read: For `sae` an activation, such as `resid_post`; `mlp` for transcoders, and for `sae` the same as `mlp_out`.
        layer: Number of the block, from 0.
        width: Number of features: this many times d_mlp for transcoders, d_model for `sae`.
        activation: `topk` or `relu`.
        k: Number of features that may be active at once, for `topk`.
        l1: Weight of the penalty, for `relu`; it has no unit, as activations are whitened.
        n_steps: Updates.
        batch_size: Rows of one update.
        learning_rate: Of Adam; falls to zero over the second half.

    >>> ms.DictionaryRecipe(kind="sae", read="resid_post").reads
    'resid_post'
    """

    kind: DictionaryKind = "transcoder"
    read: str = "mlp"
    layer: int = 0
    width: float = 4
    activation: Literal["topk", "relu"] = "topk"
    k: int = 8
    l1: float = 0.03
    n_steps: int = 3000
    batch_size: int = 256
    learning_rate: float = 1e-2

    def __post_init__(self) -> None:
        one_of("the kind of a dictionary", self.kind, DICTIONARY_KINDS)
        allowed = ("mlp", *WRITE_KINDS) if self.kind == "sae" else ("mlp",)
        one_of(f"read of a dictionary of kind {self.kind}", self.read, allowed)
        one_of("the activation of a dictionary that is trained", self.activation, ("topk", "relu"))
        for name, low in (("layer", 0), ("k", 1), ("l1", 0), ("n_steps", 1), ("batch_size", 1)):
            in_range(f"{name} of a dictionary", getattr(self, name), low, float("inf"))
        for name in ("width", "learning_rate"):
            in_range(f"{name} of a dictionary", getattr(self, name), 1e-6, float("inf"))

    @property
    def reads(self) -> ReadKind:
        """The activation that is encoded."""
        return self.writes if self.kind == "sae" else "mlp_in"

    @property
    def writes(self) -> WriteKind:
        """The activation that is reconstructed."""
        return "mlp_out" if self.read == "mlp" else cast("WriteKind", self.read)
