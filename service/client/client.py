"""The client: all its calls together."""

from __future__ import annotations

from pairmark.client.galleries import Galleries
from pairmark.client.models import Models
from pairmark.client.scoring import Scoring
from pairmark.client.training import Training


class Client(Scoring, Galleries, Training, Models):
    """A synchronous client. Safe to share between threads; close it, or use it in a ``with`` block.

    Parameters
    ----------
    url : address of the service; default PAIRMARK_URL, else http://127.0.0.1:8000.
    api_key : default PAIRMARK_API_KEY.
    timeout : seconds that one request may take (uploads and event streams: without activity).
    retries : how often a 429 or 503 is tried again after its Retry-After (at most 30 s each).
    transport : an httpx transport, for tests and for the embedded service.
    """
