"""Tests of methods of circuit discovery and of known circuits."""
