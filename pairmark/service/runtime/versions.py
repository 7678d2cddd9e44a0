"""Versions in memory: each loaded once and warmed up before it serves; vectors in, scores out; and what rows each
decides on, held against its calibration."""

import asyncio
import hashlib
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from prometheus_client import Counter, Gauge
from pydantic_core import to_json

from pairmark.models.calibration.inputs import TOGETHER, RowRanges, StreamMonitor
from pairmark.models.core.arrays import Float32
from pairmark.models.core.base import score_checked, score_subjects
from pairmark.models.core.scores import SampleSets
from pairmark.models.records.schema import Schema, is_plain, schema_of_model
from pairmark.models.registry import spec_of
from pairmark.service.errors import (
    CorruptArtefact,
    InvalidInput,
    ModelNotCapable,
    PairmarkError,
    out_of_files,
)
from pairmark.service.runtime.catalogue import CatalogueView, VersionEntry

LOADS: Final = Counter("pairmark_model_loads", "Versions read into memory, by outcome.", ["outcome"])
LOADED: Final = Gauge("pairmark_loaded_models", "Versions in memory.", multiprocess_mode="livesum")
FEW, FEW_NUMBERS = 64, 1_000_000
"""So few pairs, of so few numbers, take no time worth a thread."""


_FEW_NUMBERS_AT_ONCE = 16
"""So many numbers are looked at one by one in less time than two passes over an array take to begin."""


def check_finite(values: Any, *, noun: str, what: str, field: str) -> None:
    """Refuse results that are not finite, by row: ``noun`` is what a row is called (``pair``), ``what`` its value
    (``score``), ``field`` where the vectors came in."""
    if values.size <= _FEW_NUMBERS_AT_ONCE and all(map(math.isfinite, values.ravel().tolist())):
        return
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
        raise InvalidInput(
            f"the {what} of {noun} {row} is not finite: its vectors are too extreme for this model",
            field=field,
            **{noun: row},
        )


@dataclass(kw_only=True, eq=False)
class LoadedVersion:
    """A version in memory, ready to score.

    Attributes
    ----------
    entry : which version it is. estimator : the fitted learner.
    n_features : numbers a vector. accepts_sparse : whether sparse vectors are scored as they are.
    feature_names, label_names, class_names : of the training data, where known.
    seconds_a_point : about how long one point takes to rank or classify.
    seconds_a_pair : how long a pair took in the last batch of more than `FEW`.
    public, json : how answers name the version.
    schema, columns : of the records that it takes, if it does; ``encoder`` makes its vectors of them.
    """

    entry: VersionEntry
    estimator: Any
    n_features: int
    accepts_sparse: bool
    schema: Schema | None = field(init=False)
    feature_names: list[str] | None = None
    label_names: list[str] | None = None
    class_names: list[str] | None = None
    seconds_a_point: float = 0.0
    seconds_a_pair: float = math.inf

    def __post_init__(self) -> None:
        self.key = self.entry.model_id, self.entry.version
        self.calibration_id = self.entry.calibration_id
        self.public = {"name": self.entry.name, "version": self.entry.version, "kind": self.entry.kind}
        self.json = to_json(self.public)
        self.schema, self.encoder = schema_of_model(self.estimator), self.estimator.encoder_
        self.columns = [] if self.schema is None else [column.name for column in self.schema.fields]
        self.takes_vectors = self.schema is None or is_plain(self.schema)

    def seconds(self, n_pairs: int) -> float:
        """About how long so many pairs take to score."""
        if n_pairs <= FEW:
            return 0.0 if n_pairs * self.n_features <= FEW_NUMBERS else math.inf
        return n_pairs * self.seconds_a_pair

    def score(self, left: Any, right: Any) -> Float32:
        """Scores of finite float32 rows of the model's dimension; a single row meets every row of the other side.

        Returns
        -------
        (n,) float32, higher is more similar; swapping the sides changes no bit.
        """
        n = max(left.shape[0], right.shape[0])
        # Both sides were validated as they were parsed, so the estimator's own checks are not paid again.
        start = time.perf_counter()
        scores = score_checked(self.estimator, left, right)
        if n > FEW:
            self.seconds_a_pair = (time.perf_counter() - start) / n
        check_finite(scores, noun="pair", what="score", field="left")
        return scores

    def aggregation(self, name: str) -> str:
        """How subjects of several samples are compared: what was asked, or what ``auto`` means for this model."""
        able: tuple[str, ...] = self.estimator.aggregations
        if name == "auto":
            return able[0]
        if name not in able:
            raise ModelNotCapable(
                f"aggregation {name!r} needs a PLDA model that scores log-likelihood ratios; {self.entry.name}:"
                f"{self.entry.version} ({self.entry.kind}) has {', '.join(able)}",
                field="aggregation",
                aggregations=list(able),
            )
        return name

    def score_subjects(self, left: SampleSets, right: SampleSets, how: str) -> Float32:
        """Scores of subjects of several samples, (n,); ``how`` is what `aggregation` returned."""
        scores = score_subjects(self.estimator, left, right, how)
        check_finite(scores, noun="pair", what="score", field="left")
        return scores


log = logging.getLogger(__name__)

SWITCH_PATIENCE_S = 2.0
"""How long a request by alias waits for a newly promoted version before the previous one answers it."""
RETRY_FAILED_S = 5.0
"""How long a version that failed to load is not tried again."""

VersionKey = tuple[str, int]
"""A model's id and the version's number."""


class LoadedVersions:
    """At most ``limit`` versions, least recently used dropped first. ``load`` reads, verifies and warms one, in a
    thread."""

    def __init__(self, load: Callable[[VersionEntry], LoadedVersion], limit: int) -> None:
        self._load, self._limit = load, limit
        self._versions: OrderedDict[VersionKey, LoadedVersion] = OrderedDict()
        """The one that was used least recently comes first. Used on the event loop only."""
        self._loading: dict[VersionKey, tuple[asyncio.Task[LoadedVersion], float]] = {}
        """Loads under way, and when each began."""
        self._failed: dict[VersionKey, tuple[PairmarkError, float]] = {}
        """Why a version could not be loaded, and until when it is not tried again."""
        self._serving: dict[tuple[str, str], VersionKey] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def cached(self, entry: VersionEntry) -> LoadedVersion | None:
        key = (entry.model_id, entry.version)
        version = self._versions.get(key)
        if version is None:
            return None
        if version.entry is not entry:
            # The same bytes under a newer view: it may have another calibration by now.
            version = self._versions[key] = replace(version, entry=entry)
        self._versions.move_to_end(key)
        return version

    async def get(self, entry: VersionEntry, alias: str | None) -> LoadedVersion:
        """The version, loaded; a request by ``alias`` is answered by what the alias served last while the new
        version is loading for long, or cannot be loaded."""
        key = (entry.model_id, entry.version)
        version = self.cached(entry)
        if version is None:
            previous = self._previous(entry, alias)
            task, began = self._load_of(entry)
            try:
                if previous is None:
                    version = await asyncio.shield(task)
                else:
                    # Counted from the load's start, so that a slow one delays requests once and not each of them.
                    patience = began + SWITCH_PATIENCE_S - time.monotonic()
                    version = await asyncio.wait_for(asyncio.shield(task), max(patience, 0.0))
            except (PairmarkError, TimeoutError):
                if previous is None:
                    raise
                return previous
        if alias is not None:
            self._serving[(entry.model_id, alias)] = key
        return version

    def evict_deleted(self, view: CatalogueView) -> None:
        """Drop versions that the view no longer holds."""
        present = {(model.id, version) for model in view.models.values() for version in model.versions}
        for key in self._versions.keys() - present:
            del self._versions[key]
        LOADED.set(len(self._versions))
        self._serving = {name: key for name, key in self._serving.items() if key in present}
        self._failed = {key: failure for key, failure in self._failed.items() if key in present}

    def _previous(self, entry: VersionEntry, alias: str | None) -> LoadedVersion | None:
        if alias is None:
            return None
        key = self._serving.get((entry.model_id, alias))
        return self._versions.get(key) if key is not None else None

    def _load_of(self, entry: VersionEntry) -> tuple[asyncio.Task[LoadedVersion], float]:
        key = (entry.model_id, entry.version)
        if key not in self._loading:
            task = asyncio.get_running_loop().create_task(self._fetch(entry))
            self._loading[key] = task, time.monotonic()
            task.add_done_callback(lambda ended: self._ended(key, ended))
        return self._loading[key]

    def _ended(self, key: VersionKey, task: asyncio.Task[LoadedVersion]) -> None:
        self._loading.pop(key, None)
        if not task.cancelled():
            task.exception()  # Seen here: the one who waited may have given up.

    async def _fetch(self, entry: VersionEntry) -> LoadedVersion:
        key = (entry.model_id, entry.version)
        failure, until = self._failed.get(key, (None, 0.0))
        if failure is not None and time.monotonic() < until:
            raise type(failure)(failure.detail, **failure.facts)
        try:
            version = await asyncio.get_running_loop().run_in_executor(None, self._load, entry)
        except Exception as error:
            kind = error if isinstance(error, PairmarkError) else out_of_files(error)
            log.error(
                "version could not be loaded",
                extra={"model": entry.name, "version": entry.version},
                exc_info=error,
            )
            problem = kind or CorruptArtefact(
                f"{entry.name}:{entry.version} could not be loaded; it is not served"
            )
            LOADS.labels("failed").inc()
            self._failed[key] = (problem, time.monotonic() + RETRY_FAILED_S)
            if problem is error:
                raise
            raise problem from error
        self._failed.pop(key, None)
        LOADS.labels("loaded").inc()
        self._versions[key] = version
        if len(self._versions) > self._limit:
            self._versions.popitem(last=False)
        LOADED.set(len(self._versions))
        log.info("version loaded", extra={"model": entry.name, "version": entry.version})
        return version


def tree_data(version: LoadedVersion, number: int = 0) -> dict[str, Any]:
    """The version's tree as JSON-able data; ``number`` picks one of a forest's."""
    entry = version.entry
    if not spec_of(entry.kind).has_tree:
        raise ModelNotCapable(f"{entry.name}:{entry.version} is a {entry.kind}, which has no tree to show")
    n_trees = len(version.estimator.trees_)
    if not 0 <= number < n_trees:
        raise InvalidInput(
            f"tree: {number}; {entry.name}:{entry.version} has trees 0 to {n_trees - 1}", field="tree"
        )
    # A lone tree needs no number.
    which = {"tree": number} if n_trees > 1 else {}
    tree: dict[str, Any] = version.estimator.tree_data(version.feature_names, **which)
    return tree


PICKED = 8
WINDOW = 100
OF_ONE_CLIENT = WINDOW // 10
MOST_REMEMBERED = 1 << 14
MAX_WATCHED = 256


@dataclass(slots=True)
class InputWatch:
    """Counts of one calibration's decisions since they were last read, and the rows that its monitor is to take."""

    model: str
    version: int
    rows: int = 0
    unlike: int = 0
    day: int = 0
    today: list[int] = field(default_factory=lambda: [0, 0])
    moved: str | None = None
    """What has moved, in words; None: nothing is known to have."""
    monitor: StreamMonitor | None = None
    looks: asyncio.Future[None] | None = None
    requests: int = 0
    askers: deque[str] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Whose the last rows were, whether they counted or not."""
    clients: deque[str] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Whose the last rows were that counted."""
    digests: dict[bytes, None] = field(default_factory=dict, repr=False)
    pending: list[tuple[Float32, int]] = field(default_factory=list, repr=False)

    def count(self, n: int, unlike: int) -> None:
        """Count rows."""
        self.rows += n
        self.unlike += unlike
        day = int(time.time() // 86_400)
        if day != self.day:
            self.day, self.today = day, [0, 0]
        self.today[0] += n
        self.today[1] += unlike

    def take(self, row: Float32, client: str) -> None:
        """Keep a row for the monitor, unless its client or the vector itself has had its share."""
        self.askers.append(client)
        # One more than its share: the last place of a full window is taken by somebody, or no row would ever leave it.
        if self.clients.count(client) > max(OF_ONE_CLIENT, WINDOW // len(set(self.askers))):
            return
        digest = hashlib.blake2b(row.tobytes(), digest_size=8).digest()
        if digest in self.digests:
            return
        self.digests[digest] = None
        if len(self.digests) > MOST_REMEMBERED:
            del self.digests[next(iter(self.digests))]
        self.clients.append(client)
        self.pending.append((row.copy(), self.requests))


class InputChecks:
    """Watches what each calibration decides on. Used on the event loop only.

    Rows that are unlike are told at each decision; `StreamMonitor` looks at the others, for what one row cannot show.
    Of a request at most `PICKED` rows count, and a vector once. Of the last `WINDOW` rows that count about a tenth at
    most are one client's, or its even share where fewer ask: no client by itself takes the guarantee of many others
    away.

    Parameters
    ----------
    alarm : is called in a thread, with a calibration and what has moved, once.
    """

    def __init__(self, alarm: Callable[[str, str], None]) -> None:
        self._alarm = alarm
        self._watches: dict[str, InputWatch] = {}

    def watches(self) -> list[InputWatch]:
        """Everything that is watched."""
        return list(self._watches.values())

    def note(
        self,
        version: LoadedVersion,
        ranges: RowRanges | None,
        rows: Any,
        flags: NDArray[np.bool_] | None,
        client: str,
        *,
        n_rows: int,
    ) -> None:
        """Count what a request decided on, and hold some of its rows against the calibration.

        Parameters
        ----------
        ranges : what rows of the calibration are like; None where that is not known.
        rows : those to look at. flags : which of them, or of more, are unlike, which were told.
        n_rows : how many rows the request has.
        """
        calibration = version.calibration_id
        if calibration is None:
            return
        watch = self._watches.get(calibration)
        if watch is None:
            if ranges is None or len(self._watches) >= MAX_WATCHED:
                return
            watch = self._watches[calibration] = InputWatch(version.entry.name, version.entry.version)
        watch.count(n_rows, 0 if flags is None else int(flags.sum()))
        if (
            ranges is None
            or watch.moved is not None
            or not isinstance(rows, np.ndarray)
            or rows.dtype != np.float32
        ):
            return
        places: Sequence[int] = (
            range(len(rows)) if flags is None else np.flatnonzero(~flags[: len(rows)]).tolist()
        )
        watch.requests += 1
        for place in places[:: max(1, -(-len(places) // PICKED))]:
            watch.take(rows[place], client)
        # One look at a time; meanwhile rows wait, and what is too much is not looked at.
        if len(watch.pending) >= TOGETHER and (watch.looks is None or watch.looks.done()):
            taken, watch.pending = watch.pending[: 2 * TOGETHER], []
            look = partial(self._look, watch, calibration, ranges, taken)
            watch.looks = asyncio.get_running_loop().run_in_executor(None, look)

    def _look(
        self, watch: InputWatch, calibration: str, ranges: RowRanges, taken: list[tuple[Float32, int]]
    ) -> None:
        """Hold rows against the calibration (blocking)."""
        watch.monitor = watch.monitor or StreamMonitor(ranges)
        watch.monitor.observe(np.stack([row for row, _ in taken]), [request for _, request in taken])
        watch.moved = watch.monitor.moved
        if watch.moved is not None:
            self._alarm(calibration, watch.moved)
