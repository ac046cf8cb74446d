"""Measurements of others as profiles and curves, one format per file."""
