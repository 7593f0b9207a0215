"""Constraints to grammars, in a process apart. Knows no HTTP, no lanes and no model."""
