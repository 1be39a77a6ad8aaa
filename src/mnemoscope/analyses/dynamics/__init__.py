"""Analyses over training steps and runs: when something sets in, how suddenly, and in which order."""
