"""The commands that take models apart, and their options; field docstrings are the help texts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from mnemoscope.core.site import Kind


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What all commands that take models apart are told."""

    runs: Positional[tuple[Path, ...]]
    """Run directories, directories that hold some, or words such as `zoo:v3-published`."""
    split: Literal["train", "test"] = "test"
    """Mappings that the sequences show."""
    step: int | None = None
    """Training step of the checkpoint; none: the last."""
    jobs: int = 1
    """Worker processes, of one thread each; 0: one per core."""
    out: Path = Path("results")
    """Arrays, tables and a page with figures go to OUT/<configuration>/<command> in place of earlier ones."""
    config: Path | None = None
    """YAML file: a section a command, a key an option; what is typed wins."""


@dataclass(frozen=True, kw_only=True)
class Ablate(Analysis):
    """What is lost without each head and MLP, each set of them, position or attention path; heads by role."""

    what: Literal["components", "subsets", "positions", "paths"] = "components"
    """What is removed: heads and MLPs, every set of those, their output at one position, or single attention paths."""
    within: str | None = None
    """Latent, such as is_repeat: means and resampled activations come from sequences of the same class."""
    n: int = 2048
    """Sequences of each subgroup; one half chooses the roles, the other is measured."""


@dataclass(frozen=True, kw_only=True)
class Patch(Analysis):
    """Activation patching: which activations carry the difference between clean and corrupted sequences."""

    kind: Kind = "resid_pre"
    """Activation, in TransformerLens's words."""
    over: tuple[str, ...] = ("layer", "pos")
    """Its axes to sweep, such as layer pos, layer head, layer pos head, layer head query key, layer neuron."""
    corruption: str | None = None
    """How clean and corrupted sequences differ; none: the first kind that the task names."""
    skills: tuple[str, ...] = ()
    """Skills whose sequences are patched; none: all of the task."""
    metrics: tuple[str, ...] = ("logit_diff",)
    """Among logit_diff, log_prob, prob, accuracy, kl."""
    n: int = 256
    """Sequences of each subgroup; others name the heads."""


@dataclass(frozen=True, kw_only=True)
class Circuits(Analysis):
    """OV and QK circuits read from the weights, copying and composition scores, and how well they predict causes."""

    n: int = 1024
    """Sequences of each subgroup; others name the heads."""


@dataclass(frozen=True, kw_only=True)
class Neurons(Analysis):
    """MLP neurons as key/value memories: what they read, what they write, what they are needed for."""

    layer: int = 0
    """Whose neurons."""
    top: int = 10
    """Neurons of the first run that are listed, the most needed first."""
    sampled: bool = False
    """Read selectivity from samples; without it from every sequence, which tasks may refuse."""
    n: int = 2048
    """Sequences of each subgroup; one half ranks the neurons, the other is measured."""


@dataclass(frozen=True, kw_only=True)
class Heads(Analysis):
    """Attention by mechanism: the simplest that can stand in for each head, for all together, and which paths count."""

    tolerance: float | None = None
    """Loss (nats) that a mechanism may cost; none: the fixed default."""
    n: int = 2048
    """Sequences of each subgroup; one half searches the mechanisms, the other is measured."""


@dataclass(frozen=True, kw_only=True)
class Edges(Analysis):
    """Path patching: which connections between parts carry the difference between clean and corrupted sequences."""

    corruption: str | None = None
    """How clean and corrupted sequences differ; none: the first kind that the task names."""
    skills: tuple[str, ...] = ()
    """Skills whose sequences are patched; none: all of the task."""
    metrics: tuple[str, ...] = ("logit_diff",)
    """Among logit_diff, log_prob, prob, accuracy, kl."""
    embeddings: Literal["together", "apart"] = "together"
    """Token and positional embeddings as one writer or as two."""
    effect: Literal["total", "direct"] = "total"
    """All that follows from the reader's change, or what its own output does to the logits."""
    freeze: tuple[Literal["attention", "layer_norm"], ...] = ()
    """What keeps its values of the unchanged run: attention, layer_norm."""
    approximate: bool = True
    """Estimate by gradients too (EAP, EAP-IG): total effects with nothing frozen, of logit_diff, log_prob, prob."""
    n: int = 256
    """Sequences of each subgroup; others name the heads."""


@dataclass(frozen=True, kw_only=True)
class Shapley(Analysis):
    """What each head and MLP is worth for each skill when any of the others may be missing too; heads by role."""

    kinds: tuple[Literal["zero", "mean", "resample"], ...] = ("mean",)
    """What stands in for a part that is missing: zeros, means, activations of another sequence."""
    within: str | None = None
    """Latent, such as is_repeat: means and resampled activations come from sequences of the same class."""
    samples: int | None = None
    """Sampled squares of orders, at least 8; none: every set of up to 12 parts, 16 squares of more."""
    n: int = 1024
    """Sequences of each subgroup; one half chooses the roles, the other is measured."""


@dataclass(frozen=True, kw_only=True)
class Discover(Analysis):
    """Circuit discovery: which connections suffice for the difference between clean and corrupted sequences."""

    corruption: str | None = None
    """How clean and corrupted sequences differ; none: the first kind that the task names."""
    skills: tuple[str, ...] = ()
    """Skills whose circuits are searched; none: all of the task."""
    metric: str = "logit_diff"
    """One of logit_diff, log_prob, prob, accuracy, kl."""
    replacement: Literal["patch", "mean", "zero"] = "patch"
    """What edges outside a circuit carry: what was written on the corrupted sequence, its mean, nothing."""
    target: float = 0.9
    """Faithfulness that circuits are to reach, above 0 and at most 1."""
    embeddings: Literal["together", "apart"] = "together"
    """Token and positional embeddings as one writer or as two."""
    n_random: int = 200
    """Random circuits of the same size to compare with."""
    n: int = 256
    """Sequences of each subgroup; one half finds the circuits, the other judges them."""


@dataclass(frozen=True, kw_only=True)
class Probe(Analysis):
    """Linear probes: what can be read from activations, beside controls, and what is lost when it is erased."""

    latents: tuple[str, ...] = ()
    """Such as is_repeat, y[2] or target; none: the answer, and every latent with one value a sequence or position."""
    sites: tuple[Kind, ...] = ()
    """Activations, in TransformerLens's words; none: z, resid_mid, post, mlp_out, resid_post."""
    pos: int | None = None
    """Where they are read, negative from the end; none: the last position with an answer."""
    erase: bool = True
    """Erase what was read, and measure the skills: most of the time goes there."""
    n: int = 512
    """Sequences of each subgroup to fit probes on, from training mappings; as many to test them."""


@dataclass(frozen=True, kw_only=True)
class Truncate(Analysis):
    """Weights replaced by low-rank parts of themselves: what the model says at every rank, skill by skill."""

    weights: tuple[str, ...] = ()
    """Such as "L1 W_out", "L1H0 W_O", W_E or blocks.1.mlp.W_out; joined by + to be cut together; none: the last MLP."""
    parts: tuple[Literal["top", "rest"], ...] = ("top", "rest")
    """top: the largest components up to the rank are kept; rest: they are removed."""
    ranks: tuple[int, ...] = ()
    """Where weights are cut; none: 0, 1, 2, 4 and so on to the full rank."""
    n: int = 512
    """Sequences of each subgroup."""


@dataclass(frozen=True, kw_only=True)
class Interchange(Analysis):
    """Interchange interventions: which of two causal models of elimination and recall the heads can be read as."""

    n: int = 1024
    """Sequences of each subgroup; one half chooses which heads carry which variable, the other tests it."""
    n_pairs: int = 2048
    """Pairs of sequences between which activations are exchanged, from either half."""
    n_random: int = 20
    """Random subspaces to compare with."""
