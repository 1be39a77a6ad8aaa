"""Every attention path of a model taken out, against one hooked forward pass a trial."""

from statistics import median

from mnemoscope.analyses.attention_replacement.losses import Assignment, loss_meter
from mnemoscope.analyses.attention_replacement.paths import (
    FALLBACKS,
    LATER,
    Grain,
    pattern_paths,
    redirect_path,
    remove_paths,
)
from mnemoscope.core.batch import Batch
from mnemoscope.core.intervention import SetPattern
from mnemoscope.core.patterns import checked_pattern, identity, one_hot, previous, uniform, with_fallback
from mnemoscope.core.seeding import generator
from mnemoscope.core.site import Site
from mnemoscope.core.specification import ModelSpec
from mnemoscope.interventions.run import run_with
from mnemoscope.models.building import build
from mnemoscope.models.lens import HookedTransformer
from mnemoscope.systems.retrieval.tasks import Retrieval
from timing import Contender, Figure, duration, interleave, ratio

N_LAYERS, N_SEQUENCES, AIM = 12, 64, 5.0
TASK = Retrieval()


def model(d_model: int) -> HookedTransformer:
    """An untrained model of 12 layers with one head each."""
    spec = ModelSpec(d_model=d_model, n_heads=1, n_layers=N_LAYERS, d_mlp=4 * d_model, act_fn="gelu", positions=False)
    return build(spec, d_vocab=TASK.d_vocab, n_ctx=TASK.n_ctx, d_output=TASK.d_output, seed=0)


def mechanisms() -> Assignment:
    """Four mechanisms in turn, up through the layers."""
    whole = [with_fallback(previous(), identity()), with_fallback(one_hot("at_3"), identity()), uniform(), identity()]
    return {(layer, 0): whole[layer % len(whole)] for layer in range(N_LAYERS)}


class Rival:
    """Forward passes with all patterns set through hooks; one is a unit."""

    def __init__(self, model: HookedTransformer, batch: Batch):
        self.model, self.batch = model, batch
        self.interventions = [
            SetPattern(site=Site(kind="pattern", layer=layer, head=head), mechanism=mechanism)
            for (layer, head), mechanism in mechanisms().items()
        ]

    def __call__(self) -> float:
        for _ in range(5):
            run_with(self.model, self.batch, self.interventions)
        return 5.0


class Ours:
    """All paths taken out, a pair of intact runs a layer included; a trial is a unit."""

    def __init__(self, model: HookedTransformer, batch: Batch, by: Grain):
        self.at, self.assigned = loss_meter(model, batch, None), mechanisms()
        self.by: Grain = by
        self.n_trials = float(len(LATER) * self._n_patterns())

    def __call__(self) -> float:
        remove_paths(self.at, self.assigned, None, self.by, FALLBACKS)
        return self.n_trials

    def _n_patterns(self) -> int:
        batch = self.at.by.batch
        others = [checked_pattern(fallback, batch).double() for fallback in FALLBACKS]
        rows = {head: checked_pattern(mechanism, batch).double() for head, mechanism in self.assigned.items()}
        found = pattern_paths(batch, self.assigned, self.by)
        return sum(redirect_path(path, rows[path.head], other) is not None for path in found for other in others)


def sweeps(quick: bool) -> list[Figure]:
    """All paths, with two fallbacks and the attention of later layers set or learned; 64 sequences of 28 vectors."""
    batch, figures = TASK.sample(N_SEQUENCES, split="test", generator=generator(0, "benchmark")), []
    grains: tuple[Grain, ...] = ("mechanism", "query")
    for d_model in (64, 128):
        subject = model(d_model)
        rival = Rival(subject, batch)
        for by in grains[: 1 if quick else 2]:
            ours = Ours(subject, batch, by)
            contenders: dict[str, Contender] = {"rival": rival, "ours": ours}
            seconds = interleave(contenders, 1 if quick else 3)
            value, spread = ratio(seconds["rival"], seconds["ours"])
            note = f"a trial: ours {duration(median(seconds['ours']))}, rival {duration(median(seconds['rival']))}"
            name = f"{ours.n_trials:.0f} trials by {by}, d_model {d_model}"
            figures.append(Figure(group="paths", name=name, value=value, unit="x", spread=spread, aim=AIM, note=note))
    return figures
