"""A learned model of records that scores the candidates of a link job, from the texts of its tables."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.records.estimator import RecordScorer
from pairmark.models.records.schema import RecordError, Records, Schema
from pairmark.service.blobs import Blobs
from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput
from pairmark.service.links.tables import LinkTables
from pairmark.service.names import parse_ref
from pairmark.service.settings import Settings
from pairmark.service.store.versions import VersionStore


class Learned:
    """A version of a model of records.

    Attributes
    ----------
    ref : `name:version`, or what else it is called.
    cut : links score above it; where none is given, above it a pair is likelier a match than not.
    notes : what to know of the cut.
    """

    def __init__(self, ref: str, estimator: RecordScorer, cut: float | None = None) -> None:
        self.ref, self._estimator = ref, estimator
        prior = estimator.prior
        self.cut = cut if cut is not None else 0.5 if prior is None else float(np.log((1 - prior) / prior))
        cut_note = (
            f"the cut of {self.ref} comes from the share of matches among its training records, which seldom fits "
            "other tables: labels are needed for a cut to rely on. Calibrate the model on labeled pairs and give "
            "fpr, or judge links (false_links)"
        )
        self.notes = [cut_note] if prior is not None and cut is None else []
        schema: Schema = self._estimator.schema_
        # Tables write dates in one form, whatever the model was trained on.
        self._schema = schema.model_copy(
            update={
                "columns": tuple(
                    column.model_copy(update={"format": "YYYY-MM-DD"}) if column.type == "date" else column
                    for column in schema.columns
                )
            }
        )

    @classmethod
    def stored(
        cls, db: Database, blobs: Blobs, settings: Settings, ref: str, cut: float | None = None
    ) -> "Learned":
        """Of the store, by ``NAME``, ``NAME@ALIAS`` or ``NAME:VERSION``."""
        store = VersionStore(db, blobs, settings)
        with db.read() as session:
            model, row = store.resolved(session, parse_ref(ref))
            name, version = model.name, row.version
        return cls(f"{name}:{version}", store.load(name, version), cut)

    @property
    def columns(self) -> dict[str, str]:
        """Types of its columns."""
        return {column.name: column.type for column in self._estimator.schema_.fields}

    def scorer(self, connection: Any, tables: LinkTables) -> Callable[[Int64, Int64], Float64]:
        """Scores pairs of rows of the table ``source``; among their candidate sets where the model was trained so."""
        listed = ", ".join(f"c{at}" for at in range(len(tables.fields)))
        columns = connection.execute(f"SELECT {listed} FROM source ORDER BY row").fetchnumpy().values()
        names = (field.name for field in tables.fields)
        cells = self._cells(
            {name: np.ma.filled(texts, None).tolist() for name, texts in zip(names, columns, strict=True)}
        )
        empty = self._estimator.schema_.empty_rows(cells)
        if empty.size == len(cells):
            raise InvalidInput(f"no record has a cell in the columns of model {self.ref}", field="model")
        # Rows without a cell are compared with nothing: any other stands in their place.
        cells[empty] = cells[np.setdiff1d(np.arange(len(cells)), empty)[:1]]

        def score(a: Int64, b: Int64) -> Float64:
            n_left = tables.sizes[0] if len(tables.sizes) == 2 else None
            scores = self._estimator.score_candidates(cells, a, b, n_left).astype(np.float64)
            scores[np.isin(a, empty) | np.isin(b, empty)] = -np.inf
            return np.asarray(scores)

        return score

    def explained(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, float]:
        """What each column adds to the score of a pair."""
        a, b = (self._cells({name: [text] for name, text in side.items()}) for side in (left, right))
        fields = self._estimator.explain(a, b)["fields"]
        return {field["field"]: float(field["contribution"]) for field in fields}

    def _cells(self, table: Mapping[str, Sequence[Any]]) -> Records:
        try:
            return self._schema.read(table)
        except RecordError as error:
            raise InvalidInput(
                f"the tables do not fit model {self.ref}: {error}; it compares "
                f"{', '.join(f'{name} ({kind})' for name, kind in self.columns.items())}",
                field="model",
            ) from error
