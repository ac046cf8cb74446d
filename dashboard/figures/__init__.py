"""Figures as plain dictionaries that Plotly draws: one file per card, each a pure function of outcomes."""
