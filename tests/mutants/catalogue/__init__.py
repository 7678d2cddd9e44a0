"""The mutants, by room and by the promise they break."""

from __future__ import annotations

from tests.mutants.catalogue import (
    durability,
    front,
    galleries,
    keys,
    learners,
    promise,
    records,
    requests,
    reviews,
)

MUTANTS = (
    *durability.MUTANTS,
    *front.MUTANTS,
    *galleries.MUTANTS,
    *keys.MUTANTS,
    *learners.MUTANTS,
    *promise.MUTANTS,
    *records.MUTANTS,
    *requests.MUTANTS,
    *reviews.MUTANTS,
)
