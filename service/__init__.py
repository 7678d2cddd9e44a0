"""The service: the path of `models`, over HTTP."""

from service.deferred import defer

# What others import whole though nothing that serves calls it: scikit-learn the first four, SciPy the last.
for name in ("scipy.stats", "narwhals", "narwhals.stable", "narwhals.stable.v2", "numpy.f2py"):
    defer(name)
del name
