"""Path patching: edges and paths of circuits that are known, and what is refused."""

import numpy as np
import pytest
import torch
import xarray as xr

from mnemoscope.analyses.patching import effects, patch, patch_edges, patch_paths
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import KL, LOG_PROB, LOGIT_DIFF
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.site import Edge, Site
from mnemoscope.core.specification import ModelSpec
from mnemoscope.interventions.graph import model_edges
from mnemoscope.models.building import build
from mnemoscope.models.constructed import induction, induction_batch
from mnemoscope.systems.tiny_recall.constructed import dissociated, store_and_match
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.split_hooks import mean_logit_difference, random_pairs, split
from tests.support import foreign_model, global_generators_untouched, reads_back, seeded

H00, H01, H10, H11 = (Site(kind="z", layer=layer, head=head) for layer in (0, 1) for head in (0, 1))
MLP0, MLP1 = (Site(kind="mlp_out", layer=layer) for layer in (0, 1))
INPUT = Site(kind="resid_pre", layer=0)


def lookup_pairs(skill, kind, n=24):
    task = PermutationLookup(split_seed=0, repeat_ratio=float(skill == "recall"))
    batch = task.sample(200, split="test", generator=seeded(1))
    batch = batch.select(task.skills(batch)[skill][:, -1].nonzero()[:n, 0])
    return PromptPairs.from_task(task, batch, kind=kind).read_last()


def needed(model, pairs, *, above=0.5, **changes):
    """Edges whose necessity is above a half."""
    found = effects(patch_edges(model, pairs, **changes)).ratio.sel(direction="noising", metric="logit_diff")
    return set(found.edge.values[(found > above).values])


class TestKnownCircuits:
    def test_elimination_of_one_head(self):
        pairs = lookup_pairs("elimination", "exchange_answer")
        assert needed(dissociated(), pairs) == {"input → L0H0 v", "L0H0 → logits"}

    def test_recall_of_another_head_and_the_mlp(self):
        pairs = lookup_pairs("recall", "move_repeat")
        expected = {"L0H1 → L0 MLP", "L0 MLP → logits"}
        assert expected <= needed(store_and_match(), pairs)
        assert "L0H0 → L0 MLP" not in needed(store_and_match(), pairs)

    def test_what_stood_where_comes_from_the_other_head(self):
        found = needed(store_and_match(), lookup_pairs("recall", "exchange_answer"))
        assert {"input → L0H0 v", "L0H0 → L0 MLP", "L0 MLP → logits"} <= found
        assert "L0H1 → L0 MLP" not in found

    def test_the_induction_head_reads_the_previous_token_head_through_its_keys(self):
        n_tokens, n_ctx = 12, 8
        clean = induction_batch(16, n_tokens=n_tokens, n_ctx=n_ctx, generator=seeded(0))
        corrupted = induction_batch(16, n_tokens=n_tokens, n_ctx=n_ctx, generator=seeded(1))
        scored = (torch.arange(n_ctx) == n_ctx - 2).expand(16, -1)
        pairs = PromptPairs(clean=clean, corrupted=corrupted, name="other tokens").read_at(scored)
        found = needed(induction(n_tokens, n_ctx), pairs, above=0.3)
        assert found == {
            "input → L0H0 v",
            "L0H0 → L1H0 k",
            "input → L1H0 q",
            "input → L1H0 v",
            "L1H0 → logits",
        }

    def test_untrained_models_tell_nothing(self):
        pairs = lookup_pairs("elimination", "exchange_answer", n=64)
        model = build(ModelSpec(d_model=16, n_heads=2), d_vocab=6, n_ctx=9, seed=3)
        with pytest.raises(InputError, match="no metric tells clean from corrupted"):
            effects(patch_edges(model, pairs))


class TestEffects:
    model = foreign_model(normalization_type="LN", dtype="float64")
    pairs = random_pairs(n=6, seed=2)

    def test_all_edges_into_the_logits_of_one_writer_equal_patching_it_where_it_only_writes_there(self):
        """The last MLP has one reader, so that its edge is its output."""
        edge = patch_edges(self.model, self.pairs, chosen=[Edge(writer=MLP1)]).value[:, :, 0]
        node = patch(self.model, self.pairs, kind="mlp_out", over=("layer",), only={"layer": [1]}).value[:, :, 0]
        assert np.allclose(edge, node, atol=1e-9)

    def test_total_and_direct_agree_where_nothing_lies_between(self):
        chosen = [edge for edge in model_edges(self.model) if edge.reader in (MLP1, "logits")]
        total, direct = (patch_edges(self.model, self.pairs, chosen=chosen, effect=e) for e in ("total", "direct"))
        assert np.allclose(total.value, direct.value, atol=1e-9)
        assert total.attrs["effect"] == "total"

    def test_direct_effect_by_hand(self):
        """The head's new output goes to the logits; the MLP after it keeps its old one."""
        edge = Edge(writer=MLP0, reader=H10, through="v")
        result = patch_edges(self.model, self.pairs, chosen=[edge], effect="direct", directions=["noising"])
        total = patch_edges(self.model, self.pairs, chosen=[edge], directions=["noising"])
        with split(self.model):
            caches = [self.model.run_with_cache(side.inputs)[1] for side in (self.pairs.clean, self.pairs.corrupted)]
            old, new = (cache["blocks.0.hook_mlp_out"] for cache in caches)

            def to_head(x, hook):
                x = x.clone()
                x[:, :, 0] += new - old
                return x

            with self.model.hooks(fwd_hooks=[("blocks.1.hook_v_input", to_head)]):
                _, changed = self.model.run_with_cache(self.pairs.clean.inputs)
        z = changed["blocks.1.attn.hook_z"][:, :, 0] - caches[0]["blocks.1.attn.hook_z"][:, :, 0]
        stream = caches[0]["blocks.1.hook_resid_post"] + z @ self.model.blocks[1].attn.W_O[0]
        expected = mean_logit_difference(self.pairs, self.model.unembed(self.model.ln_final(stream)))
        assert np.allclose(result.value[0, 0, 0], expected.detach(), atol=1e-9)
        assert abs(total.value - result.value).max() > 1e-3  # the MLP after the head matters

    def test_a_head_through_all_three_of_its_inputs(self):
        whole = patch_edges(self.model, self.pairs, chosen=[Edge(writer=H00, reader=H10)])
        patched = patch_paths(self.model, self.pairs, {"p": [Edge(writer=H00, reader=H10), Edge(writer=H10)]})
        direct = patch_edges(self.model, self.pairs, chosen=[Edge(writer=H00, reader=H10)], effect="direct")
        assert np.allclose(patched.value, direct.value, atol=1e-12)
        assert whole.through.values.tolist() == [""]

    def test_frozen_attention_stills_queries_and_keys(self):
        chosen = [edge for edge in model_edges(self.model) if edge.reader == H10]
        result = patch_edges(self.model, self.pairs, chosen=chosen, freeze=["attention"], directions=["noising"])
        moved = abs(result.value - result.clean).max(("direction", "metric", "prompt"))
        assert (moved[result.through != "v"] < 1e-12).all()
        assert (moved[result.through == "v"] > 1e-4).all()
        assert result.attrs["frozen"] == "attention"


class TestPaths:
    model = foreign_model(normalization_type="LN", dtype="float64")
    pairs = random_pairs(n=4, seed=3)

    def test_a_path_of_one_edge_is_that_edge(self):
        path = patch_paths(self.model, self.pairs, {"head": [Edge(writer=H01)]})
        assert np.allclose(path.value, patch_edges(self.model, self.pairs, chosen=[Edge(writer=H01)]).value, atol=1e-12)

    def test_all_paths_add_up_where_everything_is_linear(self):
        """Attention only, patterns and scales frozen: what a head does is the sum over the paths from it."""
        model = foreign_model(normalization_type="LN", attn_only=True, dtype="float64")
        heads = [Edge(writer=H00, reader=head, through="v") for head in (H10, H11)]
        paths = {"direct": [Edge(writer=H00)], **{str(edge): [edge, Edge(writer=edge.reader)] for edge in heads}}
        options = {"freeze": ["attention", "layer_norm"], "directions": ["noising"]}
        parts = patch_paths(model, self.pairs, paths, **options)
        by_path = parts.value - parts.clean
        one = patch_edges(model, self.pairs, chosen=[Edge(writer=H00), *heads], **options)
        assert np.allclose(by_path.sum("path"), (one.value - one.clean).sum("edge"), atol=1e-9)

    def test_a_path_goes_on_from_any_head_that_shares_the_keys_and_values(self):
        """Patterns frozen, no norms or MLPs: what arrives at shared values reaches logits by each of their heads."""
        shared = foreign_model(n_heads=4, n_key_value_heads=2, normalization_type=None, attn_only=True, dtype="float64")
        options = {"freeze": ["attention"], "directions": ["noising"]}
        values = Edge(writer=H01, reader=Site(kind="v", layer=1, head=0), through="v")
        heads = [Site(kind="z", layer=1, head=head) for head in range(4)]
        paths = {str(head): [values, Edge(writer=head)] for head in heads[:2]}
        parts = patch_paths(shared, self.pairs, paths, **options)
        whole = patch_edges(shared, self.pairs, chosen=[values], effect="direct", **options)
        assert abs(parts.value - parts.clean).min() > 1e-6
        assert np.allclose((parts.value - parts.clean).sum("path"), (whole.value - whole.clean)[..., 0, :], atol=1e-9)
        with pytest.raises(InputError, match="every edge of a path starts where the one before has ended"):
            patch_paths(shared, self.pairs, {"of other values": [values, Edge(writer=heads[2])]})

    @pytest.mark.parametrize(
        "path",
        [[], [Edge(writer=H00, reader=MLP0)], [Edge(writer=H00, reader=MLP0), Edge(writer=H01)]],
        ids=["empty", "ends early", "gap"],
    )
    def test_that_do_not_lead_to_the_logits_are_refused(self, path):
        with pytest.raises(InputError, match="every edge of a path starts where the one before has ended"):
            patch_paths(self.model, self.pairs, {"bad": path})


class TestResult:
    model, pairs = foreign_model(normalization_type="LN"), random_pairs(n=3)

    def test_is_labelled(self, tmp_path):
        with global_generators_untouched():
            result = patch_edges(self.model, self.pairs, metrics=[LOG_PROB, KL])
        assert result.value.dims == ("direction", "metric", "edge", "prompt")
        assert dict(result.sizes) == {"direction": 2, "metric": 2, "edge": 46, "prompt": 3}
        at = result.sel(edge="L0H1 → L1H0 k")
        assert (at.writer, at.reader, at.through) == ("L0H1", "L1H0", "k")
        assert result.attrs["pairs"] == "random"
        assert reads_back(result, tmp_path / "result.nc")

    def test_makes_effects_as_patching_does(self):
        result = effects(patch_edges(self.model, self.pairs, metrics=[LOGIT_DIFF]), refuse=False)
        assert isinstance(result, xr.Dataset)
        assert result.effect.dims == ("direction", "metric", "edge", "prompt")

    def test_identical_prompts_change_nothing(self):
        same = PromptPairs(clean=self.pairs.clean, corrupted=self.pairs.clean, name="same")
        result = patch_edges(self.model, same)
        assert np.allclose(result.value, result.clean.expand_dims(direction=2, edge=46, axis=(0, 2)), atol=1e-5)

    def test_wrong_arguments_are_refused(self):
        with pytest.raises(InputError, match="chosen must name at least one edge, each once"):
            patch_edges(self.model, self.pairs, chosen=[])
        with pytest.raises(InputError, match="metrics must name at least one"):
            patch_edges(self.model, self.pairs, metrics=[])
        with pytest.raises(InputError, match="the model has no edge L1H0 → logits"):
            patch_edges(foreign_model(n_layers=1), self.pairs, chosen=[Edge(writer=H10)])


class TestWays:
    model, pairs = foreign_model(normalization_type="LN", dtype="float64"), random_pairs(n=4, seed=4)
    grouped = foreign_model(normalization_type="RMS", n_heads=4, n_key_value_heads=2, dtype="float64")

    @pytest.mark.parametrize("effect", ["total", "direct"])
    @pytest.mark.parametrize("pos", [None, 1, (0, 4)])
    @pytest.mark.parametrize("model", [model, grouped], ids=["one key per head", "grouped heads"])
    def test_the_fast_way_and_hooks_give_the_same(self, model, effect, pos):
        chosen = [edge.at(pos) for edge in model_edges(model, embeddings="apart")]
        fast, slow = (
            patch_edges(model, self.pairs, chosen=chosen, effect=effect, method=method)
            for method in ("stream", "hooks")
        )
        assert np.allclose(fast.value, slow.value, atol=1e-9)
        assert (fast.attrs["method"], slow.attrs["method"]) == ("stream", "hooks (asked for)")

    def test_says_why_it_is_not_fast(self):
        frozen = patch_edges(self.model, self.pairs, freeze=["layer_norm"])
        assert frozen.attrs["method"] == "hooks (parts are frozen)"
        with pytest.raises(InputError, match="method must be 'auto' or 'hooks' here, because parts are frozen"):
            patch_edges(self.model, self.pairs, freeze=["layer_norm"], method="stream")
        capped = foreign_model(clip_qkv=1.0)
        assert "clip_qkv is 1.0" in patch_edges(capped, self.pairs).attrs["method"]


class TestBetween:
    """Against the procedure of Wang et al., in runs of its own: heads frozen, then the receiver's input put back."""

    model, pairs = foreign_model(normalization_type="LN", n_layers=3, dtype="float64"), random_pairs(n=3, seed=6)
    sender = Site(kind="z", layer=0, head=1)

    def published(self, receiver, method):
        clean, other = (self.model.run_with_cache(side.inputs)[1] for side in (self.pairs.clean, self.pairs.corrupted))

        def frozen(z, hook):
            z = clean[hook.name].clone()
            if hook.name == self.sender.hook:
                z[:, :, self.sender.head] = other[hook.name][:, :, self.sender.head]
            return z

        hooks = [(f"blocks.{layer}.attn.hook_z", frozen) for layer in range(3)]
        with self.model.hooks(fwd_hooks=hooks):
            logits, cache = self.model.run_with_cache(self.pairs.clean.inputs)
        if receiver is None:
            return logits
        name = f"blocks.{receiver.layer}.attn.hook_{method}"

        def put(x, hook):
            x = x.clone()
            x[:, :, receiver.head] = cache[name][:, :, receiver.head]
            return x

        return self.model.run_with_hooks(self.pairs.clean.inputs, fwd_hooks=[(name, put)])

    @pytest.mark.parametrize(("receiver", "method"), [(None, None), (H10, "q"), (Site(kind="z", layer=2, head=0), "v")])
    def test_gives_the_published_numbers(self, receiver, method):
        edge = Edge(writer=self.sender, reader=receiver or "logits", through=method)
        result = patch_edges(self.model, self.pairs, chosen=[edge], between="mlps", directions=["noising"])
        with torch.no_grad():
            expected = mean_logit_difference(self.pairs, self.published(receiver, method))
        assert np.allclose(result.value[0, 0, 0], expected, atol=1e-9)
        alone = patch_edges(self.model, self.pairs, chosen=[edge], directions=["noising"])
        assert abs(alone.value - result.value).max() > 1e-3
        assert result.attrs["method"] == "hooks (MLPs pass the patch on)"

    def test_is_the_edge_where_there_is_no_mlp(self):
        model = foreign_model(attn_only=True, dtype="float64")
        chosen = [Edge(writer=H00, reader=H10, through="k")]
        one, other = (patch_edges(model, self.pairs, chosen=chosen, between=b) for b in ("nothing", "mlps"))
        assert np.allclose(one.value, other.value, atol=1e-9)


def test_a_table_that_does_not_fit_is_refused_before_it_is_made():
    model, pairs = foreign_model(), random_pairs()
    with pytest.raises(InputError, match=r"edges carry in .*; choose fewer edges, .* or allow max_bytes=\d+") as found:
        patch_edges(model, pairs, method="hooks", max_bytes=1000)
    enough = int(str(found.value).rpartition("=")[2])
    small = patch_edges(model, pairs, method="hooks", max_bytes=enough)
    assert np.allclose(small.value, patch_edges(model, pairs, method="hooks").value, atol=1e-6)
