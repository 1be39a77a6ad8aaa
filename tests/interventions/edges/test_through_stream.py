"""The fast way of patching edges one at a time against one hooked forward pass an edge."""

from dataclasses import replace

import pytest
import torch

from mnemoscope.core.batch import Batch
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import METRICS
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.site import LOGITS, Edge, Site
from mnemoscope.engine.budget import MAX_BYTES
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.graph import model_edges
from mnemoscope.interventions.measurement import Chunk, MetricReader, SweepQuestion, measure_sweep
from mnemoscope.interventions.streams import plan_edges
from tests.engine.test_budget import most_at_once
from tests.split_hooks import added, by_hand, mean_logit_difference, output, random_pairs, split
from tests.support import foreign_model

_ROTARY = {"positional_embedding_type": "rotary"}
MODELS = {
    "LN": {"normalization_type": "LN"},
    "none": {"normalization_type": None, "act_fn": "relu"},
    "LNPre": {"normalization_type": "LNPre", "n_layers": 3, "use_attn_scale": False},
    "RMS": {"normalization_type": "RMS", "act_fn": "silu"},
    "one layer": {"normalization_type": "LN", "n_layers": 1},
    "attention only": {"normalization_type": "LN", "attn_only": True},
    "attention only, deep": {"n_layers": 3, "attn_only": True, "scale_attn_by_inverse_layer_idx": True},
    "shared keys": {"n_heads": 4, "n_key_value_heads": 2, "normalization_type": "LN"},
    "Pythia": {**_ROTARY, "rotary_adjacent_pairs": False, "rotary_dim": 2, "parallel_attn_mlp": True},
    "Llama": {
        **_ROTARY, "rotary_adjacent_pairs": False, "rotary_dim": 2, "n_heads": 4, "n_key_value_heads": 2,
        "normalization_type": "RMS", "final_rms": True, "gated_mlp": True, "act_fn": "silu", "n_layers": 3,
    },
    "attention only, shared": {**_ROTARY, "rotary_dim": 2, "n_heads": 4, "n_key_value_heads": 1, "attn_only": True},
}  # fmt: skip
READ = {"last": (5,), "two": (2, 4), "all": tuple(range(6))}


def prompts(read=(5,), differ=tuple(range(6)), n=3) -> PromptPairs:
    """Pairs of 6 tokens that differ at the positions `differ`."""
    pairs = random_pairs(n)
    mask = torch.isin(torch.arange(6), torch.tensor(differ))
    tokens = torch.where(mask, pairs.corrupted.inputs, pairs.clean.inputs)
    pairs = replace(pairs, corrupted=replace(pairs.corrupted, inputs=tokens))
    return pairs.read_at(torch.isin(torch.arange(6), torch.tensor(read)).expand(n, -1))


def fast(model, base: Batch, other: Batch, chosen, *, direct=False, max_bytes=MAX_BYTES):
    """Logits of every edge at the positions that are read, and the numbers of the edges that were run."""
    pairs = PromptPairs(clean=base, corrupted=other, name="")
    question = SweepQuestion(model=model, pairs=pairs, max_bytes=max_bytes)
    how = plan_edges(question, chosen, direct=direct)
    assert not isinstance(how, str), how
    here, there = (how.run(batch.inputs) for batch in (base, other))
    reader = MetricReader.from_pairs(pairs, question.read, METRICS, here.logits)
    chunk = Chunk(pairs=pairs, into=0, runs=(here, there), reader=reader, values=(), shared={})
    object.__setattr__(chunk, "measure_patched", iter)  # logits in place of metrics
    logits, ran = here.logits.repeat(len(chosen), 1, 1, 1), []
    for patched in how.measure_chunk(chunk):
        logits[list(patched.cells), :, patched.first :] = patched.logits
        ran += patched.cells
    assert len(ran) == len(set(ran))
    return logits, sorted(ran)


def expected(model, base, other, chosen, **options):
    return by_hand(model, base.inputs, other.inputs, chosen, **options)[:, :, base.scored[0]]


@pytest.mark.parametrize("name", MODELS)
def test_equals_one_hooked_forward_an_edge(name):
    model = foreign_model(**MODELS[name], dtype="float64")
    for embeddings, differ, order in (("apart", range(6), 1), ("together", (3, 4), -1)):
        pairs, chosen = prompts(differ=tuple(differ), n=2), model_edges(model, embeddings=embeddings)
        base, other = (pairs.clean, pairs.corrupted)[::order]
        truth = by_hand(model, base.inputs, other.inputs, chosen)
        assert (truth - truth[-1]).abs().max() > 0.01  # edges matter, so that a mistake would show
        for read in READ.values():
            scored = torch.isin(torch.arange(6), torch.tensor(read)).expand(2, -1)
            logits, _ = fast(model, *(replace(side, scored=scored) for side in (base, other)), chosen)
            assert (logits - truth[:, :, list(read)]).abs().max() < 1e-9


@pytest.mark.parametrize("name", MODELS)
def test_in_single_precision(name):
    model, pairs = foreign_model(**MODELS[name]), prompts()
    chosen = model_edges(model)
    truth = expected(model, pairs.clean, pairs.corrupted, chosen)
    logits, _ = fast(model, pairs.clean, pairs.corrupted, chosen)
    assert torch.allclose(logits, truth, rtol=1e-5, atol=1e-5)


def test_both_directions_and_every_metric_of_a_sweep():
    model, pairs = foreign_model(dtype="float64"), prompts((2, 5), n=5)
    chosen = model_edges(model)
    question = SweepQuestion(model=model, pairs=pairs, metrics=METRICS, directions=("denoising", "noising"))
    how = plan_edges(question, chosen)
    assert not isinstance(how, str)
    swept = measure_sweep(question, len(chosen), how)
    assert swept.method == "stream"
    sides = pairs.corrupted.inputs, pairs.clean.inputs
    number = [metric.name for metric in METRICS].index("logit_diff")
    for values, (base, other) in zip(swept.value[:, number], (sides, sides[::-1]), strict=True):
        assert torch.allclose(values, mean_logit_difference(pairs, by_hand(model, base, other, chosen)), atol=1e-9)


@pytest.mark.parametrize("read", READ)
def test_positions_by_number_and_by_latent(read):
    model, pairs = foreign_model(dtype="float64"), prompts(READ[read])
    clean, latent = replace(pairs.clean, known={"place": torch.tensor([0, 4, -1])}), torch.tensor([0, 4, -1])
    masks = {"place": torch.arange(6) == latent[:, None], (2, -1): torch.isin(torch.arange(6), torch.tensor([2, 5]))}
    for pos, mask in masks.items():
        chosen = [edge.at(pos) for edge in model_edges(model)]
        truth = expected(model, clean, pairs.corrupted, model_edges(model), at=mask.expand(3, -1).double())
        logits, _ = fast(model, clean, pairs.corrupted, [*chosen, *model_edges(model)])
        assert (logits[: len(chosen)] - truth).abs().max() < 1e-9
        assert (logits[len(chosen) :] - truth).abs().max() > 0.01
    assert torch.allclose(logits[: len(chosen), 2], truth[:, 2])


@torch.no_grad()
def test_a_head_through_all_its_inputs():
    model, pairs = foreign_model(n_layers=3, dtype="float64"), prompts((3, 5))
    heads = {replace(edge, through=None): edge for edge in model_edges(model) if edge.through == "v"}
    logits, _ = fast(model, pairs.clean, pairs.corrupted, list(heads))
    with split(model):
        caches = [model.run_with_cache(batch.inputs)[1] for batch in (pairs.clean, pairs.corrupted)]
        for found, edge in zip(logits, heads.values(), strict=True):
            old, new = (output(model, cache, edge.writer) for cache in caches)
            hooks = [added(model, replace(edge, through=through), new - old) for through in "qkv"]
            truth = model.run_with_hooks(pairs.clean.inputs, fwd_hooks=hooks)[:, [3, 5]]
            assert (found - truth).abs().max() < 1e-9, str(edge)


@torch.no_grad()
@pytest.mark.parametrize("name", ["RMS", "attention only", "one layer"])
@pytest.mark.thorough
def test_direct_effects(name):
    model, pairs = foreign_model(**MODELS[name], dtype="float64"), prompts((3, 5), (1, 3, 4))
    chosen = model_edges(model, embeddings="apart")
    chosen = [*chosen, *(replace(edge, through=None) for edge in chosen if edge.through == "q")]
    logits, _ = fast(model, pairs.clean, pairs.corrupted, chosen, direct=True)
    last = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    with split(model):
        base, source = (model.run_with_cache(batch.inputs)[1] for batch in (pairs.clean, pairs.corrupted))
        for found, edge in zip(logits, chosen, strict=True):
            change = output(model, source, edge.writer) - output(model, base, edge.writer)
            if edge.reader != LOGITS:
                through = "qkv" if edge.through is None and edge.reader.kind == "z" else [edge.through]
                hooks = [added(model, replace(edge, through=way), change) for way in through]
                with model.hooks(fwd_hooks=hooks):
                    cache = model.run_with_cache(pairs.clean.inputs)[1]
                change = output(model, cache, edge.reader) - output(model, base, edge.reader)
            truth = model.unembed(model.ln_final(base[last] + change))[:, [3, 5]]
            assert (found - truth).abs().max() < 1e-9, str(edge)


@torch.no_grad()
def test_an_edge_to_the_logits_by_hand():
    model, pairs = foreign_model(dtype="float64"), prompts()
    edge = Edge(writer=Site(kind="mlp_out", layer=0))
    logits, _ = fast(model, pairs.clean, pairs.corrupted, [edge])
    clean, corrupted = (model.run_with_cache(batch.inputs)[1] for batch in (pairs.clean, pairs.corrupted))
    name = edge.writer.hook
    stream = clean["blocks.1.hook_resid_post"] + corrupted[name] - clean[name]
    assert torch.allclose(logits[0], model.unembed(model.ln_final(stream))[:, 5:], rtol=0, atol=1e-9)


class TestWhatIsNotRun:
    model = foreign_model(dtype="float64")

    def ran(self, pairs, chosen=None, **options):
        chosen = model_edges(self.model, embeddings="apart") if chosen is None else chosen
        logits, numbers = fast(self.model, pairs.clean, pairs.corrupted, chosen, **options)
        unpatched = self.model(pairs.clean.inputs)[:, pairs.scored[0]]
        for number in set(range(len(chosen))) - set(numbers):
            assert torch.allclose(logits[number], unpatched)
        return [chosen[number] for number in numbers]

    @pytest.mark.parametrize("direct", [False, True])
    def test_equal_prompts_run_nothing(self, direct):
        pairs = prompts()
        assert self.ran(replace(pairs, corrupted=pairs.clean), direct=direct) == []

    def test_positional_embeddings_do_not_differ(self):
        found = self.ran(prompts())
        assert {edge.writer.kind for edge in found} == {"embed", "z", "mlp_out"}
        assert len(found) == sum(
            edge.writer.kind != "pos_embed" for edge in model_edges(self.model, embeddings="apart")
        )

    def test_differences_after_the_positions_that_are_read(self):
        assert self.ran(prompts((2, 3), (4, 5))) == []
        found = self.ran(prompts((3,), (3, 4)))
        assert len(found) > 20

    def test_what_arrives_where_nothing_is_read(self):
        every = [edge.at(2) for edge in model_edges(self.model)]
        found = {edge.input for edge in self.ran(prompts(), every)}
        first, last = ({f"L{n}H{h} {way}" for h in (0, 1) for way in ways} for n, ways in enumerate(("qkv", "kv")))
        assert found == {*first, "L0 MLP", *last}
        found = {edge.input for edge in self.ran(prompts(), every, direct=True)}
        assert found == {f"L{layer}H{h} {way}" for layer in (0, 1) for h in (0, 1) for way in "kv"}

    def test_positions_before_the_first_difference(self, monkeypatch):
        lengths, whole = set(), Transformer.resume_from_stream
        monkeypatch.setattr(
            Transformer, "resume_from_stream", lambda w, x, *more: lengths.add(x.shape[2]) or whole(w, x, *more)
        )
        self.ran(prompts(differ=(4, 5)))
        assert lengths == {2}


SIZES = {
    "wide": {"d_model": 32, "d_head": 8, "n_heads": 4, "d_mlp": 128},
    "many tokens": {"d_model": 16, "d_head": 8, "n_heads": 2, "d_mlp": 32, "d_vocab": 300},
    "long": {"d_model": 16, "n_heads": 8},
}


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_what_is_allocated_stays_within_the_budget(name, direct):
    n_pos, budget = 40, 4 * 10**6
    model, pairs = foreign_model(**SIZES[name], n_ctx=n_pos), random_pairs(8, n_pos=n_pos)
    if name == "many tokens":
        pairs = pairs.read_at(torch.ones_like(pairs.scored))
    chosen = model_edges(model)
    results = []

    def work():
        what = {"metrics": METRICS, "directions": ("noising",), "max_bytes": budget}
        question = SweepQuestion(model=model, pairs=pairs, **what)
        how = plan_edges(question, chosen, direct=direct)
        assert not isinstance(how, str)
        results.append(measure_sweep(question, len(chosen), how))

    most = most_at_once(work) - results[0].value.nbytes
    assert budget / 8 < most < budget


def test_chunks_change_nothing():
    model, pairs = foreign_model(), prompts(n=7)
    whole, cut = (
        fast(model, pairs.clean, pairs.corrupted, model_edges(model), max_bytes=size) for size in (MAX_BYTES, 250_000)
    )
    assert (whole[0] - cut[0]).abs().max() < 1e-5
    with pytest.raises(InputError, match=r"max_bytes leaves .* allow [0-9,]+ more"):
        fast(model, pairs.clean, pairs.corrupted, model_edges(model), max_bytes=10_000)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attention_dir": "bidirectional"}, "its attention is not causal: a change acts on earlier positions too"),
        ({"clip_qkv": 1.0}, "clip_qkv is 1.0"),
    ],
)
def test_other_models_are_told_apart(changes, reason):
    model = foreign_model(**changes)
    assert plan_edges(SweepQuestion(model=model, pairs=prompts()), model_edges(model)) == reason


def test_edges_that_the_model_has_not_are_refused():
    edge = Edge(writer=Site(kind="mlp_out", layer=2))
    with pytest.raises(InputError, match="the model has no edge L2 MLP → logits"):
        plan_edges(SweepQuestion(model=foreign_model(), pairs=prompts()), [edge])


def test_hooks_of_the_user_are_noticed():
    model = foreign_model(dtype="float64")
    model.add_hook("blocks.0.hook_resid_mid", lambda x, hook: 2 * x)
    assert plan_edges(SweepQuestion(model=model, pairs=prompts()), model_edges(model)) == "it carries hooks"
