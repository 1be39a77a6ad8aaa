"""Gradients at the input of every reader: they add up, and stay within the byte budget."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from mnemoscope.analyses.estimates import attribute_edges
from mnemoscope.core.errors import InputError
from mnemoscope.core.metrics import LOG_PROB, LOGIT_DIFF
from mnemoscope.interventions import gradients
from mnemoscope.interventions.gradients import input_gradients, metric_sums, trace_run, traced_names
from mnemoscope.interventions.graph import reader_inputs
from mnemoscope.interventions.measurement import MetricReader
from tests.split_hooks import random_pairs
from tests.support import foreign_model

START = "blocks.0.hook_resid_pre"
MODELS = {
    "LN": {},
    "attention only": {"attn_only": True, "n_layers": 3},
    "rotary": {"positional_embedding_type": "rotary", "d_head": 4, "rotary_dim": 4},
    "parallel": {"parallel_attn_mlp": True},
    "local": {"use_local_attn": True, "window_size": 2, "attn_types": ["local", "global"]},
    "softcap": {"output_logits_soft_cap": 1.5},
}


def trace(model, pairs, metrics=(LOGIT_DIFF,), **options):
    read = pairs.scored.any(0).nonzero()[:, 0]
    run = trace_run(model, pairs.clean.inputs, traced_names(model), read, **options)
    return run, MetricReader.from_pairs(pairs, read, metrics, run.logits.detach())


def by_input(model, run, total, wanted):
    pulled = input_gradients(model, run, total, wanted)
    return {place: own for places, of_places in pulled for place, own in zip(places, of_places, strict=True)}


@pytest.mark.parametrize("name", MODELS)
def test_readers_together_have_the_gradient_of_the_stream(name):
    model, pairs = foreign_model(dtype="float64", **MODELS[name]), random_pairs()
    run, reader = trace(model, pairs)
    (total,) = metric_sums(reader, run)
    found = by_input(model, run, total, reader_inputs(model))
    assert set(found) == set(reader_inputs(model))
    (whole,) = torch.autograd.grad(total, run[START])
    assert torch.allclose(sum(found.values()), whole, atol=1e-12)
    assert whole.abs().max() > 1e-3


GRADED = {
    **MODELS,
    "shared keys": {"n_heads": 4, "n_key_value_heads": 2},
    "RMS, gated": {"normalization_type": "RMS", "gated_mlp": True, "act_fn": "silu"},
    "no normalisation": {"normalization_type": None},
    "folded": {"normalization_type": "LNPre"},
}


@pytest.mark.parametrize("name", GRADED)
def test_the_engine_gives_the_gradients_of_the_model(name, monkeypatch):
    model, pairs, found = foreign_model(dtype="float64", **GRADED[name]), random_pairs(), []
    for of_the_model in (False, True):
        if of_the_model:
            monkeypatch.setattr(gradients, "transformer_without_hooks", lambda *_: None)
        run, reader = trace(model, pairs)
        (total,) = metric_sums(reader, run)
        found.append(by_input(model, run, total, reader_inputs(model)))
    assert all(torch.allclose(found[0][place], found[1][place], atol=1e-12) for place in found[1])
    assert max(gradient.abs().max() for gradient in found[1].values()) > 1e-3


def test_only_what_is_wanted_is_pulled_back():
    model, pairs = foreign_model(), random_pairs()
    run, reader = trace(model, pairs)
    (total,) = metric_sums(reader, run)
    every = by_input(model, run, total, reader_inputs(model))
    some = reader_inputs(model)[4:7]
    found = by_input(model, run, total, some)
    assert set(found) == set(some)
    assert all(torch.allclose(found[place], every[place]) for place in some)


def test_tracing_changes_nothing_and_leaves_nothing():
    model, pairs = foreign_model(), random_pairs()
    run, reader = trace(model, pairs)
    with torch.no_grad():
        torch.testing.assert_close(run.logits, model(pairs.clean.inputs)[:, -2:], atol=1e-5, rtol=1e-5)
    for total in metric_sums(reader, run):
        list(input_gradients(model, run, total, reader_inputs(model)))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def test_a_run_goes_on_from_the_activation_that_it_is_given():
    model, pairs = foreign_model(), random_pairs()
    with torch.no_grad():
        other = model.run_with_cache(pairs.corrupted.inputs)[1][START]
    run, _ = trace(model, pairs, starts={START: other})
    assert torch.allclose(run.logits, model(pairs.corrupted.inputs)[:, -2:], atol=1e-6)


def test_a_sum_is_that_of_means_over_scored_positions():
    model, pairs = foreign_model(), random_pairs()
    run, reader = trace(model, pairs, metrics=(LOGIT_DIFF, LOG_PROB))
    of_prompts = reader.mean(reader.values(run.logits.detach()[None])[:, 0])
    assert torch.allclose(torch.stack(list(metric_sums(reader, run))).double(), of_prompts.sum(1), atol=1e-5)


def test_hook_points_that_are_missing_are_named():
    with pytest.raises(InputError, match=r"the model has no hook point blocks\.7\.hook_mlp_out"):
        trace_run(foreign_model(), random_pairs().clean.inputs, ["blocks.7.hook_mlp_out"], torch.tensor([5]))


WIDE = {"d_model": 32, "d_head": 8, "n_heads": 4, "d_mlp": 128, "n_ctx": 40}
MANY_TOKENS = {**WIDE, "d_mlp": 32, "d_vocab": 300, "act_fn": "relu"}
LONG = {"d_model": 16, "n_heads": 8, "n_ctx": 80}


@pytest.mark.parametrize("sizes", [WIDE, MANY_TOKENS, LONG], ids=["wide", "many tokens", "long"])
def test_what_is_allocated_stays_within_the_budget(sizes):
    model, budget = foreign_model(**sizes), 2**23
    pairs = random_pairs(n=4, n_pos=sizes["n_ctx"], n_scored=sizes["n_ctx"])
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        attribute_edges(model, pairs, max_bytes=budget)
    held = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    assert most < budget
    assert most > budget / 8  # an estimate that is far too high would make the chunks small
