"""The clients: all calls together, blocking or asynchronous."""

from __future__ import annotations

from pairmark.client.galleries import Galleries
from pairmark.client.models import Models
from pairmark.client.scoring import Scoring
from pairmark.client.training import Training
from pairmark.client.transport import AsyncTransport, SyncTransport


class Client(SyncTransport, Scoring, Galleries, Training, Models):
    """A synchronous client. Safe to share between threads; close it, or use it in a ``with`` block.

    Parameters
    ----------
    url : address of the service; default PAIRMARK_URL, else http://127.0.0.1:8000.
    api_key : default PAIRMARK_API_KEY.
    timeout : seconds that one request may take (uploads and event streams: without activity).
    retries : how often a 429 or 503 is tried again after its Retry-After (at most 30 s each).
    transport : an httpx transport, for tests and for the embedded service.
    """


class AsyncClient(AsyncTransport, Scoring, Galleries, Training, Models):
    """The same methods, to be awaited; `items`, `events` and `pages` are asynchronous iterators.

    Use it in an ``async with`` block, or await ``close()``. Parameters are those of `Client`; ``transport`` is an
    asynchronous httpx transport. Files are read in the event loop's thread, a piece at a time.
    """
