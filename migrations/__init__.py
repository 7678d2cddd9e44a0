"""Alembic migrations; they travel inside the wheel."""
