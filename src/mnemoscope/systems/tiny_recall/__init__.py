"""Elimination and recall in permutation lookup: claims T1 to T25.

A model reads pairs (x, y) of a permutation that is new in every sequence and predicts each y. In the last slot it
either eliminates (the one value not used yet) or, if x repeats, recalls (its y was shown).

The task:

- `tasks`: the data, splits, skills, minimal pairs and exact predictors; `permutations`: the counting behind them.
- `presets`: published configurations (v1, v2, v3, d16h1), comparisons, recipes and the runs to train.
- `zoo`: trained models that come with the package.

Measurements (`analyses`):

- `published`: the figures of the source beside ours; `predictions`: one sequence, slot by slot, and which skill wins
  where both answer.
- `attention_shares`: where heads look, by slot; `attention_by_role`: the same for heads by role, for claims.
- `removal_costs`: skills without a head or the MLP; `carriers`: what a head's output carries between minimal pairs.
- `causal_models`: two causal models of the last answer and their alignment with heads.

Ground truth: `constructed` has models with weights set by hand, one per hypothetical mechanism.

Claims (`claims`, one module per question, with their rivals), put together from `claim_parts`:

- what is learned: `elimination` (T1, T2), `posterior` (T3, T4), `loss` (T5, T8), `recall` (T6, T7, T9), `onset` (T10);
- heads: `attention` (T11, T12), `same_roles` (T13), `split` (T14), `same_head` (T21), `specialisation` (T23);
- architecture: `second_head` (T15), `attention_and_mlp` (T16), `memory` (T17), `capacity` (T18, T19);
- data: `order` (T20, T24), `override` (T22), `next_x` (T25).

Output: `tables` and `figures` show results; `report` takes them of runs and registers them with the command line,
`report_sections` puts them on a page.
"""
