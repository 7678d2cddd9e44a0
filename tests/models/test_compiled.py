"""What compiling does to the rest of a process."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numba
import pytest
from numba.core import event

from pairmark import MetricSimilarity  # noqa: F401 - which compiles


class Watch(event.Listener):
    """Whether garbage is collected while numba compiles."""

    def __init__(self) -> None:
        self.seen = list[bool]()

    def on_start(self, event: Any) -> None:
        self.seen.append(gc.isenabled())

    def on_end(self, event: Any) -> None:
        pass


@pytest.fixture
def _as_it_was() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.usefixtures("_as_it_was")
@pytest.mark.parametrize("is_enabled", [True, False])
def test_garbage_is_collected_after_compiling_as_before(is_enabled: bool) -> None:
    (gc.enable if is_enabled else gc.disable)()

    @numba.njit
    def inner(x):
        return x + 1

    @numba.njit
    def outer(x):
        return inner(x)

    @numba.njit
    def wrong(x):
        return x.nothing

    with event.install_listener("numba:compile", Watch()) as watch:
        assert outer(1) == 2
        with pytest.raises(numba.TypingError):
            wrong(1)
    assert watch.seen
    assert not any(watch.seen)
    assert gc.isenabled() == is_enabled


def test_a_module_may_be_imported_while_numba_compiles() -> None:
    code = """
        import gc
        from numba.core import event
        with event.trigger_event("numba:compile"):
            import pairmark.models.core.compiled
        assert gc.isenabled()
    """
    subprocess.run([sys.executable, "-c", "if True:" + code], check=True)
