"""The system: it asks language models and trains no runs."""

from mnemoscope import SYSTEMS, System

SYSTEMS.add(
    "retrieval-prompts",
    System(summary="retrieval in several steps, put to language models in words", quick=(), full=()),
)
