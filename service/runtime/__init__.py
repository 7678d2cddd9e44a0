"""Loaded versions and what they answer."""
