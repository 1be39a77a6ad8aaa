"""`--audit` on the analyses that have parts to audit: a sentence, a table with q, whiskers, and marks on heat maps."""

import numpy as np
import pytest
import xarray as xr

import mnemoscope as ms
from mnemoscope.core.errors import InputError
from mnemoscope.records.record import RECORDS, analyse, records, render_results
from mnemoscope.report.ablation import patching_figure
from mnemoscope.report.audits import audit_figure, audit_sentence, audit_table
from tests.analyses.auditing.planted import null_effects

OPTIONS = {
    "patch": {"n": 64, "kind": "z", "over": ("layer", "head")},
    "edges": {"n": 64, "approximate": False},
    "ablate": {"n": 96},
    "heads": {"n": 48},
    "probe": {"n": 64, "latents": ("target",), "sites": ("resid_post",), "erase": False},
}


@pytest.fixture(scope="module")
def planted():
    effects = null_effects(np.random.default_rng(0), n_cells=16, n=48).reshape(2, 8, 48)
    effects[1, 3] += 2
    coords = {"layer": [0, 1], "head": range(8), "direction": "noising", "metric": "logit_diff"}
    array = xr.DataArray(effects, dims=("layer", "head", "prompt"), coords=coords)
    return ms.audit(array.expand_dims(["direction", "metric"]))


def test_the_sentence_says_what_may_be_claimed(planted):
    assert audit_sentence({"recall": planted}) == (
        "recall, necessity, logit_diff: 1 of 16 heads at q .05, 1 confirmed (L1H3). Confirmed: on prompts that had no "
        "part in the choice; q is over 16 tests (Benjamini and Hochberg); null: effects are symmetric about 0 over "
        "clusters of prompts."
    )


def test_the_sentence_says_where_prompts_are_too_few():
    effects = xr.DataArray(np.ones((20, 12)), dims=("component", "prompt"), coords={"component": range(20)})
    assert "a single part cannot have q below 0.62; take more prompts" in audit_sentence({"all": ms.audit(effects)})


def test_the_sentence_is_about_all_seeds(planted):
    seeds = xr.concat([planted, planted], xr.DataArray([3, 4], dims="seed", name="seed"))
    assert "1 [1, 1] of 16 heads a seed at q .05, 1 [1, 1] confirmed" in audit_sentence({"recall": seeds})
    first = audit_table({"recall": seeds}).rows[0]
    assert first[0] == "L1H3"
    assert first[5:7] == ["2 of 2", "2 of 2"]


def test_the_table_has_intervals_p_q_and_what_is_left(planted):
    table = audit_table({"recall": planted})
    first = dict(zip(table.header, table.rows[0], strict=True))
    assert first["part"] == "L1H3"
    assert (first["found"], first["confirmed"]) == ("yes", "yes")
    assert first["effect"].interval == "95 %"
    assert first["effect left"].low > 1
    assert first["effect left"].mean == float(planted.held_out_effect.sel(layer=1, head=3).item())
    assert len(table.rows) == 5


def test_the_figure_has_whiskers(planted):
    figure = audit_figure({"recall": planted})
    chose, left = figure.data
    assert chose.error_x.array[0] > 0
    assert left.marker.symbol[0] == "circle"
    assert set(left.marker.symbol[1:]) == {"circle-open"}


def test_heat_maps_are_marked_where_an_audit_found(planted):
    ratio = xr.zeros_like(planted.effect).expand_dims(seed=[0])
    seeds = planted.expand_dims(seed=[0])
    figure = patching_figure({"recall": ratio.to_dataset(name="ratio")}, "logit_diff", {"recall": seeds})
    texts = figure.data[0].text
    assert texts[1][3] == "0.00 ✓"
    assert sum("✓" in cell for row in texts for cell in row) == 1


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_analyses_are_audited_on_demand(name, learned_pair):
    measured = analyse(name, learned_pair, audit=True, **OPTIONS[name])
    audits = {key: each for key, each in measured.results.items() if key.startswith("audit")}
    assert audits
    for audit in audits.values():
        assert ((audit.p > 0) & (audit.p <= 1) | audit.p.isnull()).all()
        assert "prompt" not in audit.dims
    shown = render_results(records()[name], measured)
    assert "confirmed" in shown.finding
    assert "null: " in shown.finding
    assert shown.tables[0].name == "audit"
    assert any("95 % intervals" in caption for caption, _ in shown.figures)


@pytest.mark.full
@pytest.mark.parametrize("method", ["eap", "eap-ig"])
def test_estimates_of_edges_are_audited_without_patches(method, learned_pair, monkeypatch):
    monkeypatch.setattr(ms, "patch_edges", lambda *args, **options: pytest.fail("an edge was patched"))
    options = {"n": 64, "method": method, "skills": ("recall",), "metrics": ("logit_diff",)}
    measured = analyse("edges", learned_pair[:1], audit=True, **options)
    assert not any(key.startswith(("estimates", "errors")) for key in measured.results)
    shown = render_results(records()["edges"], measured)
    assert "confirmed" in shown.finding
    assert f"single edges, estimated by {method.upper()}," in shown.finding
    assert f"{method.upper()} estimates of single edges" in shown.tables[1].title
    assert any("no edge was patched" in note for note in shown.notes)
    audit, values = measured.results["audit_recall"], measured.results["edges_recall"]
    assert audit.effect.sizes["edge"] == values.sizes["edge"]


@pytest.mark.parametrize(
    ("options", "given"),
    [({"effect": "direct"}, "--effect direct"), ({"freeze": ("attention",)}, "--freeze attention")],
)
def test_estimates_are_of_total_effects(options, given, learned_pair):
    with pytest.raises(InputError, match=f"--method eap estimates total effects with nothing frozen; got {given}"):
        analyse("edges", learned_pair[:1], n=8, method="eap", **options)


def test_the_model_before_training_is_a_null_too(learned_pair):
    measured = analyse("patch", learned_pair[:1], audit=True, audit_null="untrained", **OPTIONS["patch"])
    assert any((each.confirmed == 1).any() for key, each in measured.results.items() if key.startswith("audit"))


def test_the_plain_results_stay_as_they_are(learned_pair):
    for name in ("patch", "ablate"):
        plain = analyse(name, learned_pair[:1], **OPTIONS[name]).results
        audited = analyse(name, learned_pair[:1], audit=True, **OPTIONS[name]).results
        for key, each in plain.items():
            xr.testing.assert_identical(each, audited[key])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"audit_null": "signs"}, "--audit-null and --audit-clusters are about an audit; add --audit"),
        ({"audit": True, "audit_rate": 2.0}, "--audit-rate must be from 1e-06 to 0.5; got 2.0"),
        ({"audit": True, "n": 4}, "an audit needs at least 6 clusters of prompts"),
        ({"audit": True, "audit_clusters": "subject"}, "a latent must be one of"),
    ],
)
def test_wrong_options_of_an_audit_are_refused(options, said, learned_pair):
    with pytest.raises(InputError, match=said):
        analyse("patch", learned_pair[:1], **{**OPTIONS["patch"], **options})


def test_every_audited_analysis_refuses_them():
    assert all(RECORDS.get(name).check is not None for name in records() if name in OPTIONS)
