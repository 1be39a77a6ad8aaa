"""What the tests of circuits are run on, and circuits as EAP-IG and auto-circuit define them."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch

from mnemoscope.analyses.discovery.setting import Setting
from mnemoscope.core.batch import Batch
from mnemoscope.core.pairs import PromptPairs
from mnemoscope.core.seeding import generator
from mnemoscope.models.constructed import induction, induction_batch
from mnemoscope.systems.tiny_recall.tasks import PermutationLookup
from tests.support import foreign_model, random_model, seeded

TASK = PermutationLookup(repeat_ratio=0.3).for_seed(0)


@lru_cache
def prompts() -> Batch:
    return TASK.monitor(20, split="test", generator=generator(0, "prompts"))


def lookup(make, kind: str, skill: str, **changes) -> Setting:
    """A constructed model on minimal pairs of one skill, read in the last slot."""
    rows = TASK.skills(prompts())[skill].any(1)
    pairs = PromptPairs.from_task(TASK, prompts().select(rows), kind=kind).read_last()
    return Setting(model=make(), pairs=pairs, **changes)


def shuffled(n: int = 20, **changes) -> Setting:
    """`induction` on tokens shown twice, beside prompts with another order the first time, read at the last query."""
    batch = induction_batch(n, n_tokens=12, n_ctx=12, generator=seeded())
    other = batch.inputs.clone()
    order = torch.rand(n, 6, generator=seeded(1)).argsort(1)
    other[:, :6] = other[:, :6].gather(1, order)
    foil = torch.full_like(batch.targets, 0)
    query = batch.inputs[:, -2:-1]
    before = (other[:, :6] == query).int().argmax(1)
    foil[:, -2] = other.gather(1, before[:, None] + 1)[:, 0]
    scored = torch.zeros_like(batch.scored)
    scored[:, -2] = True
    clean = replace(batch, scored=scored, known={})
    pairs = PromptPairs(clean=clean, corrupted=replace(clean, inputs=other, targets=foil), name="shuffled")
    told = (before < 5) & (foil[:, -2] != batch.targets[:, -2])
    return Setting(model=induction(12, 12), pairs=pairs.select(told), **changes)


def arbitrary(*, n: int = 6, setting: dict | None = None, **model) -> Setting:
    """A random model on random prompts; answer and foil are the tokens that the other prompt sets most apart."""
    return _told_apart(random_model(**model), n, **(setting or {}))


def shared_keys(n: int = 6) -> Setting:
    """The same with a model of the Llama type, whose four heads share two pairs of keys and values."""
    model = foreign_model(
        positional_embedding_type="rotary", rotary_dim=2, rotary_adjacent_pairs=False, n_heads=4, n_key_value_heads=2,
        normalization_type="RMS", final_rms=True, gated_mlp=True, act_fn="silu", dtype="float64",
    )  # fmt: skip
    return _told_apart(model, n)


def _told_apart(made, n: int, **setting) -> Setting:
    inputs = torch.randint(6, (2, n, 5), generator=seeded(3))
    change = made(inputs[0]) - made(inputs[1])
    scored = torch.zeros(n, 5, dtype=torch.bool)
    scored[:, -1] = True
    clean, corrupted = (
        Batch(inputs=tokens, targets=targets, scored=scored)
        for tokens, targets in zip(inputs, (change.argmax(-1), change.argmin(-1)), strict=True)
    )
    return Setting(model=made, pairs=PromptPairs(clean=clean, corrupted=corrupted, name="arbitrary"), **setting)


def every_mask(n_edges: int) -> np.ndarray:
    return (np.arange(2**n_edges)[:, None] >> np.arange(n_edges)) % 2 == 1


def published(model, clean, corrupted, inside: set[str]):
    """Logits of a circuit as EAP-IG's `evaluate_graph` runs it and auto-circuit's `run_circuits`.

    Every edge that is not inside adds to its reader's input what its writer wrote on the corrupted prompts less what
    it writes in this run.
    """
    model.cfg.use_attn_result = model.cfg.use_split_qkv_input = model.cfg.use_hook_mlp_in = True
    outputs = ("hook_embed", "hook_pos_embed", "attn.hook_result", "hook_mlp_out")
    _, there = model.run_with_cache(corrupted, names_filter=lambda name: name.endswith(outputs))
    here, n_heads = {}, model.cfg.n_heads

    def written(name: str, value):
        if name.endswith("result"):
            return {f"L{name.split('.')[1]}H{head}": value[:, :, head] for head in range(n_heads)}
        if name.endswith("mlp_out"):
            return {f"L{name.split('.')[1]} MLP": value}
        return {"input" if name == "hook_embed" else "position": value}

    before = {key: part for name, value in there.items() for key, part in written(name, value).items()}

    def listen(value, hook):
        here.update(written(hook.name, value))

    def change(reader: str):
        return sum(before[key] - here[key] for key in here if key != "position" and f"{key} → {reader}" not in inside)

    def answer(value, hook):
        layer = hook.name.split(".")[1]
        if hook.name.endswith("resid_post"):
            return value + change("logits")
        if hook.name.endswith("mlp_in"):
            return value + change(f"L{layer} MLP")
        way, kind = hook.name.split("_")[1], "H" if value.shape[2] == n_heads else "KV"
        heads = [value[:, :, head] + change(f"L{layer}{kind}{head} {way}") for head in range(value.shape[2])]
        return torch.stack(heads, 2)

    last = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    hooks = [(lambda name: name.endswith(outputs), listen)]
    hooks += [(lambda name: name.endswith(("_q_input", "_k_input", "_v_input", "mlp_in")) or name == last, answer)]
    try:
        return model.run_with_hooks(clean, fwd_hooks=hooks)
    finally:
        model.cfg.use_attn_result = model.cfg.use_split_qkv_input = model.cfg.use_hook_mlp_in = False
