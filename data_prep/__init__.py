"""Builds, checks and generates records; the only writer of data sets."""
