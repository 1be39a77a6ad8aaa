"""Analyses over training steps and runs: the onset of measures, their suddenness, and their order."""
