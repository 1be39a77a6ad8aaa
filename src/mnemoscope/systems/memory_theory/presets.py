"""The system: it is about draws of random associations and trains no runs."""

from mnemoscope import SYSTEMS, System

SYSTEMS.add(
    "memory-theory",
    System(summary="how many associations a matrix, an MLP or a sum of outer products stores", quick=(), full=()),
)
