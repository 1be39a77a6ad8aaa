"""Claims about random models with one weight set: what is measured is known."""

import json
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mnemoscope.claims import functions, measures, store
from mnemoscope.claims.claim import Claim, Control, Criterion, Gate
from mnemoscope.claims.functions import name_of
from mnemoscope.claims.registration import Superseded, register
from mnemoscope.claims.replicates import admit_runs, expected_seeds
from mnemoscope.claims.trials import run_trials
from mnemoscope.claims.variants import claim_variants, with_configurations
from mnemoscope.core.errors import InputError
from mnemoscope.core.presets import Configuration
from mnemoscope.models.building import build
from mnemoscope.models.checkpoint import save_checkpoint
from mnemoscope.models.constructed.stand_ins import prescribe_course, step_course
from mnemoscope.models.run import create_run, find_runs, finish_run
from mnemoscope.models.subjects import Subject, combined, untrained
from tests.claims.trials import EXPLAINED, NOTHING

D4, D8 = Configuration(preset="d4"), Configuration(preset="d8")


def fake_run(root: Path, unit: Configuration, seed: int, bias: float, steps=(0,)):
    """A run whose unembedding bias of token 1 is `bias` at its end, half of it before that, and as drawn at step 0."""
    spec = unit.spec(seed)
    steps = (*steps[:-1], spec.recipe.n_steps)
    run = create_run(root / spec.label / f"seed-{seed:02d}", spec)
    model = build(spec.model, d_vocab=spec.task.d_vocab, n_ctx=spec.task.n_ctx, seed=seed)
    for step in steps:
        if step:
            with torch.no_grad():
                model.unembed.b_U[1] = bias if step == steps[-1] else bias / 2
        save_checkpoint(model, run.checkpoint_path(step), step=step)
    (run.path / "done").touch()
    return run


def bias_of(subject: Subject, *, token: int = 1) -> dict[str, float]:
    return {"effect": subject.model.unembed.b_U[token].item(), "gate": 1.0 - (subject.seed == 3)}


def counted(subject: Subject) -> dict[str, float]:
    with (Path(os.environ["COUNTED"])).open("a", encoding="utf-8") as file:
        file.write(f"{subject.seed}\n")
    return bias_of(subject)


def killed_once(subject: Subject, *, flag: Path) -> dict[str, float]:
    if subject.seed == 5 and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return bias_of(subject)


def difference(measured):
    return {"effect": measured["wide"]["effect"] - measured["narrow"]["effect"]}


def ones(case: int) -> dict[str, dict[str, float]]:
    return {"wide": {"effect": 3.0}, "narrow": {"effect": 1.0}}


def parity(draw: int) -> dict[str, float]:
    return {"effect": float(draw % 2)}


def make(**changes) -> Claim:
    common = {"id": "X", "statement": "token 1 is favoured", "source": "made up", "quantifier": "most", "margin": 0.5}
    return Claim(**{**common, "units": {"narrow": D4}, "measure": bias_of, "prompts": "enumerated", **changes})


@pytest.fixture
def runs(tmp_path):
    return [fake_run(tmp_path, D4, seed, 2.0, steps=(0, 1, 2) if seed == 0 else (2,)) for seed in range(18)]


def only(rulings):
    (ruling,) = rulings
    return ruling


def test_a_claim_is_measured_on_every_seed_and_judged(runs):
    claim = make(gate=Gate(statement="is not seed 3", at_least=1), unit="logits")
    ruling = only(run_trials([claim], runs))
    assert ruling.verdict.outcome == "SUPPORTED"
    assert (ruling.verdict.n, ruling.verdict.n_failed) == (17, 1)
    assert ruling.verdict.effect == pytest.approx(2.0)
    assert "17 of 18 seeds pass the gate (is not seed 3)" in ruling.verdict.reason
    assert "above 0.5 logits" in ruling.verdict.reason
    assert ruling.favoured == ("X",)


@pytest.mark.full
def test_emergence_follows_the_first_seed_with_checkpoints_along_training(runs):
    emergence = only(run_trials([make()], runs)).emergence
    assert emergence.attrs["seed"] == 0
    assert emergence.step.values.tolist() == [0, 1, runs[0].spec.recipe.n_steps]
    assert emergence.effect.values.tolist() == pytest.approx([0.0, 1.0, 2.0])
    assert only(run_trials([make(develops=False)], runs)).emergence is None
    assert only(run_trials([make()], runs[1:])).emergence is None


def test_of_many_checkpoints_every_other_is_measured(tmp_path):
    run = fake_run(tmp_path, D4, 0, 2.0, steps=tuple(range(14)))
    steps = only(run_trials([make()], [run])).emergence.step.values.tolist()
    assert steps == [1, 3, 5, 7, 9, 11, run.spec.recipe.n_steps]


def test_unfinished_and_other_runs_do_not_count(runs, tmp_path):
    (runs[4].path / "done").unlink()
    other = fake_run(tmp_path, D8, 4, 2.0)
    ruling = only(run_trials([make()], [*runs, other]))
    assert ruling.evidence.labels.tolist() == [seed for seed in range(18) if seed != 4]


@pytest.mark.full
def test_seeds_whose_training_did_not_end_count_against_the_claim(runs):
    """14 of 16 seeds support `most`; with two more that were begun they are 14 of 18."""
    for run in runs[:2]:
        (run.path / "done").unlink()
    for run in runs[2:4]:
        with torch.no_grad():
            model = run.model()
            model.unembed.b_U[1] = 0.0
        save_checkpoint(model, run.checkpoint_path(run.spec.recipe.n_steps), step=run.spec.recipe.n_steps)
    alone = only(run_trials([make()], runs[2:])).verdict
    assert alone.outcome == "SUPPORTED"
    ruling = only(run_trials([make()], runs))
    assert ruling.verdict.outcome == "INCONCLUSIVE"
    assert "seeds 0, 1 were begun, did not end and count against any decision" in ruling.verdict.reason
    assert ruling.set_aside == ("narrow, seeds 0, 1: not finished",)


@pytest.mark.full
def test_seeds_before_the_first_and_after_the_last_do_not_count(runs, tmp_path):
    """Neither for the claim nor for its rivals and cells, and those that were begun are not held against it."""
    published = [fake_run(tmp_path, D4.changed("recipe", "published"), seed, 2.0) for seed in range(18)]
    for seed in (0, 2, 17):
        (runs[seed].path / "done").unlink()
    claim = make(first_seed=2, last_seed=16, factors={"recipe": ("published",)})
    rival = claim.rival("not", "it is not", quantifier="most", margin=0.5, direction="below")
    ruling = only(run_trials([claim.against(rival)], [*runs, *published]))
    assert ruling.evidence.labels.tolist() == list(range(3, 17))
    assert ruling.rivals["X-not"].n == 14
    assert [cell.verdict.n for cell in ruling.sensitivity] == [15, 15]
    assert "seeds 2 were begun" in ruling.verdict.reason
    assert ruling.set_aside == (
        "narrow, seed 1: looked at before the criteria were fixed",
        "narrow, seeds 0, 2, 17: not finished",
    )


def test_seeds_that_do_not_count_are_listed_with_the_reason(runs):
    admitted = admit_runs(runs, [claim := make(first_seed=2, last_seed=14)])
    assert admitted.seeds(claim) == list(range(2, 15))
    assert admitted.left_out(claim) == []
    assert admitted.set_aside(claim) == (
        "narrow, seeds 0, 1: looked at before the criteria were fixed",
        "narrow, seeds 15–17: trained after the verdict",
    )


@pytest.mark.full
def test_runs_with_another_split_are_set_aside_by_name(runs):
    """The split of a quick run follows its seed; one of a fixed split is another experiment, which selects nothing."""
    spec = D4.spec(30)
    other = create_run(runs[0].path.parent / "seed-30", replace(spec, task=replace(spec.task, split_seed=7)))
    ruling = only(run_trials([make()], [*runs, other]))
    assert ruling.verdict.outcome == "SUPPORTED"
    assert ruling.set_aside == ("narrow, seed 30: another split of the data",)


def test_weights_under_two_seeds_are_refused(runs):
    last = runs[0].spec.recipe.n_steps
    runs[9].checkpoint_path(last).write_bytes(runs[2].checkpoint_path(last).read_bytes())
    with pytest.raises(InputError, match=r"seed-02 and .*seed-09, .* the same weights: a copy is no replicate"):
        run_trials([make()], runs)


def test_a_run_with_noise_under_another_seed_is_refused(runs):
    """The same would be 18 seeds of which one is the other."""
    model = runs[5].model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1e-6 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    save_checkpoint(model, runs[7].checkpoint_path(runs[7].last_step), step=runs[7].last_step)
    with pytest.raises(InputError, match=r"seed-05 and .*seed-07, seeds 5 and 7 of d4, hold nearly the same weights"):
        run_trials([make()], runs)


@pytest.mark.full
def test_a_ruling_says_which_runs_are_verified_and_what_seeds_share(runs):
    """These were never trained, and wrote nothing down."""
    (sentence,) = only(run_trials([make()], runs)).independence
    assert sentence.startswith("narrow: 18 of 18 runs unverified (no digest of the final weights was written down")
    linear = Configuration(preset="facts-linear", recipe="quick")
    claim = make(units={"linear": linear})
    admitted = admit_runs(find_runs("zoo:facts-linear-quick"), [claim])
    admitted.check_identity()
    assert admitted.independence(claim)[-1] == (
        "linear: all seeds share the initial weights and facts; they differ in their draws of data, and the claim is "
        "about these only"
    )


@pytest.mark.full
def test_weights_of_another_step_or_another_training_are_refused(runs):
    run, last = runs[0], runs[0].spec.recipe.n_steps
    finish_run(run, last)
    only(run_trials([make()], runs))
    with torch.no_grad():
        model = run.model()
        model.unembed.b_U[1] = 3.0
    save_checkpoint(model, run.checkpoint_path(last), step=last)
    with pytest.raises(InputError, match=r"seed-00.* does not hold the weights that training ended with"):
        run_trials([make()], runs)
    save_checkpoint(model, run.checkpoint_path(last), step=20)
    with pytest.raises(InputError, match=f"a checkpoint of step 20 under the name of step {last}"):
        run_trials([make()], runs)
    run.checkpoint_path(last).unlink()
    with pytest.raises(InputError, match=f"finished, but its last checkpoint is of step 1, not of step {last}"):
        run_trials([make()], runs)
    for step in run.steps:
        run.checkpoint_path(step).unlink()
    with pytest.raises(InputError, match="its last checkpoint is missing"):
        run_trials([make()], runs)


def test_one_configuration_under_two_names_is_refused(runs):
    alias = replace(D4.spec(3), preset="narrow-again")
    other = create_run(runs[0].path.parents[1] / "again", alias)
    (other.path / "done").touch()
    with pytest.raises(InputError, match="same configuration and seed under two names, d4-quick and narrow-again-qui"):
        run_trials([make()], [*runs, other])


def test_without_runs_there_is_no_verdict():
    claim = make(
        gate=Gate(statement="g", at_least=1), factors={"token": (2,)}, rivals=(make(id="X-not", direction="below"),)
    )
    ruling = only(run_trials([claim], []))
    assert ruling.verdict.outcome == "NOT_APPLICABLE"
    assert ruling.sensitivity[0].verdict.outcome == "NOT_APPLICABLE"
    assert ruling.rivals["X-not"].outcome == "NOT_APPLICABLE"
    assert ruling.typical() is None
    assert ruling.deviating() is None


@pytest.mark.full
def test_configurations_are_compared_seed_by_seed(runs, tmp_path):
    wide = [fake_run(tmp_path, D8, seed, 3.0) for seed in range(17)]
    control = Control(name="planted", kind="positive", plant=ones, n=2)
    claim = make(units={"narrow": D4, "wide": D8}, compare=difference, controls=(control,))
    ruling = only(run_trials([claim], [*runs, *wide]))
    assert ruling.evidence.labels.tolist() == list(range(17))
    assert ruling.verdict.effect == pytest.approx(1.0)
    assert ruling.evidence.controls["planted"].effect.values.tolist() == [2.0, 2.0]


def test_a_control_that_misbehaves_spoils_the_verdict(runs):
    control = Control(name="untrained", kind="negative", plant=untrained({"narrow": D4}), n=3)
    good = only(run_trials([make(controls=(control,))], runs))
    assert good.verdict.outcome == "SUPPORTED"
    assert good.evidence.controls["untrained"].effect.values.tolist() == [0.0, 0.0, 0.0]
    bad = only(run_trials([make(controls=(control,), margin=-1.0)], runs))
    assert bad.verdict.outcome == "INCONCLUSIVE"
    assert "untrained misbehaves" in bad.verdict.reason


@pytest.mark.full
def test_the_sensitivity_table_changes_one_factor_at_a_time(runs, tmp_path):
    plain = D4.changed("model.normalization", "none")
    also = [fake_run(tmp_path, plain, seed, 0.1) for seed in range(16)]
    claim = make(factors={"token": (1, 2), "model.normalization": ("none",), "recipe": ("published",)})
    ruling = only(run_trials([claim], [*runs, *also]))
    found = {(cell.factor, cell.value): cell.verdict.outcome for cell in ruling.sensitivity}
    assert found == {
        ("token", "1"): "SUPPORTED",
        ("token", "2"): "REFUTED",
        ("model.normalization", "none"): "REFUTED",
        ("recipe", "published"): "NOT_APPLICABLE",
    }
    assert [(cell.factor, cell.value) for cell in ruling.flips] == [("token", "2"), ("model.normalization", "none")]
    assert only(run_trials([claim], runs, sensitivity=False)).sensitivity == ()


def test_controls_go_with_the_claim_to_other_configurations():
    """Untrained models have the sizes of these, and planted trajectories their checkpoints; a table stays."""
    units = {"narrow": D4}
    fresh, course = untrained(units), prescribe_course(units, {"narrow": {"recall": step_course(20)}})
    plants = (combined(fresh, fresh), course, ones)
    controls = tuple(Control(name=name_of(plant), kind="negative", plant=plant) for plant in plants)
    claim = make(controls=controls, rivals=(make(id="X-not", controls=controls),), factors={"recipe": ("published",)})
    wide = with_configurations(claim, "model.d_model", 8)
    for asked in (wide, wide.rivals[0]):
        assert asked.controls[0].plant(0)["narrow"].model.cfg.d_model == 8
        assert asked.controls[2].plant is ones
    longer = with_configurations(claim, "recipe.n_steps", 500).controls[1].plant
    assert int(longer(0)["narrow"].trajectory.step[-1]) == 500
    assert int(course(0)["narrow"].trajectory.step[-1]) == D4.spec(0).recipe.n_steps != 500
    (cell,) = (question.claim for question in claim_variants(claim, True) if question.changed)
    assert "recipe='published'" in name_of(cell.controls[1].plant)
    assert name_of(with_configurations(claim, "recipe", "quick").controls[1].plant) == name_of(course)


def test_another_recipe_can_be_asked_for(runs, tmp_path):
    published = [fake_run(tmp_path, D4.changed("recipe", "published"), seed, -2.0) for seed in range(20, 36)]
    claim = make(factors={"recipe": ("published",)}, rivals=(make(id="X-not", direction="below"),))
    ruling = only(run_trials([claim], [*runs, *published], recipe="published"))
    assert ruling.verdict.outcome == "REFUTED"
    assert ruling.rivals["X-not"].outcome == "SUPPORTED"
    assert ruling.favoured == ("X-not",)
    assert ruling.sensitivity == ()


def test_under_another_recipe_a_claim_stands_alone_or_means_nothing(tmp_path):
    published = [fake_run(tmp_path, D4.changed("recipe", "published"), seed, 2.0) for seed in range(16)]
    headline = make(factors={"recipe": ("published",)}, headline=True, n_replicates=32)
    moved = only(run_trials([headline], published, recipe="published"))
    assert moved.verdict.outcome == "SUPPORTED"
    assert not moved.claim.headline
    assert run_trials([make()], published, recipe="published") == []
    assert only(run_trials([make()], [], recipe="quick")).claim == make()


def test_a_ruling_says_how_the_claim_was_asked_before(tmp_path, monkeypatch):
    monkeypatch.setattr("mnemoscope.claims.registration.package_of", lambda claim: tmp_path)
    fit = {"controls": (NOTHING,), "explanation": EXPLAINED}
    register([make(**fit, margin=0.4)], tmp_path)
    register([make(**fit)], tmp_path, reason="too mild")
    ruling = only(run_trials([make(**fit)], []))
    assert ruling.superseded == (Superseded(reason="too mild"),)
    assert ruling.departures == ()


def test_draws_need_no_runs():
    claim = make(units={}, measure=parity, replicate="draw", n_replicates=20, develops=False)
    ruling = only(run_trials([claim], []))
    assert ruling.verdict.outcome == "MIXED"
    assert ruling.evidence.replicate == "draw"


def test_draws_that_were_looked_at_do_not_count():
    claim = make(units={}, measure=parity, replicate="draw", develops=False, first_seed=101)
    (ruling,) = run_trials([claim], [])
    assert ruling.evidence.labels.tolist() == expected_seeds(claim) == list(range(101, 117))
    assert expected_seeds(replace(claim, first_seed=0)) == []  # as registrations of such claims say


def test_a_draw_is_measured_once_for_a_claim_and_its_rivals(tmp_path):
    claim = make(units={}, measure=parity, replicate="draw", develops=False)
    rivals = (claim.rival("even", "draws are even", quantifier="most", margin=0.5, direction="below", measure=parity),)
    ruling = only(run_trials([claim.against(*rivals)], [], store=tmp_path))
    assert len(list((tmp_path / "draws").iterdir())) == claim.n_replicates
    assert [verdict.n for verdict in ruling.rivals.values()] == [claim.n_replicates]


@pytest.mark.full
def test_typical_and_deviating_replicates(tmp_path):
    values = [1.0] * 15 + [2.0, 0.1, 3.0]
    runs = [fake_run(tmp_path, D4, seed, value) for seed, value in enumerate(values)]
    ruling = only(run_trials([make()], runs))
    assert ruling.slack().values.tolist() == pytest.approx([value - 0.5 for value in values])
    assert values[ruling.typical()] == 1.0
    assert ruling.deviating() == 16
    against = only(run_trials([make(margin=2.5)], runs))
    assert against.deviating() == 17
    assert only(run_trials([make(margin=0.0)], runs)).deviating() is None


@pytest.mark.full
def test_the_headlines_that_are_not_on_trial_count_in_the_correction(runs, monkeypatch, tmp_path):
    more = [fake_run(tmp_path, D4, seed, 2.0 if seed < 24 else 0.0) for seed in range(18, 32)]
    claim = make(system="made-up", headline=True, n_replicates=32)
    alone = only(run_trials([claim], [*runs, *more])).verdict
    assert alone.outcome == "SUPPORTED"
    others = {f"Y{i}": replace(claim, id=f"Y{i}") for i in range(10)}
    registry = SimpleNamespace(names=lambda: list(others), get=others.get)
    monkeypatch.setattr("mnemoscope.claims.trials.CLAIMS", registry)
    corrected = only(run_trials([claim], [*runs, *more])).verdict
    assert corrected.p == pytest.approx(11 * alone.p)


@pytest.fixture
def n_calls(runs, tmp_path, monkeypatch):
    """How many runs are measured when a claim is tried once more over what is kept."""
    monkeypatch.setenv("COUNTED", str(tmp_path / "counted"))

    def again(claim: Claim) -> int:
        (tmp_path / "counted").write_text("")
        run_trials([claim], runs, store=tmp_path / "kept")
        return len((tmp_path / "counted").read_text().splitlines())

    return again


def test_what_was_measured_is_found_again_until_model_or_code_changes(runs, tmp_path, monkeypatch, n_calls):
    claim = make(measure=counted, develops=False)
    assert n_calls(claim) == 18
    assert n_calls(claim) == 0
    (tmp_path / "kept" / runs[2].label / "seed-02.json").write_text('{"finger')
    assert n_calls(claim) == 1
    fake_run(tmp_path, D4, 6, 1.0, steps=(2,))
    assert n_calls(claim) == 1
    monkeypatch.setattr(measures, "instrument", lambda: "changed")
    assert n_calls(claim) == 18


@pytest.mark.full
def test_what_was_logged_and_specified_decides_whether_it_is_found_again(runs, n_calls):
    claim = make(measure=counted, develops=False)
    n_calls(claim)
    line = {"step": runs[4].last_step, "train_loss": 1.0, "test_loss": 1.0}
    (runs[4].path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    assert n_calls(claim) == 1
    assert n_calls(claim) == 0
    (runs[5].path / "run.json").write_text((runs[5].path / "run.json").read_text() + "\n")
    assert n_calls(claim) == 1


@pytest.mark.full
def test_each_step_is_found_again_until_its_own_checkpoint_changes(runs, n_calls):
    claim = make(measure=counted)
    assert n_calls(claim) == 18 + 3  # the claim at the last step of every seed; seed 0 along its three steps
    assert n_calls(claim) == 0
    fake_run(runs[0].path.parents[1], D4, 0, 2.5, steps=(1, 2))
    assert n_calls(claim) == 1 + 2


def test_another_version_of_torch_measures_anew(monkeypatch):
    before = measures.instrument()
    monkeypatch.setattr(store, "version", lambda name: f"{name} of tomorrow")
    assert measures.instrument.__wrapped__() != before


def adding(amount: float):
    def measure(subject: Subject) -> dict[str, float]:
        return {"effect": amount, "gate": 1.0}

    return measure


@pytest.mark.parametrize("measure", [adding(1), lambda subject: {"effect": 1.0}, partial(parity, adding(1))])
def test_functions_that_their_name_does_not_identify_are_refused(runs, measure):
    for claim in (
        make(measure=measure),
        make(controls=(Control(name="c", kind="negative", plant=measure),)),
        make().against(make().rival("r", "another", quantifier="most", margin=1.0, measure=measure)),
    ):
        with pytest.raises(InputError, match=r"of claim X.* must be a function that is defined at the top level"):
            run_trials([claim], runs)


@pytest.mark.thorough
def test_processes_give_the_same_and_a_killed_one_is_replaced(runs, tmp_path):
    claim = make(measure=partial(killed_once, flag=tmp_path / "killed"), develops=False)
    ruling = only(run_trials([claim], runs, jobs=2))
    assert (tmp_path / "killed").exists()
    assert ruling.evidence.effects.effect.values.tolist() == [2.0] * 18


def test_progress_counts_pieces_by_claim(runs):
    seen = []
    run_trials([make(develops=False), make(id="Z", margin=0.1, develops=False)], runs, report=seen.append)
    assert seen[0] == {"X": (1, 18), "Z": (1, 18)}
    assert seen[-1] == {"X": (18, 18), "Z": (18, 18)}


def test_what_cannot_be_tried_is_refused(runs):
    with pytest.raises(InputError, match="claim X has no measure"):
        run_trials([make(measure=None)], runs)
    other = make(quantifier=None, margin=None, parts=(Criterion(name="other", quantifier="most", margin=0.0),))
    with pytest.raises(InputError, match="gives no 'other'; it gives effect, gate"):
        run_trials([other], runs)
    without = make(units={}, measure=parity, gate=Gate(statement="g", at_least=0))
    with pytest.raises(InputError, match="gives no 'gate'"):
        run_trials([without], [])
    with pytest.raises(InputError, match="is named twice"):
        run_trials([make()], [*runs, runs[0]])


def test_effects_a_prompt_keep_their_prompts(runs):
    ruling = only(run_trials([make(measure=by_prompt, prompts="own", quantifier="every")], runs))
    assert ruling.evidence.effects.effect.dims == ("seed", "prompt")
    assert ruling.emergence.effect.dims == ("step",)
    assert ruling.verdict.outcome == "SUPPORTED"


def by_prompt(subject: Subject) -> dict[str, np.ndarray]:
    return {"effect": np.array([2.0, 2.1, 1.9] * 2)}


def test_the_name_of_a_bound_function_is_the_same_in_every_process():
    bound = partial(fake_run, Path("a"), unit=D4, other=bias_of)
    name = functions.name_of(bound)
    assert "0x" not in name
    assert name.startswith(f"{__name__}.fake_run[")
    assert f"other={__name__}.bias_of" in name


def test_a_measure_of_a_script_has_the_same_name_in_a_worker(monkeypatch):
    """The script that a worker was started by is called `__mp_main__` there."""
    names = []
    for module in ("__main__", "__mp_main__"):
        monkeypatch.setattr(parity, "__module__", module)
        names.append(functions.name_of(partial(fake_run, other=parity)))
    assert names == [f"{__name__}.fake_run[other=__main__.parity]"] * 2


def test_functions_within_what_is_bound_are_named_digested_and_checked():
    """As those of `together`, and of a mapping of plants: else nothing that is kept would be found again."""
    bound = partial(fake_run, (partial(by_prompt), [bias_of]), unit={"one": parity})
    name = functions.name_of(bound)
    assert "0x" not in name
    assert all(f"{__name__}.{each.__name__}" in name for each in (fake_run, by_prompt, bias_of, parity))
    assert functions.name_of(partial(fake_run, (partial(parity),))) != functions.name_of(
        partial(fake_run, (partial(bias_of),))
    )
    inner = partial(fake_run, (partial(only), {"two": measures.do_work}))
    assert functions.modules_of(inner) == {__name__, only.__module__, measures.do_work.__module__}
    with pytest.raises(InputError, match="must be a function that is defined at the top level"):
        functions.check_named("measure", partial(fake_run, ({"one": lambda: 0},)))
