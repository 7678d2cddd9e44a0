"""The Python client: the service's endpoints as calls, NumPy arrays in and out where NumPy is installed.

>>> from pairmark.client import Client
>>> client = Client("http://127.0.0.1:8000", api_key="pm_...")
>>> client.similarity(left, right, model="faces")        # (n,) float32
>>> client.match(left, right, fpr=0.001).matches         # (n,) bool

`AsyncClient` has the same methods, to be awaited. Answers are models of `pairmark.schemas`; ``answer["name"]`` gives
any member of the JSON. An endpoint without a method is called by ``client.request("GET", "/keys").json()``, a list by
``client.pages("/audit")``.

Errors are one tree::

    ClientError
    ├── Unreachable            nobody answers at that address
    ├── TimedOut               the service is there, and did not answer in time
    ├── JobFailed              a job that was waited for failed or was cancelled (.job)
    ├── InvalidName            a name that cannot stand in an address; nothing was sent (a ValueError too)
    └── Problem                the service refused (.status, .slug, .title, .detail, .facts)
        ├── InvalidInput       400, 415, 422
        │   └── InsufficientCalibration   (.facts: smallest_fpr, required_units)
        ├── Denied             401, 403
        ├── NotFound           404
        ├── Conflict           409, 412
        ├── TooLarge           413
        ├── Busy               429, 503: still so after the retries
        └── ServerFailed       other 5xx
"""

from pairmark.client.client import AsyncClient, Client
from pairmark.client.scoring import MatchResult
from pairmark.client.transport import (
    Busy,
    ClientError,
    Conflict,
    Denied,
    InsufficientCalibration,
    InvalidInput,
    InvalidName,
    JobFailed,
    NotFound,
    Problem,
    ServerFailed,
    TimedOut,
    TooLarge,
    Unreachable,
)
from pairmark.schemas.base import Answer

__all__ = [
    "Answer",
    "AsyncClient",
    "Busy",
    "Client",
    "ClientError",
    "Conflict",
    "Denied",
    "InsufficientCalibration",
    "InvalidInput",
    "InvalidName",
    "JobFailed",
    "MatchResult",
    "NotFound",
    "Problem",
    "ServerFailed",
    "TimedOut",
    "TooLarge",
    "Unreachable",
]
