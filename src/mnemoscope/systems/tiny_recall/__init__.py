"""Elimination and recall in permutation lookup: claims T1 to T25.

A model reads pairs (x, y) of a permutation that is new in every sequence and predicts each y. In the last slot it
eliminates (one value is not used yet) or, if x repeats, recalls (its y was shown).

- Task: `tasks`, with the counting in `permutations`; `presets`, with the published configurations (v1, v2, v3, d16h1);
  `zoo`, trained models.
- Measurements: `analyses`. Ground truth: `constructed`, models with weights set by hand, one per hypothetical
  mechanism.
- Output: `figures` show results, as rows of text too; `report` puts those of runs on a page.

`claims` has one module per question, with its rivals, put together from `claim_parts`:

- what is learned: `elimination` (T1, T2), `posterior` (T3, T4), `loss` (T5, T8), `recall` (T6, T7, T9), `onset` (T10);
- heads: `attention` (T11, T12), `same_roles` (T13), `split` (T14), `same_head` (T21), `specialisation` (T23);
- architecture: `second_head` (T15), `attention_and_mlp` (T16), `memory` (T17), `capacity` (T18, T19);
- data: `order` (T20, T24), `override` (T22), `next_x` (T25).
"""
