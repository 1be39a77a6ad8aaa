"""In-context Markov chains: statistical induction heads (system S12).

`chains` draws chains and walks, `predictors` are the exact ones; `tasks` puts both together; `presets` are the recipes.
"""
