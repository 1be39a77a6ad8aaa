"""Matching brackets: which heads find the opening bracket that a closing one has to match?"""
