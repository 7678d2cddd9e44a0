"""The service: the path of `pairmark.models`, over HTTP."""
