"""The system: it is about language models that somebody names, and trains no runs."""

from mnemoscope import SYSTEMS, System

SYSTEMS.add(
    "language-models",
    System(summary="published circuits of language models, tested on any model", quick=(), full=()),
)
