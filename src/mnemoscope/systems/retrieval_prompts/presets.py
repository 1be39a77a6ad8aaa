"""The system: it asks language models and trains no runs."""

from mnemoscope import SYSTEMS, System

SYSTEMS.add(
    "retrieval-prompts",
    System(summary="retrieval in several steps, as prompts for language models", quick=(), full=()),
)
