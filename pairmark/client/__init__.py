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
    TimedOut,
    TooLarge,
    Unreachable,
)
from pairmark.client.results import BayesResult, CandidateScores, MatchResult
from pairmark.schemas.base import Answer
from pairmark.schemas.datasets import DatasetOut as Dataset
from pairmark.schemas.galleries import CandidatesOut as Candidates
from pairmark.schemas.galleries import GalleryOut as Gallery
from pairmark.schemas.galleries import ItemOut as Item
from pairmark.schemas.galleries import ReceiptOut as Receipt
from pairmark.schemas.galleries import SearchHit as Hit
from pairmark.schemas.galleries import SearchOut as SearchResult
from pairmark.schemas.galleries import UpsertOut as Enrolled
from pairmark.schemas.galleries import VerifyOut as Verification
from pairmark.schemas.jobs import JobOut as Job
from pairmark.schemas.models import AliasOut as Alias
from pairmark.schemas.models import CalibrationOut as Calibration
from pairmark.schemas.models import EvaluationOut as Evaluation
from pairmark.schemas.models import LearnerOut as Learner
from pairmark.schemas.models import ModelOut as Model
from pairmark.schemas.models import VersionOut as Version
from pairmark.schemas.reviews import ReviewOut as Review
from pairmark.schemas.scoring import ClassesOut as Classes
from pairmark.schemas.scoring import ExplanationOut as Explanation
from pairmark.schemas.scoring import ModelUsedOut as ModelUsed
from pairmark.schemas.scoring import OperatingPointOut as OperatingPoint
from pairmark.schemas.scoring import RankingOut as Ranking
from pairmark.schemas.scoring import RankingsOut as Rankings
from pairmark.schemas.webhooks import DeliveryOut as Delivery
from pairmark.schemas.webhooks import NewWebhookOut as NewWebhook
from pairmark.schemas.webhooks import WebhookOut as Webhook

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
    "TimedOut",
    "TooLarge",
    "Unreachable",
    "Verification",
    "Version",
    "Webhook",
]
