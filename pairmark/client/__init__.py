"""The Python client: the service's endpoints as calls, NumPy arrays in and out.

>>> from pairmark.client import Client
>>> client = Client("http://127.0.0.1:8000", api_key="pm_...")
>>> client.similarity(left, right, model="faces")        # (n,) float32
>>> client.match(left, right, fpr=0.001).matches         # (n,) bool

`AsyncClient` has the same methods, to be awaited. Answers are records with typed fields (`Job.state`,
`OperatingPoint.threshold`); ``answer["name"]`` gives any member of the JSON.

Errors are one tree::

    ClientError
    ├── Unreachable            nobody answers at that address
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
from pairmark.client.errors import (
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
    TooLarge,
    Unreachable,
)
from pairmark.client.operations import Delivery, NewWebhook, Tenant, Webhook
from pairmark.client.results import (
    Alias,
    Answer,
    BayesResult,
    Calibration,
    Candidates,
    CandidateScores,
    Classes,
    Dataset,
    Enrolled,
    Evaluation,
    Explanation,
    Gallery,
    Hit,
    Item,
    Job,
    Learner,
    MatchResult,
    Model,
    ModelUsed,
    OperatingPoint,
    Ranking,
    Rankings,
    Receipt,
    SearchResult,
    Verification,
    Version,
)
from pairmark.client.reviews import Review

__all__ = [
    "Alias",
    "Answer",
    "AsyncClient",
    "BayesResult",
    "Busy",
    "Calibration",
    "CandidateScores",
    "Candidates",
    "Classes",
    "Client",
    "ClientError",
    "Conflict",
    "Dataset",
    "Delivery",
    "Denied",
    "Enrolled",
    "Evaluation",
    "Explanation",
    "Gallery",
    "Hit",
    "InsufficientCalibration",
    "InvalidInput",
    "InvalidName",
    "Item",
    "Job",
    "JobFailed",
    "Learner",
    "MatchResult",
    "Model",
    "ModelUsed",
    "NewWebhook",
    "NotFound",
    "OperatingPoint",
    "Problem",
    "Ranking",
    "Rankings",
    "Receipt",
    "Review",
    "SearchResult",
    "ServerFailed",
    "Tenant",
    "TooLarge",
    "Unreachable",
    "Verification",
    "Version",
    "Webhook",
]
