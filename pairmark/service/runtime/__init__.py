"""Loaded versions: scoring, decisions and live checks."""
