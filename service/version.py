"""The version of this code, as pyproject.toml states it."""

VERSION = "0.1.0"
