"""Metrics on the host: fed photo by photo, each value with its count."""
