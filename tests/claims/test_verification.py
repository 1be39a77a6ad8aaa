"""Evidence that was edited is refused by name, and a share of it is measured again."""

import json
from pathlib import Path

import pytest
import torch

from mnemoscope.claims.claim import Claim
from mnemoscope.claims.measures import DrawWork, MeasureCall
from mnemoscope.claims.store import entry_of
from mnemoscope.claims.trials import run_trials
from mnemoscope.claims.verification import edited_entries, measure_again, note_verified
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration
from mnemoscope.models.building import build
from mnemoscope.models.checkpoint import save_checkpoint
from mnemoscope.models.run import create_run, finish_run
from mnemoscope.models.subjects import Subject

D4 = Configuration(preset="d4")


def drawn(draw: int) -> dict[str, float]:
    return {"effect": 1.0 + draw}


def last_loss(subject: Subject) -> dict[str, float]:
    assert subject.progress is not None
    return {"effect": float(subject.progress.test_loss[-1])}


DRAWS = Claim(
    id="X",
    statement="draws are positive",
    source="ours",
    quantifier="most",
    margin=0.0,
    replicate="draw",
    measure=drawn,
)
WORK = [DrawWork(drawn, draw, calls=(MeasureCall(drawn),)) for draw in range(16)]


@pytest.fixture
def store(tmp_path):
    place = tmp_path / "measured"
    (ruling,) = run_trials([DRAWS], [], store=place)
    assert ruling.verdict.outcome == "SUPPORTED"
    return place


def set_effects_to_zero(store: Path, *, sealed: bool) -> None:
    for file in store.rglob("*.json"):
        content = json.loads(file.read_text())
        for key, entry in content.items():
            entry["measured"] = {"effect": 0.0}
            if sealed:
                name = file.relative_to(store).with_suffix("").as_posix()
                content[key] = entry_of(name, key, entry["stamp"], entry["measured"])
        file.write_text(json.dumps(content))


def test_a_store_whose_effects_were_set_to_zero_is_refused_by_name(store):
    set_effects_to_zero(store, sealed=False)
    with pytest.raises(InputError, match=r"draws/.*-\d+\.json: the result of .*drawn.* was edited") as refused:
        run_trials([DRAWS], [], store=store)
    assert "\n" not in str(refused.value)
    assert len(edited_entries(WORK, store)) == 16


def test_an_entry_without_a_digest_is_measured_again(store):
    for file in store.rglob("*.json"):
        content = json.loads(file.read_text())
        file.write_text(json.dumps({key: {"stamp": each["stamp"], "measured": {"effect": 0.0}}
                                    for key, each in content.items()}))  # fmt: skip
    (ruling,) = run_trials([DRAWS], [], store=store)
    assert ruling.verdict.effect == 8.5


def test_an_entry_of_another_draw_is_noticed(store):
    one, other = sorted(store.rglob("*.json"))[:2]
    one.write_text(other.read_text())
    with pytest.raises(InputError, match=one.name):
        run_trials([DRAWS], [], store=store)


def test_a_share_of_what_is_kept_is_measured_again(store):
    found, n_kept = measure_again(WORK, store, share=0.1, seed=0)
    assert (len(found), n_kept) == (2, 16)
    assert all(each.agrees and each.difference == 0 for each in found)
    again, _ = measure_again(WORK, store, share=0.1, seed=0)
    assert [each.name for each in again] == [each.name for each in found]
    assert len(measure_again(WORK, store, share=1, seed=0)[0]) == 16
    assert measure_again(WORK, store, share=0, seed=0) == ([], 16)
    with pytest.raises(InputError, match="share"):
        measure_again(WORK, store, share=2, seed=0)


def test_an_edit_with_a_digest_of_its_own_is_noticed_when_it_is_measured_again(store):
    set_effects_to_zero(store, sealed=True)
    (ruling,) = run_trials([DRAWS], [], store=store)
    assert ruling.verdict.effect == 0.0, "a digest alone does not show it"
    found, _ = measure_again(WORK, store, share=0.1, seed=0)
    assert not any(each.agrees for each in found)


def test_a_verdict_says_what_was_verified_as_long_as_its_evidence_stays(store):
    def verified() -> str:
        return run_trials([DRAWS], [], store=store)[0].verified

    assert verified() == "no measurement was taken again (`mnemoscope claims verify`)"
    note_verified({"X": WORK}, store, "2 of 16 measurements taken again (seed 0) and equal")
    assert verified().startswith("2 of 16 measurements taken again (seed 0) and equal (")
    set_effects_to_zero(store, sealed=True)
    assert verified() == "no measurement was taken again (`mnemoscope claims verify`)"


@pytest.fixture
def runs(tmp_path):
    found = []
    for seed in range(16):
        spec = D4.spec(seed)
        run = create_run(tmp_path / "runs" / f"seed-{seed:02d}", spec)
        model = build(spec.model, d_vocab=spec.task.d_vocab, n_ctx=spec.task.n_ctx, seed=seed)
        with torch.no_grad():
            model.unembed.b_U[1] = 2.0
        save_checkpoint(model, run.checkpoint_path(spec.recipe.n_steps), step=spec.recipe.n_steps)
        line = {"step": spec.recipe.n_steps, "train_loss": 0.0, "test_loss": 0.5}
        (run.path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
        finish_run(run, spec.recipe.n_steps)
        found.append(run)
    return found


LOSSES = Claim(
    id="Y",
    statement="runs end with a loss above 0.1",
    source="ours",
    quantifier="most",
    margin=0.1,
    units={"narrow": D4},
    measure=last_loss,
    develops=False,
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("metrics.jsonl", '"test_loss": 0.5', '"test_loss": 0.0'), ("run.json", '"torch": "', '"torch": "0.4 was ')],
)
def test_a_trial_names_the_file_of_a_run_that_was_edited(runs, name, old, new):
    (ruling,) = run_trials([LOSSES], runs)
    assert ruling.verdict.outcome == "SUPPORTED"
    assert ruling.verified.startswith("files of 16 runs are as their digests say")
    file = runs[5].path / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=rf"seed-05/{name} was edited after it was written"):
        run_trials([LOSSES], runs)


def test_several_claims_of_one_call_have_a_rate_of_false_discoveries(tmp_path):
    both = [DRAWS, Claim(**{**vars(DRAWS), "id": "Z", "margin": 100.0})]
    rulings = run_trials(both, [], store=tmp_path)
    assert [each.verdict.outcome for each in rulings] == ["SUPPORTED", "REFUTED"]
    assert all(each.false_discovery_rate is not None for each in rulings)
    assert run_trials(both[:1], [], store=tmp_path)[0].false_discovery_rate is None
