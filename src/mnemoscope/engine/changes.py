"""Functions at TransformerLens's hook points, which change or observe a run of the engine.

A function gets the activation in TransformerLens's layout, with all rows and positions. Its result replaces the
activation; a function that returns None only observes.

A change that changes nothing must leave every bit as it is. So a run with `Changes`, even empty ones, takes each step
by itself where a model has several layers. Only a run with `NONE` may fuse steps or look up the first layer, which
gives other last bits. Training with clamps needs no such comparison: with `exact` false, blocks without a change run as
with `NONE`.
"""

from collections.abc import Callable, Mapping

from torch import Tensor

Change = Callable[[Tensor], Tensor | None]
"""A function from an activation to its replacement, or to None: the activation stays."""

BEFORE_QUERIES = ("hook_resid_pre", "attn.hook_k", "attn.hook_v", "attn.hook_rot_k")
OF_QUERIES = ("attn.hook_q", "attn.hook_rot_q", "attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z")
AFTER_HEADS = (
    "hook_attn_out", "hook_resid_mid", "mlp.hook_pre", "mlp.hook_pre_linear", "mlp.hook_post", "hook_mlp_out",
    "hook_resid_post",
)  # fmt: skip
IN_BLOCK = (*BEFORE_QUERIES, *OF_QUERIES, *AFTER_HEADS)
"""Hook points of a block, in the order in which activations pass them."""
MLP_INPUT = "hook_mlp_input"
"""The stream that an MLP reads, for dictionaries only: it is seen before its normalisation, and never changed."""
BEFORE_BLOCKS = ("hook_embed", "hook_pos_embed")


class Changes:
    """Changes by hook point.

    `by_point` has functions by the full names of hook points, such as `blocks.0.attn.hook_z`; `within` is the prefix of
    the names by which they are called, such as `blocks.0.`. With `where_read`, everything after the heads of the last
    block is formed, and changed, only where it is read. `exact` keeps the bits of what is not changed.
    """

    def __init__(
        self, by_point: Mapping[str, Change], within: str = "", *, where_read: bool = False, exact: bool = True
    ):
        self.by_point, self._within, self.where_read, self.exact = by_point, within, where_read, exact

    def __call__(self, point: str, activation: Tensor) -> Tensor:
        """Apply the change at a hook point to its activation."""
        change = self.by_point.get(self._within + point) if self.by_point else None
        changed = None if change is None else change(activation)
        return activation if changed is None else changed

    def of_block(self, index: int) -> "Changes":
        """The same changes, called by names within a block."""
        within = f"blocks.{index}."
        if not self.by_point:
            return self
        if not self.exact and not any(point.startswith(within) for point in self.by_point):
            return NO_CHANGES
        return Changes(self.by_point, within, where_read=self.where_read, exact=self.exact)

    def any(self, *points: str) -> bool:
        """True if one of the points has a change."""
        return bool(self.by_point) and any(self._within + point in self.by_point for point in points)

    def last_block(self) -> int | None:
        """Number of the last block that has a change; None without one."""
        blocks = [int(point.split(".")[1]) for point in self.by_point if point.startswith("blocks.")]
        return max(blocks, default=None)


NO_CHANGES = Changes({})
"""No change, and no comparison with a run that has some."""
