"""The service: the path of `pairmark.models`, over HTTP."""

if __name__ != "pairmark.service":
    # Reached by the link at the top of a checkout: every module would exist twice.
    raise ImportError(f"import pairmark.service, not {__name__}")
