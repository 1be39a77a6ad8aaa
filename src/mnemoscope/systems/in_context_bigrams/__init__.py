"""In-context bigrams, the birth of an induction head, and noisy recall: claims B1 to B14, M1 to M3, N1, N2.

- Data: `markov`, tables of character bigrams and many chains at once; `triggers`, the base of both `tasks`;
  `output_exchange`, their minimal pairs; `data`, the counts of tiny Shakespeare.
- Exact prediction: `ideal_learner`, where triggers are hidden, by the sums of `successive_sampling`.
- Models: `presets`, configurations and what `reproduce` trains; `constructed`, hand-set weights; `zoo`, trained runs.
- `claims`: one module per question, with its rivals and controls, put together from `claim_parts`.
- `report` and `figures`: the page on runs.
"""
