"""The receipt of an erasure: what is gone, and where copies may outlive it."""

from __future__ import annotations

from dataclasses import dataclass

from pairmark.models.core.registry import spec_of
from pairmark.service.galleries.schemas import ModelOfGallery, Receipt
from pairmark.service.runtime.catalogue import View
from pairmark.service.times import iso


@dataclass(frozen=True, kw_only=True)
class Erased:
    """What one erasure removed.

    Attributes
    ----------
    blocks : files of the index that were removed.
    log_empty : whether the database's log holds nothing of it any more.
    unfinished : why files of the index hold it still; None where none do.
    """

    gallery: str
    id: str | None
    subject: str | None
    items: int
    probes: int
    blocks: int
    at: float
    log_empty: bool
    unfinished: str | None


def receipt(erased: Erased, catalogue: View, *, sqlite: bool, spread: bool) -> Receipt:
    """The answer to an erasure; ``spread``: Dask workers search blocks too."""
    complete = erased.log_empty and erased.unfinished is None
    pending = [
        "other API processes mask it at their next search, and let go of mapped files within 15 seconds"
    ]
    if erased.unfinished is not None:
        pending.append(
            f"files of the index hold it still ({erased.unfinished}): free some space and ask again; searches "
            "do not find it there"
        )
    if spread:
        pending.append("Dask workers mask it at their next search, and let go of its block within 15 seconds")
    if not sqlite:
        complete = not erased.items and not erased.probes
        pending.append(
            "PostgreSQL keeps dead rows until vacuum: VACUUM gallery_items, gallery_probes, or wait for autovacuum"
        )
    elif not complete and erased.unfinished is None:
        pending.append(
            "the database's log is in use by a long reader, or its disk is full; it is emptied by the next erasure"
        )
    keeping = [
        ModelOfGallery(name=entry.name, version=entry.version, kind=entry.kind)
        for model in catalogue.models.values()
        for entry in model.versions.values()
        if keeps_rows(entry.kind)
    ]
    return Receipt(
        gallery=erased.gallery,
        id=erased.id,
        subject=erased.subject,
        items=erased.items,
        probes=erased.probes,
        index_blocks=erased.blocks,
        database="sqlite" if sqlite else "postgresql",
        database_complete=complete,
        pending=pending,
        models_with_training_rows=keeping,
        erased_at=iso(erased.at),
    )


def keeps_rows(kind: str) -> bool:
    """Whether artefacts of that kind hold rows of their training data."""
    try:
        return spec_of(kind).keeps_rows
    except KeyError:
        return False
