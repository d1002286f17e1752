"""Judges a metric; never trains."""
