"""How kernels are compiled: cached on disk, free of the GIL, and never in need of a writable disk.

A kernel is compiled in two forms. Called from Python it has a wrapper and machine code, which is cached. Called from
another kernel it is a part: code that is handed to LLVM once, within whatever calls it.

Released wheels bring machine code along (``PAIRMARK_COMPILE=1`` in setup.py), made for `PORTABLE_CPU`: an installation
that has it compiles nothing. It is found by the sources' contents, numba's version, Python's and the signature, so what
does not fit is compiled as ever.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import logging
import platform
import time
from collections.abc import Callable
from functools import cache, cached_property
from itertools import count
from pathlib import Path
from typing import Any, Self

import numba
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import event as numba_events
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

PORTABLE_CPU = {"x86_64": "x86-64-v3", "aarch64": "generic", "arm64": "apple-m1"}.get(platform.machine())
"""What shipped machine code is made for, in LLVM's words: x86-64 from 2013 on (AVX2), any arm64."""
SHIPPED = "compiled"
"""Folder beside kernels' sources that holds it."""
NOTABLE = 8
"""So many functions compiled in a process are worth a message: they take a second and more."""
_PORTABLE_FEATURES = {"avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt"}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel at its first call and keep the machine code in numba's cache.

    Numba looks for a writable folder (``NUMBA_CACHE_DIR``, then beside the source, then the user's cache). Where none
    is to be had, the kernel is compiled in each process.
    """
    return _compiled(function)


def estimating_kernel(function: Callable[..., Any]) -> Any:
    """As `kernel`, for sums that may be taken in any order: several times faster, and never to be shown as a score."""
    return _compiled(function, fastmath={"reassoc", "contract"})


def is_ready(compiled: Any) -> bool:
    """Whether a kernel was compiled in this process, or `is_cached`: a first call takes no more than moments."""
    return bool(compiled.signatures) or is_cached(compiled)


class CompileClock(numba_events.Listener):
    """Wall seconds for which numba compiled kernels, while the block runs, in any thread of the process."""

    _events: Any = numba_events

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._begun = 0, 0.0

    def __enter__(self) -> Self:
        self._events.register("numba:compile", self)
        return self

    def __exit__(self, *error: object) -> None:
        self._events.unregister("numba:compile", self)

    # Numba holds its lock while it compiles: events of two threads do not cross.
    def on_start(self, event: Any) -> None:
        """A kernel begins, or one that it calls."""
        if not self._depth:
            self._begun = time.monotonic()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """It is compiled."""
        self._depth -= 1
        if not self._depth:
            self.seconds += time.monotonic() - self._begun


def is_cached(compiled: Any) -> bool:
    """Whether numba's cache holds machine code of a kernel as its source is now."""
    indices = [getattr(compiled._cache, name, None) for name in ("_cache_file", "shipped")]
    return any(index is not None and index._load_index() for index in indices)


_log = logging.getLogger("pairmark")
_numbers = count(1)
# Numba's declaration leaves out options that it takes.
_njit: Any = numba.njit


class _TellingCompiler(Compiler):
    """Compiles, and says so once where it takes a while.

    Meanwhile nobody looks for garbage, which would be a sixth of the time: hardly anything of a compilation is any
    before its end.
    """

    def compile_extra(self, func: Any) -> Any:
        compiler: Any = super()
        collects = gc.isenabled()
        gc.disable()
        try:
            return compiler.compile_extra(func)
        finally:
            # Of kernels within kernels only the outermost; numba's lock keeps other threads out.
            if collects:
                gc.enable()

    def define_pipelines(self) -> Any:
        if next(_numbers) == NOTABLE:
            _log.warning(
                "compiling for this processor, which takes up to a minute; the code is kept, so that it happens once "
                "(ahead of time: pairmark warmup)"
            )
        compiler: Any = super()
        return compiler.define_pipelines()


class _PartLibrary(JITCodeLibrary):
    """Code that is only ever linked into other code: what LLVM would make of it alone is used by nobody."""

    @property
    def codegen(self) -> Any:
        """Where a function's environment would be set, which only functions called from Python have."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Nothing to do."""

    def get_pointer_to_function(self, name: str) -> int:
        """There is no machine code to point to."""
        return 0

    def _optimize_final_module(self) -> None:
        """Left to the kernel that it becomes part of."""

    def _finalize_final_module(self) -> None:
        library: Any = self
        library._finalize_dynamic_globals()
        library._verify_declare_only_symbols()
        library._finalized = True


class _PartCompiler(_TellingCompiler):
    def define_pipelines(self) -> Any:
        state = self.state
        library: Any = _PartLibrary
        state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    options |= {"error_model": "numpy", "no_cfunc_wrapper": True}
    compiled = _njit(nogil=True, pipeline_class=_TellingCompiler, **options)(function)
    compiled._cache = _Cache(function)

    @cache
    def part() -> Any:
        return _njit(no_cpython_wrapper=True, pipeline_class=_PartCompiler, **options)(function)

    # Other kernels that call this one take the part, compiled for the types of constants as for any other value of
    # them: numba types each constant by its value first, and so compiles what is called with 0 and with ``n`` twice.
    unliteral: Any = types.unliteral
    compiled.get_call_template = lambda args, kws: part().get_call_template(
        tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in kws.items()}
    )
    compiled.get_overload = lambda signature: part().get_overload(signature)
    compiled.part = part
    return compiled


class _Cache:
    """Numba's cache of a kernel, which looks for a writable folder when it is first asked and not at the import."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    @cached_property
    def _own(self) -> Any:
        cache_of: Any = FunctionCache
        try:
            own = cache_of(self._function)
        except RuntimeError:
            return NullCache()
        # Numba looks at the size and time of the kernel's own file, which may call helpers from other files of its
        # folder; and times are those of installing.
        folder = Path(inspect.getfile(self._function)).parent
        own._cache_file._source_stamp = _folder_digest(folder)
        _forget_unreadable(own._cache_file)
        if _runs_portable_code() and (folder / SHIPPED).is_dir():
            _look_among_shipped(own, folder)
        return own


def _forget_unreadable(cache_file: Any) -> None:
    """Have a cache's index that cannot be read count as empty: the kernel is compiled again, and the index replaced.

    Numba unpickles an index before it compares stamps. An index of an earlier release may name types that have gone.
    """
    load_index = cache_file._load_index

    def load() -> Any:
        try:
            return load_index()
        except Exception:
            return {}

    cache_file._load_index = load


def _look_among_shipped(own: Any, folder: Path) -> None:
    """Have a kernel's cache look among what was shipped for what it does not hold itself."""
    cache_file: Any = IndexDataCacheFile
    own.shipped = cache_file(str(folder / SHIPPED), own._impl.filename_base, own._cache_file._source_stamp)
    _forget_unreadable(own.shipped)
    load_own = own._load_overload

    def load(signature: Any, context: Any) -> Any:
        there = load_own(signature, context)
        if there is not None:
            return there
        kind, (triple, *_), code = own._index_key(signature, context.codegen())
        data = own.shipped.load((kind, (triple, PORTABLE_CPU, ""), code))
        return None if data is None else own._impl.rebuild(context, data)

    own._load_overload = load


@cache
def _runs_portable_code() -> bool:
    """Whether this machine has the instructions of `PORTABLE_CPU`."""
    if PORTABLE_CPU is None or platform.machine() != "x86_64":
        return PORTABLE_CPU is not None
    features = get_host_cpu_features()
    return all(features.get(name, False) for name in _PORTABLE_FEATURES)


@cache
def _folder_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for source in sorted(folder.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()
