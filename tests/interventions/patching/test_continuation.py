"""The fast way and the way through hooks against each other and against TransformerLens's own patching."""

from itertools import combinations

import pytest
import torch
from transformer_lens import patching

from mnemoscope.analyses.patching import patch
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import LOG_PROB, LOGIT_DIFF, METRICS, at_target
from mnemoscope.core.site import ATTENTION, EMBEDDINGS, OF_DICTIONARY
from mnemoscope.engine.architecture import resumable_transformer
from mnemoscope.engine.transformer import Transformer
from mnemoscope.interventions.cells import AXES, grid
from tests.bridge import HEARD_BY_NATIVE
from tests.interventions.patching.prompts import OTHERS, PLAIN, REPRESENTED, model, prompt_pairs
from tests.support import foreign_model

BY_LAYER, BY_POS = ("layer",), ("layer", "pos")
THEIRS = {
    ("resid_pre", BY_POS): "resid_pre",
    ("resid_mid", BY_POS): "resid_mid",
    ("attn_out", BY_POS): "attn_out",
    ("mlp_out", BY_POS): "mlp_out",
    **{(kind, (*BY_POS, "head")): f"attn_head_{kind}_by_pos" for kind in "qkv"},
    ("z", (*BY_POS, "head")): "attn_head_out_by_pos",
    ("pattern", ("layer", "head", "query")): "attn_head_pattern_by_pos",
    ("pattern", ("layer", "head", "query", "key")): "attn_head_pattern_dest_src_pos",
    **{(kind, ("layer", "head")): f"attn_head_{kind}_all_pos" for kind in ("q", "k", "v", "pattern")},
    ("z", ("layer", "head")): "attn_head_out_all_pos",
}


def theirs(model, pairs, name):
    answer, foil = pairs.answer[:, -1], pairs.foil[:, -1]
    model.eval()  # TransformerLens 4 patches no other
    _, clean = model.run_with_cache(pairs.clean.inputs)

    def metric(logits):
        return (at_target(logits[:, -1], answer) - at_target(logits[:, -1], foil)).mean()

    with torch.no_grad():
        function = getattr(patching, f"get_act_patch_{name}")
        return function(model, pairs.corrupted.inputs, clean, metric)


def exists(model, kind):
    missing = {"mlp_out", "pre", "post", "resid_mid"} if model.cfg.attn_only else set()
    without_middle = {"resid_mid"} if model.cfg.parallel_attn_mlp else set()
    without_positions = {"pos_embed"} if model.cfg.positional_embedding_type == "rotary" else set()
    return kind not in {*missing, *without_middle, *without_positions}


@pytest.fixture(autouse=True)
def no_progress_bar(monkeypatch):
    monkeypatch.setattr(patching, "tqdm", iter)


@pytest.mark.parametrize("name", [*PLAIN, *REPRESENTED])
def test_equal_to_transformer_lens(name):
    subject, pairs = model(name), prompt_pairs(n_pos=4)
    for (kind, over), function in THEIRS.items():
        if exists(subject, kind):
            ours = patch(subject, pairs, kind=kind, over=over, directions=["denoising"], method="stream")
            expected = theirs(subject, pairs, function)
            assert torch.allclose(torch.tensor(ours.value.values[0, 0]).mean(-1).float(), expected, atol=1e-5), kind


@pytest.mark.parametrize("name", ["bidirectional", "shortformer", "solu"])
def test_other_models_through_hooks_too(name):
    subject, pairs = model(name), prompt_pairs(n_pos=4)
    for kind, over in (("resid_pre", BY_POS), ("k", (*BY_POS, "head")), ("z", ("layer", "head"))):
        ours = patch(subject, pairs, kind=kind, over=over, directions=["denoising"])
        expected = theirs(subject, pairs, THEIRS[kind, over])
        assert ours.attrs["method"].startswith("hooks")
        assert torch.allclose(torch.tensor(ours.value.values[0, 0]).mean(-1).float(), expected, atol=1e-5), kind


SOME = ("resid_mid", "k", "pre", "scores", "pos_embed")


@pytest.mark.parametrize(
    ("name", "scored", "differ"),
    [
        ("LN", (1, 3), (2, 3)),
        ("none", (4,), None),
        ("LNPre", (0, 3), (1,)),
        ("RMS", (0, 1, 2, 3, 4), None),
        ("attention only", (2, 4), (1, 2, 3)),
        *((name, (2, 4), (1, 2, 3)) for name in REPRESENTED),
    ],
)
def test_both_ways_agree_everywhere(name, scored, differ):
    subject, pairs = model(name), prompt_pairs(n=2, n_pos=5, scored=scored, differ=differ)
    only = {"layer": [0, subject.cfg.n_layers - 1] if subject.cfg.n_layers > 1 else [0], "neuron": [0, 7]}
    for kind, axes in AXES.items():
        everything = name in ("LN", "attention only", "like Llama", "like Pythia")
        if kind in OF_DICTIONARY or not exists(subject, kind) or (not everything and kind not in SOME):
            continue
        if kind == "pre" and subject.cfg.gated_mlp:
            continue
        first = () if kind in EMBEDDINGS else ("layer",)
        for over in (first + rest for r in range(len(axes) + 1) for rest in combinations(axes, r)):
            if "key" in over and ("query" not in over or "head" not in over):
                continue
            ways = [
                patch(
                    subject,
                    pairs,
                    kind=kind,
                    over=over,
                    metrics=METRICS,
                    method=method,
                    only={axis: at for axis, at in only.items() if axis in over},
                )
                for method in ("stream", "hooks")
            ]
            assert abs(ways[0].value - ways[1].value).max() < 1e-5, (kind, over)


@pytest.mark.parametrize("name", [*PLAIN, *REPRESENTED])
@torch.no_grad()
def test_the_engine_gives_the_logits_of_models_that_it_represents(name):
    subject, tokens = model(name), prompt_pairs().clean.inputs
    weights = resumable_transformer(subject, 6)
    assert not isinstance(weights, str)
    torch.testing.assert_close(weights(tokens), subject(tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [*({"act_fn": name} for name in ("gelu", "gelu_fast", "gelu_pytorch_tanh")), {"normalization_type": "RMSPre"}],
    ids=lambda changes: next(iter(changes.values())),
)
def test_every_activation_function_and_normalisation_that_is_accepted(changes):
    subject, pairs = foreign_model(**changes), prompt_pairs(scored=(3, 5))
    fast, slow = (patch(subject, pairs, kind="pre", over=BY_POS, method=method) for method in ("stream", "hooks"))
    assert abs(fast.value - slow.value).max() < 1e-5


@pytest.mark.parametrize("name", OTHERS)
def test_models_that_cannot_be_resumed_are_told_apart(name):
    assert isinstance(resumable_transformer(model(name), 6), str)


def test_what_a_gate_decides_is_patched_through_hooks():
    subject, pairs = model("like Llama"), prompt_pairs()
    result = patch(subject, pairs, kind="pre", over=BY_POS)
    assert result.attrs["method"] == "hooks (in a gated MLP the effect of pre depends on what it gates)"
    assert patch(subject, pairs, kind="post", over=BY_POS).attrs["method"] == "stream"


def test_a_forward_pass_that_is_another_one_is_noticed():
    subject, pairs = foreign_model(), prompt_pairs()
    whole = subject.unembed.forward
    subject.unembed.forward = lambda x: 2 * whole(x)
    result = patch(subject, pairs, kind="resid_pre", over=BY_POS)
    assert result.attrs["method"] == "hooks (its forward pass is a different one)"
    with pytest.raises(InputError, match="method must be 'auto' or 'hooks' for this model, because its forward pass"):
        patch(subject, pairs, kind="resid_pre", over=BY_POS, method="stream")


def test_hooks_of_the_user_stay_and_act():
    subject, pairs = foreign_model(), prompt_pairs()
    plain = patch(subject, pairs, kind="resid_mid", over=BY_POS)
    subject.add_hook("blocks.0.hook_resid_mid", lambda x, hook: 2 * x)
    hooked = patch(subject, pairs, kind="resid_mid", over=BY_POS, directions=["denoising"])
    assert hooked.attrs["method"] == "hooks (it carries hooks)"
    assert abs(hooked.value - plain.value).max() > 0.1
    expected = theirs(subject, pairs, "resid_mid")
    assert torch.allclose(torch.tensor(hooked.value.values[0, 0]).mean(-1).float(), expected, atol=1e-5)
    assert len(subject.blocks[0].hook_resid_mid.fwd_hooks) == 1


@pytest.mark.parametrize("method", ["stream", "hooks"])
def test_patching_a_run_with_itself_changes_nothing(method):
    subject, pairs = foreign_model(), prompt_pairs()
    same = type(pairs)(clean=pairs.clean, corrupted=pairs.clean, name="same")
    for kind in ("resid_pre", "q", "pattern", "post"):
        result = patch(subject, same, kind=kind, over=("layer",), only={"layer": [1]}, metrics=METRICS, method=method)
        assert (result.value == result.clean).all(), kind


def test_a_local_patch_is_exact_where_it_is_read():
    subject = foreign_model()
    pairs = prompt_pairs(scored=(2, 4))
    last = patch(subject, pairs, kind="resid_post", over=("layer",), only={"layer": [1]})
    assert abs(last.value.sel(direction="noising", layer=1) - last.corrupted).max() < 1e-5
    assert abs(last.value.sel(direction="denoising", layer=1) - last.clean).max() < 1e-5
    by_pos = patch(subject, pairs.read_last(), kind="resid_post", over=BY_POS, only={"layer": [1]}).squeeze("layer")
    assert abs(by_pos.value.sel(direction="noising", pos=4) - by_pos.corrupted).max() < 1e-5
    others = by_pos.value.sel(direction="noising", pos=[0, 1, 2, 3, 5])
    assert (others == by_pos.clean).all()


@pytest.mark.parametrize("method", ["stream", "hooks"])
def test_denoising_all_that_differs_restores_the_clean_run(method):
    subject, pairs = foreign_model(), prompt_pairs(differ=(2,), scored=(3, 5))
    result = patch(subject, pairs, kind="resid_pre", over=BY_POS, only={"layer": [0]}, metrics=METRICS, method=method)
    at_all = patch(subject, pairs, kind="embed", over=(), metrics=METRICS, method=method)
    denoised = result.value.sel(direction="denoising", layer=0, pos=2)
    assert abs(denoised - result.clean).max() < 1e-5
    assert abs(at_all.value.sel(direction="denoising") - at_all.clean).max() < 1e-5
    assert abs(at_all.value.sel(direction="noising") - at_all.corrupted).max() < 1e-5


def test_what_is_equal_in_both_runs_is_not_run(monkeypatch):
    subject, pairs = foreign_model(), prompt_pairs(differ=(3,))
    starts = []
    whole = Transformer.resume_from_stream
    monkeypatch.setattr(
        Transformer,
        "resume_from_stream",
        lambda w, x, *more: starts.append((6 - x.shape[2], len(x))) or whole(w, x, *more),
    )
    patch(subject, pairs, kind="resid_pre", over=BY_POS, directions=["noising"])
    # layer 0 differs at position 3 only
    assert starts == [(3, 2), (4, 1), (5, 1)]


def test_prompts_are_patched_each_for_itself():
    subject, pairs = foreign_model(), prompt_pairs(n=5, scored=(2, 5))
    whole = patch(subject, pairs, kind="z", over=(*BY_POS, "head"), metrics=[LOGIT_DIFF, LOG_PROB])
    for row in (0, 4):
        alone = patch(subject, pairs.select(torch.tensor([row])), kind="z", over=(*BY_POS, "head"))
        assert abs(alone.value.isel(prompt=0) - whole.value.isel(prompt=row).sel(metric=["logit_diff"])).max() < 1e-5


def test_axes_of_the_grid_and_their_order():
    subject = foreign_model()
    cells = grid(subject, "z", ("head", "layer"), n_pos=4, only={"head": [1]})
    assert cells.by_axis == {"head": (1,), "layer": (0, 1)}
    assert cells.cells == [(1, 0), (1, 1)]
    assert cells.index((1, 0)) == (slice(None), 1)
    assert cells.hook(1) == "blocks.1.attn.hook_z"


@pytest.mark.parametrize(
    ("kind", "over", "only", "words"),
    [
        (
            "resid_pre",
            ("layer", "head"),
            {},
            "over must name axes of resid_pre, each once: layer, pos; got layer, head",
        ),
        ("pattern", ("layer", "pos"), {}, "axes of pattern, each once: layer, head, query, key"),
        ("embed", ("layer",), {}, "axes of embed, each once: pos; got layer"),
        ("z", ("layer", "layer"), {}, "each once"),
        ("z", ("pos",), {}, "over must name layer"),
        ("pattern", ("layer", "key"), {}, "must name query where it names key"),
        ("z", ("layer",), {"head": [0]}, "an axis in only must be one of: layer; got 'head'"),
        ("z", ("layer", "head"), {"head": [2]}, r"only\['head'\] must list numbers from 0 to 1, each once; got \[2\]"),
        ("z", ("layer",), {"layer": []}, r"got \[\]"),
    ],
)
def test_axes_that_a_kind_does_not_have_are_refused(kind, over, only, words):
    with pytest.raises(InputError, match=words):
        grid(foreign_model(), kind, over, n_pos=4, only=only)


def test_activations_that_a_model_does_not_have_are_refused():
    subject = foreign_model(attn_only=True)
    with pytest.raises(InputError, match=r"no resid_mid \(hook point blocks.0.hook_resid_mid\)"):
        patch(subject, prompt_pairs(), kind="resid_mid", over=BY_POS)
    with pytest.raises(InputError, match="no post"):
        patch(subject, prompt_pairs(), kind="post", over=BY_POS)


def test_nan_is_refused():
    subject = foreign_model()
    with torch.no_grad():
        subject.blocks[1].mlp.W_out[3, 2] = torch.nan
    with pytest.raises(InputError, match="W_out holds NaN"):
        patch(subject, prompt_pairs(), kind="z", over=BY_LAYER)


class TestBridge:
    @pytest.fixture(scope="class")
    def bridge(self):
        from transformer_lens.model_bridge import TransformerBridge

        sizes = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 4, "n_ctx": 8, "d_vocab": 50, "d_mlp": 16}
        return TransformerBridge.boot_native({**sizes, "act_fn": "gelu", "normalization_type": "LN", "seed": 0})

    @pytest.mark.parametrize("kind", ["resid_pre", "attn_out", "z", "k", "post", "embed"])
    def test_is_patched_through_hooks(self, bridge, kind):
        pairs = prompt_pairs(differ=(1,))
        over = () if kind == "embed" else ("layer",)
        result = patch(bridge, pairs, kind=kind, over=over)
        assert result.attrs["method"].startswith("hooks (its parameters")
        assert (abs(result.value.sel(direction="noising") - result.clean) > 1e-7).any()
        if kind in ("resid_pre", "embed"):
            noised = result.value.sel(direction="noising")
            assert abs((noised.sel(layer=0) if over else noised) - result.corrupted).max() < 1e-5

    @pytest.mark.parametrize("kind", sorted({*ATTENTION} - HEARD_BY_NATIVE))
    def test_whose_hooks_are_not_heard_is_refused(self, bridge, kind):
        with pytest.raises(InputError, match=r"does not go on with what a hook returns at .* \(blocks\.0\.attn"):
            patch(bridge, prompt_pairs(), kind=kind, over=("layer",))
