"""Loaded versions: scoring, decisions and checks of inputs."""
