"""The retrieval problem (S8): vectors in, vectors out, chains that several layers follow.

`tasks` has the data, their latents, minimal pairs and exact references; `constructed` models that follow the chains;
`analyses` how many layers it takes (`reach`), attention between the places of a chain, and the circuit of a model.
"""
