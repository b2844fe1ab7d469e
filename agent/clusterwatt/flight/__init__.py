"""The flight recorder: the last minutes of every GPU and port at full rate, kept when something breaks.

A scraper that comes each 15 s has never seen what happened in the second before a GPU was lost.
"""
