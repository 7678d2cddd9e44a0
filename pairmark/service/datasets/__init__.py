"""Uploads: files in, typed arrays stored, versions listed."""
