"""Interventions in a forward pass, each against a hook or a weight set by hand."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from mnemoscope.analyses.ablation import components
from mnemoscope.core.batch import Batch, Named
from mnemoscope.core.errors import InputError
from mnemoscope.core.intervention import (
    Add,
    Knockout,
    LowRank,
    Mean,
    Patch,
    Project,
    Resample,
    Scale,
    SetPattern,
    Zero,
)
from mnemoscope.core.patterns import Mechanism
from mnemoscope.core.site import ATTENTION, BY_HEAD, KINDS, OF_DICTIONARY, WEIGHTS, ParamSite, Site
from mnemoscope.interventions.recordings import Recordings
from mnemoscope.interventions.run import intervene, run_with
from tests.bridge import as_bridge
from tests.support import Predictor, foreign_model, random_model, seeded, small_spec

TASK = small_spec("v3").task
BATCH = TASK.monitor(10, split="test", generator=seeded())
REFERENCE = Named(name="reference", value=TASK.monitor(15, split="train", generator=seeded(1)))
OTHER = Named(name="other", value=TASK.monitor(10, split="train", generator=seeded(2)))
SAME = Named(name="same", value=BATCH)
HEAD = Site(kind="z", layer=0, head=1)
MODELS = {
    "two layers": lambda: random_model(n_layers=2),
    "attention only": lambda: random_model(mlp=False, n_layers=2),
    "no normalisation": lambda: random_model(normalization="none", n_layers=2),
    "foreign": lambda: foreign_model(),
}


def every_site(model, **fields) -> list[Site]:
    mlp = () if not model.cfg.attn_only else ("pre", "post", "mlp_out", "resid_mid")
    kinds = [kind for kind in KINDS if kind not in (*mlp, *OF_DICTIONARY)]
    return [Site(kind=kind, layer=None if "embed" in kind else 1, **fields) for kind in kinds]


def n_hooks(model) -> int:
    return sum(len(point.fwd_hooks) + len(point.bwd_hooks) for point in model.hook_dict.values())


def by_hand(model, name: str, function):
    return model.run_with_hooks(BATCH.inputs, fwd_hooks=[(name, function)])


def cached(model, batch, name: str):
    return model.run_with_cache(batch.inputs)[1][name]


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_what_changes_nothing_changes_no_bit(make):
    model = make()
    clean = model(BATCH.inputs)
    assert torch.equal(run_with(model, BATCH, []), clean)
    nowhere = replace(BATCH, known={"nowhere": torch.full((len(BATCH),), -1)})
    for site in every_site(model):
        assert torch.equal(run_with(model, BATCH, [Patch(site=site, source=SAME)]), clean), site
        assert torch.equal(run_with(model, BATCH, [Scale(site=site, factor=1.0)]), clean), site
        assert torch.equal(run_with(model, nowhere, [Zero(site=replace(site, pos="nowhere"))]), clean), site
    for weight in WEIGHTS:
        layer = None if weight in ("W_E", "W_pos", "W_U", "b_U") else 1
        if not (model.cfg.attn_only and weight.endswith(("_in", "_out"))):
            assert torch.equal(
                run_with(model, BATCH, [Scale(site=ParamSite(name=weight, layer=layer), factor=1.0)]), clean
            )


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_every_site_can_be_replaced_and_nothing_is_left_behind(make):
    model = make()
    clean = model(BATCH.inputs)
    for site in every_site(model):
        if site.kind == "scores":  # a finite score for the future would be no attention
            continue
        for kind in (Zero(site=site), Mean(site=site, source=REFERENCE), Resample(site=site, source=REFERENCE)):
            changed = run_with(model, BATCH, [kind])
            assert not changed.isnan().any()
            if (site.kind, type(kind)) not in (("pos_embed", Mean), ("pos_embed", Resample)):
                assert not torch.allclose(changed, clean, atol=1e-4), kind
            assert n_hooks(model) == 0
            assert torch.equal(model(BATCH.inputs), clean)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_the_residual_stream_of_another_run_brings_its_output(make):
    model = make()
    for site in (Site(kind="resid_pre", layer=1), Site(kind="resid_post", layer=1), Site(kind="embed")):
        patched = run_with(model, BATCH, [Patch(site=site, source=OTHER)])
        torch.testing.assert_close(patched, model(OTHER.value.inputs))
    last = run_with(model, BATCH, [Patch(site=Site(kind="resid_post", layer=1, pos=-1), source=OTHER)])
    torch.testing.assert_close(last[:, -1], model(OTHER.value.inputs)[:, -1])
    assert torch.equal(last[:, :-1], model(BATCH.inputs)[:, :-1])


@pytest.mark.parametrize("kind", [kind for kind in BY_HEAD if kind != "result"])
def test_one_head_at_one_position(kind):
    model = random_model(n_layers=2, n_heads=4)
    site = Site(kind=kind, layer=1, head=2, pos=6)

    def hook(value, hook):
        value = value.clone()
        value[(slice(None), 2, 6) if kind in ATTENTION else (slice(None), 6, 2)] *= 0.5
        return value

    name = f"blocks.1.attn.hook_{'attn_scores' if kind == 'scores' else kind}"
    assert torch.equal(run_with(model, BATCH, [Scale(site=site, factor=0.5)]), by_hand(model, name, hook))


def test_the_result_of_a_head_is_what_it_adds_to_the_residual_stream():
    model, site = random_model(n_layers=2), Site(kind="result", layer=0, head=1, pos=(2, -1))
    with_results = deepcopy(model)
    with_results.set_use_attn_result(True)

    def hook(value, hook):
        value = value.clone()
        value[:, [2, -1], 1] = 0
        return value

    expected = by_hand(with_results, "blocks.0.attn.hook_result", hook)
    torch.testing.assert_close(run_with(model, BATCH, [Zero(site=site)]), expected)
    patched = run_with(model, BATCH, [Patch(site=replace(site, pos=None), source=OTHER)])
    torch.testing.assert_close(
        patched,
        run_with(model, BATCH, [Patch(site=Site(kind="z", layer=0, head=1), source=OTHER)]),
        atol=1e-5,
        rtol=1e-5,
    )


def test_neurons_by_hand():
    model, chosen = random_model(), (1, 5)

    def hook(value, hook):
        value = value.clone()
        value[..., chosen] = 0
        return value

    changed = run_with(model, BATCH, [Zero(site=Site(kind="post", layer=0, neuron=chosen))])
    assert torch.equal(changed, by_hand(model, "blocks.0.mlp.hook_post", hook))
    one = run_with(model, BATCH, [Zero(site=Site(kind="post", layer=0, neuron=n)) for n in chosen])
    assert torch.equal(one, changed)


def test_the_position_may_be_a_latent_of_each_sequence():
    model, source = random_model(), BATCH.latents["source_pos"]

    def hook(value, hook):
        value = value.clone()
        for row, pos in enumerate(source.tolist()):
            if pos >= 0:
                value[row, pos] = 0
        return value

    changed = run_with(model, BATCH, [Zero(site=Site(kind="resid_pre", layer=0, pos="source_pos"))])
    assert torch.equal(changed, by_hand(model, "blocks.0.hook_resid_pre", hook))
    assert torch.equal(changed[:10], model(BATCH.inputs)[:10])  # no repeat, no source
    masked = replace(BATCH, known={"mask": source[:, None] == torch.arange(9)})
    assert torch.equal(run_with(model, masked, [Zero(site=Site(kind="resid_pre", layer=0, pos="mask"))]), changed)


@pytest.mark.parametrize("weighted", [False, True])
def test_means_over_sequences_positions_and_classes(weighted):
    model = random_model(normalization="none", mlp=False)
    weights = torch.arange(1.0, 31.0) if weighted else None
    source = Named(name="reference", value=replace(REFERENCE.value, weights=weights))
    site = Site(kind="z", layer=0)
    z = cached(model, source.value, "blocks.0.attn.hook_z")
    share = (torch.ones(30) if weights is None else weights)[:, None, None, None]

    def seen(over):
        with intervene(model, BATCH, [Mean(site=site, source=source, over=over)]):
            return cached(model, BATCH, "blocks.0.attn.hook_z")

    torch.testing.assert_close(seen("batch"), ((z * share).sum(0) / share.sum()).expand(20, -1, -1, -1))
    overall = (z * share).sum((0, 1)) / share.sum() / 9
    torch.testing.assert_close(seen("position"), overall.expand(20, 9, -1, -1))
    by_class, slots = seen("source_slot"), source.value.latents["source_slot"]
    for row, slot in enumerate(BATCH.latents["source_slot"].tolist()):
        rows = slots == slot
        torch.testing.assert_close(by_class[row], (z * share)[rows].sum(0) / share[rows].sum())


def test_resampling_takes_whole_rows_at_random_of_the_same_class_if_asked():
    model = random_model(normalization="none", mlp=False)
    z = cached(model, REFERENCE.value, "blocks.0.attn.hook_z")

    def drawn(seed, **match):
        sites = [Site(kind="z", layer=0, head=head) for head in range(2)]
        with intervene(model, BATCH, [Resample(site=s, source=REFERENCE, **match) for s in sites], seed=seed):
            new = cached(model, BATCH, "blocks.0.attn.hook_z")
        same = (new[:, None] == z[None]).flatten(2).all(2)  # both heads come from one sequence
        assert same.any(1).all()
        return same.int().argmax(1)

    assert len(set(drawn(0).tolist())) > 7
    assert torch.equal(drawn(0), drawn(0))
    assert not torch.equal(drawn(0), drawn(1))
    matched = drawn(0, match="source_slot")
    assert torch.equal(REFERENCE.value.latents["source_slot"][matched], BATCH.latents["source_slot"])


def test_a_mechanism_in_the_place_of_attention():
    model = random_model(n_layers=2)
    causal = torch.ones(9, 9).tril() / torch.arange(1, 10)[:, None]
    silent = torch.where(torch.arange(9)[:, None] == 8, torch.nan, causal)
    uniform = Mechanism(name="uniform", pattern=lambda batch: silent.expand(len(batch), 9, 9))
    with intervene(model, BATCH, [SetPattern(site=Site(kind="pattern", layer=1, head=0), mechanism=uniform)]):
        new = cached(model, BATCH, "blocks.1.attn.hook_pattern")
    old = cached(model, BATCH, "blocks.1.attn.hook_pattern")
    assert torch.equal(new[:, 0, :8], causal[:8].expand(20, 8, 9))
    assert torch.equal(new[:, 0, 8], old[:, 0, 8])
    assert torch.equal(new[:, 1], old[:, 1])


def test_a_knockout_spreads_the_weight_and_a_zero_loses_it():
    model = random_model()
    old = cached(model, BATCH, "blocks.0.attn.hook_pattern")
    path = {"layer": 0, "head": 1, "pos": 8, "key": 3}

    def seen(intervention):
        with intervene(model, BATCH, [intervention]):
            return cached(model, BATCH, "blocks.0.attn.hook_pattern")

    knocked, zeroed = seen(Knockout(site=Site(kind="scores", **path))), seen(Zero(site=Site(kind="pattern", **path)))
    expected = old[:, 1, 8].clone()
    expected[:, 3] = 0
    torch.testing.assert_close(zeroed[:, 1, 8], expected)
    torch.testing.assert_close(knocked[:, 1, 8], expected / expected.sum(-1, keepdim=True))
    keep = torch.ones(2, 9, dtype=torch.bool)
    keep[1, 8] = False
    assert torch.equal(knocked[:, keep], old[:, keep])
    everything = run_with(model, BATCH, [Knockout(site=Site(kind="scores", layer=0))])
    torch.testing.assert_close(everything, run_with(model, BATCH, [Zero(site=Site(kind="z", layer=0))]))


def test_directions_are_added_and_projected():
    model = random_model(normalization="none", mlp=False)
    vector = torch.randn(8, generator=seeded())
    direction = Named(name="direction", value=vector)
    site = Site(kind="resid_post", layer=0)
    added = run_with(model, BATCH, [Add(site=site, direction=direction, coefficient=-2.0)])
    torch.testing.assert_close(added, model(BATCH.inputs) - 2 * vector @ model.W_U)

    basis = Named(name="plane", value=torch.stack((vector, torch.ones(8), 2 * vector)))  # of rank 2
    resid = cached(model, BATCH, "blocks.0.hook_resid_post")
    parts = []
    for part in ("keep", "remove"):
        with intervene(model, BATCH, [Project(site=site, basis=basis, part=part)]):
            parts.append(cached(model, BATCH, "blocks.0.hook_resid_post"))
    torch.testing.assert_close(parts[0] + parts[1], resid)
    torch.testing.assert_close(parts[1] @ basis.value.T, torch.zeros(20, 9, 3), atol=1e-4, rtol=0)
    assert torch.linalg.matrix_rank(parts[0].flatten(0, 1), atol=1e-4) == 2


@pytest.mark.parametrize("head", [None, 1])
def test_weights_by_hand_and_restored(head):
    model = random_model(n_layers=2)
    clean, before = model(BATCH.inputs), deepcopy(model.state_dict())
    site = ParamSite(name="W_O", layer=1, head=head)
    truncated = deepcopy(model)
    for h in range(2) if head is None else [head]:
        weight = truncated.blocks[1].attn.W_O
        left, size, right = torch.linalg.svd(weight[h])
        weight.data[h] = size[0] * left[:, :1] @ right[:1]
    torch.testing.assert_close(run_with(model, BATCH, [LowRank(site=site, rank=1)]), truncated(BATCH.inputs))
    zeroed = run_with(model, BATCH, [Zero(site=ParamSite(name="b_O", layer=1)), Scale(site=site, factor=0.0)])
    as_hooks = [Zero(site=Site(kind="z", layer=1, head=head))]
    without_bias = deepcopy(model)
    without_bias.blocks[1].attn.b_O.data.zero_()
    torch.testing.assert_close(zeroed, run_with(without_bias, BATCH, as_hooks))
    assert torch.equal(
        run_with(model, BATCH, [LowRank(site=site, rank=4), LowRank(site=site, rank=0, part="rest")]), clean
    )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_two_parts_of_a_matrix_add_up():
    model = random_model(normalization="none", mlp=False)
    site = ParamSite(name="W_U")
    parts = [run_with(model, BATCH, [LowRank(site=site, rank=2, part=part)]) for part in ("top", "rest")]
    torch.testing.assert_close(sum(parts) - model.b_U, model(BATCH.inputs))


def test_interventions_compose_in_their_order():
    model = random_model(normalization="none", mlp=False)
    site, direction = Site(kind="resid_post", layer=0), Named(name="ones", value=torch.ones(8))
    add, double = Add(site=site, direction=direction), Scale(site=site, factor=2.0)
    resid = cached(model, BATCH, "blocks.0.hook_resid_post")
    torch.testing.assert_close(run_with(model, BATCH, [add, double]), (resid + 1) * 2 @ model.W_U + model.b_U)
    torch.testing.assert_close(run_with(model, BATCH, [double, add]), (resid * 2 + 1) @ model.W_U + model.b_U)
    both = run_with(model, BATCH, [double, add])
    with intervene(model, BATCH, [double]):
        assert torch.equal(run_with(model, BATCH, [add]), both)
    assert n_hooks(model) == 0


def test_the_users_hooks_stay_in_force_and_what_they_keep_is_not_written_to():
    model, kept = random_model(), []
    doubled = deepcopy(model)
    with torch.no_grad():
        doubled.embed.W_E *= 2
    model.add_hook("hook_embed", lambda value, hook: 2 * value)
    model.add_hook("blocks.0.attn.hook_z", lambda z, hook: kept.append(z))
    assert torch.equal(run_with(model, BATCH, []), doubled(BATCH.inputs))
    for intervention in (Zero(site=HEAD), Mean(site=HEAD, source=REFERENCE)):
        assert torch.equal(run_with(model, BATCH, [intervention]), run_with(doubled, BATCH, [intervention]))
    clean = cached(doubled, BATCH, "blocks.0.attn.hook_z")
    assert torch.equal(kept[1], clean)
    assert n_hooks(model) == 2


def test_nothing_is_left_behind_after_an_exception():
    model = random_model()
    clean = model(BATCH.inputs)
    model.add_hook("hook_embed", lambda value, hook: value)
    wrong = Add(site=HEAD, direction=Named(name="too wide", value=torch.ones(7)))
    weight = Scale(site=ParamSite(name="W_E"), factor=2.0)
    with pytest.raises(InputError, match="too wide must be as wide as the site, 4; got 7"):
        run_with(model, BATCH, [weight, Zero(site=HEAD), wrong])
    with pytest.raises(RuntimeError, match="in the middle"), intervene(model, BATCH, [weight, Zero(site=HEAD)]):
        raise RuntimeError("in the middle")
    assert n_hooks(model) == 1
    assert torch.equal(model(BATCH.inputs), clean)


def test_recordings_spare_a_forward_pass():
    model, calls = random_model(), []
    model.add_hook("hook_embed", lambda value, hook: calls.append(len(value)))
    recordings = Recordings(model)
    for head in range(2):
        run_with(model, BATCH, [Mean(site=Site(kind="z", layer=0, head=head), source=REFERENCE)], recordings=recordings)
    assert calls == [30, 20, 20]


def test_every_head_and_every_mlp_is_a_component():
    names = {name: [str(site) for site in components(make())] for name, make in MODELS.items()}
    assert names["two layers"] == ["L0H0", "L0H1", "L1H0", "L1H1", "L0 MLP", "L1 MLP"]
    assert names["attention only"] == ["L0H0", "L0H1", "L1H0", "L1H1"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Zero(site=Site(kind="z", layer=1, head=0)), "the layer of site L1H0 must be 0; got 1"),
        (lambda: Zero(site=Site(kind="z", layer=0, head=2)), "the head of site L0H2 must be from 0 to 1; got 2"),
        (lambda: Zero(site=Site(kind="mlp_out", layer=0)), "site L0 MLP does not exist: the model has no MLP"),
        (lambda: Zero(site=Site(kind="resid_mid", layer=0)), "site L0 resid_mid does not exist: the model has no MLP"),
        (lambda: Zero(site=Site(kind="embed", pos=9)), "a position of site embed pos 9 must be from -9 to 8; got 9"),
        (lambda: Zero(site=Site(kind="embed", pos="where")), "the latent that gives the position .* got 'where'"),
        (lambda: Zero(site=Site(kind="embed", pos="is_repeat")), "latent is_repeat must hold one position a sequence"),
        (lambda: Zero(site=Site(kind="embed", pos="mapping")), r"latent mapping must .* it has shape \(20, 5\)"),
        (lambda: Patch(site=HEAD, source=REFERENCE), "reference must have a row for each of the 20 .*; got 30"),
        (lambda: Mean(site=HEAD, source=SAME, over="colour"), "the latent that classes are of .* got 'colour'"),
        (lambda: Mean(site=HEAD, source=SAME, over="mapping"), r"latent mapping must hold one number a sequence"),
        (lambda: Zero(site=ParamSite(name="W_in", layer=0)), "the model has no parameter blocks.0.mlp.W_in"),
        (lambda: Zero(site=ParamSite(name="W_Q", layer=0, head=2)), "the head of L0H2 W_Q must be from 0 to 1"),
    ],
)
def test_what_the_model_or_the_batch_has_not_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        run_with(random_model(mlp=False), BATCH, [make()])


def test_neurons_that_do_not_exist_are_refused():
    with pytest.raises(InputError, match="the neuron of site L0 post neuron 16 must be from 0 to 15; got 16"):
        run_with(random_model(), BATCH, [Zero(site=Site(kind="post", layer=0, neuron=16))])


def test_sources_that_do_not_fit_are_refused():
    model = random_model()
    short = Named(name="short", value=Batch(**{f: getattr(BATCH, f)[:, :7] for f in ("inputs", "targets", "scored")}))
    with pytest.raises(InputError, match=r"short and the batch must be of one length.*; got 7 and 9 tokens"):
        run_with(model, BATCH, [Patch(site=HEAD, source=short)])
    empty = Named(name="empty", value=REFERENCE.value.select(slice(0, 0)))
    with pytest.raises(InputError, match="empty holds no sequence"):
        run_with(model, BATCH, [Mean(site=HEAD, source=empty)])
    fresh = Named(name="fresh", value=REFERENCE.value.select(~REFERENCE.value.latents["is_repeat"]))
    for intervention in (
        Mean(site=HEAD, source=fresh, over="is_repeat"),
        Resample(site=HEAD, source=fresh, match="is_repeat"),
    ):
        with pytest.raises(InputError, match="has no sequence with is_repeat = 1; take a larger one"):
            run_with(model, BATCH, [intervention])


def test_a_stand_in_that_is_no_hooked_model_says_so():
    with pytest.raises(NotImplementedError):
        run_with(Predictor(TASK), BATCH, [])


BRIDGED = [kind for kind in KINDS if kind not in (*ATTENTION, *OF_DICTIONARY)]


@pytest.mark.parametrize("kind", BRIDGED)
def test_a_bridge_with_the_same_weights_gives_the_same(kind):
    model = random_model(n_layers=2)
    bridge = as_bridge(model)
    torch.testing.assert_close(bridge(BATCH.inputs), model(BATCH.inputs), atol=1e-5, rtol=1e-5)
    site = Site(kind=kind, layer=None if "embed" in kind else 1, head=1 if kind in BY_HEAD else None, pos="source_pos")
    for intervention in (Zero(site=site), Mean(site=site, source=REFERENCE), Patch(site=site, source=OTHER)):
        ours, theirs = (run_with(m, BATCH, [intervention]) for m in (model, bridge))
        torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)
