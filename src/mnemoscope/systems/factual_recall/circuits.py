"""Known circuits of trained models that store facts in a wide MLP, as far as F2 establishes them.

The query token has no embedding of its own: it reaches queries, MLP and logits of both prompts alike.
"""

import mnemoscope as ms


def fact_edges(trained: ms.Subject) -> tuple[set[str], set[str]]:
    """The output of the MLP; what heads add directly, and what the query token reaches, carries nothing."""
    heads = [f"L0H{head}" for head in range(trained.model.cfg.n_heads)]
    direct, queries = ({f"{head} → logits" for head in heads}, {f"input → {head} q" for head in heads})
    return {"L0 MLP → logits"}, {*direct, *queries, "input → L0 MLP", "input → logits"}


def fact_pairs(trained: ms.Subject, n: int, seed: int) -> ms.PromptPairs:
    """Sequences about another subject, whose fact differs."""
    batch = trained.task.sample(n, split="test", generator=ms.generator(seed, "known circuit"))
    return ms.PromptPairs.from_task(trained.task, batch, kind="other_subject", seed=seed)


ms.methods.plant_trained(
    (16, 17, 18),
    name="trained-facts-wide",
    label="facts-wide-quick",
    source=(
        "F2, 18 of 18: with a wide MLP the answer comes by way of the MLP alone (its output, or what all heads add "
        "directly, replaced by means). Unjudged: which heads the MLP reads."
    ),
    sides=fact_edges,
    pairs=fact_pairs,
    established_by=("edge-ablation-mean",),
)
