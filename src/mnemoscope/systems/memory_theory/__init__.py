"""Associative-memory theory (S4): how many associations a matrix or an MLP can store.

- `analyses`: problems of random associations, their training as one batch, the search for the largest number that is
  stored, and how it grows.
- `claims`: M4. M1 to M3, on what single gradient steps store, are claims of `birth`.
- `report`: capacity against parameters, beside the published line.
"""
