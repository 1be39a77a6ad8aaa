"""The small models that the community took apart: palindromes, first unique letter, sum, sorted list, running sum and
balanced brackets (system S10).
"""
