"""The receipt of an erasure: what is gone, and where copies may outlive it."""

from __future__ import annotations

from pairmark.models.registry import spec_of
from pairmark.service.galleries.schemas import ModelOfGallery
from pairmark.service.names import beside
from pairmark.service.runtime.catalogue import CatalogueView


def database_duties(
    removed: int, *, unfinished: str | None, log_empty: bool, sqlite: bool, clustered: bool
) -> tuple[bool, list[str]]:
    """Whether the database's files no longer hold what was erased, and what is still to be done.

    Parameters
    ----------
    removed : items and probes. unfinished : why files of the index hold some still; None where none do.
    log_empty : whether the database's log holds nothing of them any more. clustered : Dask workers search blocks too.
    """
    complete = log_empty and unfinished is None
    pending = [
        "other API processes mask it at their next search, and let go of mapped files within 15 seconds"
    ]
    if unfinished is not None:
        pending.append(
            f"files of the index hold it still ({unfinished}): free some space and ask again; searches do not find it "
            "there"
        )
    if clustered:
        pending.append("Dask workers mask it at their next search, and let go of its block within 15 seconds")
    if not sqlite:
        complete = not removed
        pending.append(
            "PostgreSQL keeps dead rows until vacuum: VACUUM gallery_items, gallery_probes, or wait for autovacuum"
        )
    elif not complete and unfinished is None:
        pending.append(
            "the database's log is in use by a long reader, or its disk is full; it is emptied by the next erasure"
        )
    return complete, pending


def keeping_rows(catalogue: CatalogueView, gallery: str) -> list[ModelOfGallery]:
    """The versions, of the gallery's tenant, whose artefacts hold rows of their training data."""
    return [
        ModelOfGallery(name=entry.name, version=entry.version, kind=entry.kind)
        for model in catalogue.models.values()
        for entry in model.versions.values()
        if _keeps_rows(entry.kind) and entry.name in beside(gallery)
    ]


def _keeps_rows(kind: str) -> bool:
    try:
        return spec_of(kind).keeps_rows
    except KeyError:
        return False
