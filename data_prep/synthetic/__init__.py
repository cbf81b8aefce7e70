"""Procedural pictures with exact annotations, deterministic in (seed, index)."""
