"""Measurements on models of factual recall.

`stages`: what a model knows of a fact, the relation alone or the subject too, and when it comes to know it.
"""
