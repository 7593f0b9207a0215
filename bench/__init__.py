"""Measurements of streamglm: each one proves equality first, then takes times.

Owns the load generator, the peers and the record of results. Not part of the package that is
installed. Start at `README.md` beside this file.
"""
