"""Keeping a deployment safe: backup, restore, and a check-up that says what to do."""
