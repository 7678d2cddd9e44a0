"""Alembic migrations; they travel inside the wheel."""

HEAD = "0007"
"""The newest revision: a database that is at it needs no look at the scripts."""
