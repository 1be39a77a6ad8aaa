"""The system: it is about language models that somebody names, and trains no runs."""

from mnemoscope import SYSTEMS, System

SYSTEMS.add(
    "language-models",
    System(summary="claims about the circuits of language models, asked of any of them", quick=(), full=()),
)
