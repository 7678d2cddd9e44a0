"""The application: features behind endpoints, endpoints behind the guard."""

import asyncio
import contextlib
import gc
import logging
import signal
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from pairmark.models.calibration.warmup import warm_calibration
from pairmark.service.api import docs, metrics, problems
from pairmark.service.api.access import admit
from pairmark.service.api.guard import Application, Guard
from pairmark.service.api.problems import MethodNotAllowed, ProblemAnswer, UnknownAddress
from pairmark.service.api.routers import ROUTERS, guarded_routes
from pairmark.service.api.routing import PlainRoute
from pairmark.service.api.services import Services, keep_galleries
from pairmark.service.console import pages as console
from pairmark.service.console.frame import Refused, show_refusal
from pairmark.service.errors import PairmarkError, invalid_field
from pairmark.service.processes import return_memory
from pairmark.service.settings import Settings
from pairmark.version import VERSION

log = logging.getLogger(__name__)

TRUSTED = "pairmark.trusted"
PUBLISH_S = 1.0
DELIVER_S = 2.0
KEEP_USE_TICKS = 30
HELPERS = 64
"""Threads for short work; more than the requests that may have one, so that none waits for another's."""
START_PATIENCE_S = 60.0
"""How long a start waits for the database and its schema, which another container may still be making."""


def create_app(settings: Settings | None = None, *, warm: bool = True) -> Application:
    """The ASGI application of one serving process.

    Parameters
    ----------
    settings : default: from ``PAIRMARK_*`` in the environment.
    warm : load what is promoted at the start; one that answers a single command loads only what it needs.
    """
    settings = settings or Settings()
    services = Services(settings)
    app = Application(
        title="Pairmark",
        version=VERSION,
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={
            RequestValidationError: _invalid_request,
            HTTPException: _refusal_of,
            Refused: show_refusal,
        },
    )
    app.state.services = services
    app.state.own_process = False
    app.state.warm = warm
    for router in (*ROUTERS, *console.ROUTERS):
        # As they are: `include_router` makes each anew at the first request, on the event loop and, for the document,
        # in a thread at once, and what silences pydantic's warnings then is not safe for threads.
        app.router.routes.extend(router.routes)
    if docs.GUIDE.is_dir():
        app.mount("/guide", StaticFiles(directory=docs.GUIDE, html=True))
    app.plain = {
        (route.method, route.path): Guard(route.answer, settings=settings)
        for route in guarded_routes()
        if isinstance(route, PlainRoute) and "{" not in route.path
    }
    app.add_middleware(Guard, settings=settings)
    app.openapi = partial(docs.document, app)  # type: ignore[method-assign]
    return app


@contextlib.contextmanager
def embedded_transport(app: Callable[..., Any]) -> Iterator[Any]:
    """An httpx transport to the application, which answers on a socket in a folder of this user's until the block ends.

    Its requests are marked as trusted, which nothing that arrives over the network can be: who can read the embedded
    database needs no key to it.
    """
    import httpx
    import uvicorn

    failures: list[BaseException] = []

    async def trusted(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app({**scope, TRUSTED: True}, receive, send)
        except BaseException as error:
            failures.append(error)
            raise

    with tempfile.TemporaryDirectory(prefix="pairmark-") as folder:
        path = f"{folder}/socket"
        config = uvicorn.Config(
            trusted,
            uds=path,
            log_config=None,
            log_level="critical",
            access_log=False,
            ws="none",
            lifespan="on",
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, name="pairmark-embedded", daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.005)
            if not server.started:
                raise failures[0]
            with httpx.HTTPTransport(uds=path) as transport:
                yield transport
        finally:
            server.should_exit = True
            thread.join()


async def _invalid_request(_: Request, error: Exception) -> Any:
    """The first thing wrong with a request, by field. Never what was sent: a NaN in it could not be serialized."""
    assert isinstance(error, RequestValidationError)
    return ProblemAnswer(invalid_field(error.errors()))


async def _refusal_of(request: Request, error: Exception) -> Any:
    """What the framework refuses; whatever goes wrong with a body it takes for a malformed one."""
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, PairmarkError):
        raise error.__cause__
    if error.status_code not in (404, 405):
        return ProblemAnswer(problems.status_problem(error), error.headers)
    services: Services = request.app.state.services
    await admit(services, request.scope, "any", {}, "read")
    if error.status_code == 404:
        return ProblemAnswer(UnknownAddress("there is nothing at this address; /docs lists what there is"))
    routes = guarded_routes(*ROUTERS, *console.ROUTERS)
    path = request.scope["path"]
    allowed = ", ".join(sorted({route.method for route in routes if route.path_regex.match(path)}))
    return ProblemAnswer(MethodNotAllowed(f"this address takes {allowed}"), {"allow": allowed})


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    app.state.closing = asyncio.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(HELPERS, thread_name_prefix="helper"))
    await asyncio.to_thread(services.database.wait, START_PATIENCE_S, for_tables=True)
    await services.runtime.catalogue.refreshed()
    warming = asyncio.create_task(_warm(app)) if app.state.warm else None
    upkeep = asyncio.create_task(keep_galleries(services)) if app.state.warm else None
    publishing = asyncio.create_task(_publish(services))
    delivering = asyncio.create_task(_deliver(services)) if services.webhooks.on else None
    with _told_of_the_end(app.state.closing, services.settings.drain_s):
        yield
    app.state.closing.set()
    for task in (warming, delivering, upkeep):
        if task is not None:
            task.cancel()
    publishing.cancel()
    await asyncio.to_thread(_keep_use, services)
    await services.recorder.flush(closing=True)
    services.runtime.close()
    services.galleries.close()
    # The next view of names may be being read, ahead of who would have asked.
    await services.runtime.catalogue.settled()
    services.database.dispose()


async def _publish(services: Services) -> None:
    """Turn counts of live scores into metrics every second; keep the keys' last use and give memory back twice a
    minute: each costs more than a score."""
    for tick in count(1):
        await asyncio.sleep(PUBLISH_S)
        metrics.publish_inputs(services.runtime.inputs.watches())
        await services.recorder.flush()
        if tick % KEEP_USE_TICKS == 0:
            await asyncio.to_thread(_keep_use, services)
            await asyncio.to_thread(return_memory)


async def _deliver(services: Services) -> None:
    """Send what is due to webhooks, as long as the service runs; a look does not wait for what others found."""
    async with asyncio.TaskGroup() as looks:
        while True:
            await asyncio.sleep(DELIVER_S)
            looks.create_task(_tell(services))


async def _tell(services: Services) -> None:
    try:
        await services.webhooks.deliver()
    except PairmarkError as error:
        log.warning("webhooks wait: %s", error.detail)


def _keep_use(services: Services) -> None:
    uses = dict(services.last_use)
    if not uses:
        return
    try:
        services.keys.note_uses(uses)
    except PairmarkError:
        return
    for key_id, at in uses.items():
        if services.last_use.get(key_id) == at:
            del services.last_use[key_id]


async def _warm(app: FastAPI) -> None:
    services: Services = app.state.services
    try:
        await services.runtime.load_promoted()
        await asyncio.to_thread(warm_calibration)
        services.runtime.warm = True
    except Exception:
        log.exception("promoted versions could not be loaded; the service stays not ready")
    finally:
        if app.state.own_process:
            # What is loaded by now stays: the collector need not look at it again and again.
            gc.freeze()
            gc.enable()


@contextlib.contextmanager
def _told_of_the_end(closing: asyncio.Event, drain_s: float) -> Iterator[None]:
    """Set ``closing`` as soon as the process is asked to stop: the server waits for open event streams, which
    would otherwise go on until their jobs end. The server itself is stopped ``drain_s`` later."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    previous: dict[int, Any] = {}

    def tell(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(closing.set)
        if not callable(previous[number]):
            return
        if drain_s and not closing.is_set():
            loop.call_soon_threadsafe(loop.call_later, drain_s, previous[number], number, None)
        else:
            previous[number](number, frame)

    for number in map(int, (signal.SIGTERM, signal.SIGINT)):
        previous[number] = signal.getsignal(number)
        if callable(previous[number]):
            signal.signal(number, tell)
    try:
        yield
    finally:
        for number, handler in previous.items():
            if signal.getsignal(number) is tell:
                signal.signal(number, handler)
