"""What learners share. Any of it imports scikit-learn, without ``scipy.stats``, which is half of that import's time."""

import sys
from contextlib import suppress
from types import ModuleType

if "sklearn.utils.fixes" not in sys.modules and "scipy.stats" not in sys.modules:
    # scikit-learn imports it for `mode`, which nothing here calls. An empty module stands in for it meanwhile: whoever
    # asks for `scipy.stats` afterwards, scikit-learn's `mode` too, gets the real one.
    sys.modules["scipy.stats"] = ModuleType("scipy.stats")
    # A scikit-learn that needs more of it is imported in the ordinary way by whoever is next.
    with suppress(ImportError, AttributeError):
        import sklearn.utils.fixes  # noqa: F401
    del sys.modules["scipy.stats"]
