"""In-context bigrams, the birth of an induction head, and noisy recall: claims B1 to B13, M1 to M3, N1, N2.

Data: `bigrams`, the tables of character bigrams; `markov`, many chains at once; `triggers`, the base of both tasks;
`tasks.in_context_bigrams` and `tasks.noisy_recall`, the tasks; `output_exchange`, their minimal pairs. Exact
prediction: `ideal_learner`, the Bayes-optimal predictor where triggers are hidden, by the sums of
`successive_sampling`.

Models: `presets`, configurations and what `reproduce` trains; `constructed`, circuits with hand-set weights.
`analyses`: predictions by class of position, attention, causal costs, trajectories, and what single gradient steps
store. `claims`: one module per question, each with its rivals and controls, put together from `claim_parts`. `report`,
`report_sections` and `figures`: the page on runs. `data` has the counts of tiny Shakespeare, `zoo` the trained runs.
"""
