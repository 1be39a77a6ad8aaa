"""Heads alone and together, their wiring, the progress of subcircuits, and the course of a loss."""
