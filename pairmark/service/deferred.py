"""Imports that wait until they are used, so that the service is ready sooner.

scikit-learn imports `scipy.stats` whole for functions that serving never calls, which was a quarter of what starting
cost. The standard library's lazy loader gives nothing here: before Python 3.12 the import statement itself reads an
attribute of the module, which makes it load.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any


class _Deferred(ModuleType):
    """A module whose code runs when the first of its names is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        spec = self.__spec__
        assert spec is not None
        loader = spec.loader
        assert isinstance(loader, _Later)
        loader.load(self)
        try:
            return self.__dict__[name]
        except KeyError:
            # Also while it loads: the import of a submodule looks here first.
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


class _Later(Loader):
    """Makes the module at once and runs its code on `load`; a second thread waits for the first."""

    def __init__(self, real: Loader) -> None:
        self._real = real
        self._lock = threading.RLock()
        self._entered = False

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Deferred(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass

    def load(self, module: ModuleType) -> None:
        with self._lock:
            if self._entered:
                return
            self._entered = True
            try:
                self._real.exec_module(module)
            except BaseException:
                self._entered = False
                raise


class _Finder(MetaPathFinder):
    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Later(spec.loader)
        return spec


def defer(name: str) -> None:
    """Let the module load when it is first used. Nothing happens when it is loaded already."""
    if name not in sys.modules:
        sys.meta_path.insert(0, _Finder(name))


def defer_unused() -> None:
    """For a process that is ours alone: put off what others import whole though serving never calls it."""
    # scikit-learn imports the first four, SciPy the last.
    for name in ("scipy.stats", "narwhals", "narwhals.stable", "narwhals.stable.v2", "numpy.f2py"):
        defer(name)


def defer_models() -> None:
    """For a process that is ours alone: have pydantic's models, FastAPI's among them, build what validates and writes
    them when the first object is made."""
    import pydantic

    # Before 2.14 two threads that met there could take the validator of a parent.
    if tuple(map(int, pydantic.VERSION.split(".")[:2])) >= (2, 14):
        pydantic.BaseModel.model_config["defer_build"] = True


def skip_exports(*packages: str) -> None:
    """For a process that is ours alone and names modules in full: make packages whose ``__init__`` only gathers names
    for others without running it, which would import all that they hold."""
    for name in packages:
        parent, _, own = name.rpartition(".")
        within = importlib.import_module(parent)
        spec = PathFinder.find_spec(name, within.__path__)
        assert spec is not None
        module = module_from_spec(spec)
        sys.modules[name] = module
        setattr(within, own, module)
