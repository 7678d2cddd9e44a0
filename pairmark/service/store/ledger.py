"""SQL of the ledger: which calibrations were made on the same people, and what was asked of them.

Calibrations count together, in one cohort, where they share a person (by a keyed digest of the name) or a dataset
version, directly or through others, within one tenant. Entries outlive versions: a version that was deleted was looked
at all the same. Nothing here commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from sqlalchemy import ColumnElement, func, insert, select, update
from sqlalchemy.orm import Session

from pairmark.service.db import among, bump_revision
from pairmark.service.names import beside, tenant_of
from pairmark.service.store.schemas import LedgerEntry, LedgerOut
from pairmark.service.tables import CalibratedPerson, CalibrationLedger, CalibrationRow, ModelRow

MOST_RATES = 200
"""Different rates of one version that are noted."""
_AT_ONCE = 500


def enter(session: Session, row: CalibrationRow, people: Sequence[str]) -> int | None:
    """Give a new calibration the next number of its cohort; None where neither people nor a dataset are known.

    Parameters
    ----------
    people : digests of the people (or samples) that it is from.
    """
    if row.dataset_sha256 is None and not people:
        return None
    # Whoever else enters one waits here until this transaction ends.
    bump_revision(session)
    entries, persons = CalibrationLedger, CalibratedPerson
    name = row.name if row.model_id is None else session.get_one(ModelRow, row.model_id).name
    if tenant_of(name):
        # Tenants often number people alike, and nobody chooses among versions of two tenants.
        people = [
            blake2b(f"{tenant_of(name)} {digest}".encode(), digest_size=16).hexdigest() for digest in people
        ]
    cohorts, calibrated = set[str](), set[str]()
    for at in range(0, len(people), _AT_ONCE):
        statement = select(persons.person, persons.cohort).where(
            persons.person.in_(people[at : at + _AT_ONCE])
        )
        for person, cohort in session.execute(statement):
            calibrated.add(person)
            cohorts.add(cohort)
    if row.dataset_sha256 is not None:
        same_data = select(entries.cohort).where(
            entries.dataset_sha256 == row.dataset_sha256, *_of_tenant(name)
        )
        cohorts |= set(session.scalars(same_data.distinct()))
    cohort = min(cohorts, default=row.id)
    for later in cohorts - {cohort}:
        session.execute(update(entries).where(entries.cohort == later).values(cohort=cohort))
        session.execute(update(persons).where(persons.cohort == later).values(cohort=cohort))
    newcomers = [{"person": person, "cohort": cohort} for person in people if person not in calibrated]
    if newcomers:
        session.execute(insert(persons), newcomers)
    count, last = session.execute(
        select(func.count(), func.max(entries.number)).where(entries.cohort == cohort)
    ).one()
    entry = entries(
        calibration_id=row.id,
        cohort=cohort,
        number=max(count, last or 0) + 1,
        dataset_sha256=row.dataset_sha256,
        model=None if row.model_id is None else name,
        version=row.version,
        rates=[],
        created_at=row.created_at,
    )
    session.add(entry)
    session.flush()
    return entry.number


def _of_tenant(name: str) -> list[ColumnElement[bool]]:
    """What limits entries to those of the name's tenant."""
    return [among(beside(name), CalibrationLedger.model)] if tenant_of(name) else []


def number_of(session: Session, calibration_id: str) -> int | None:
    """A calibration's number among those on its people when it was made, from 1; None when it is in no ledger."""
    entry = session.get(CalibrationLedger, calibration_id)
    return None if entry is None else entry.number


def note_rate(session: Session, calibration_id: str, rate: float) -> None:
    """Note that an operating point of a calibration was asked for at a rate."""
    entry = session.get(CalibrationLedger, calibration_id, with_for_update=True)
    if entry is not None and rate not in entry.rates and len(entry.rates) < MOST_RATES:
        entry.rates = sorted([*entry.rates, rate])


def ledger(session: Session, dataset: str, sha256: str) -> LedgerOut:
    """The ledger of the people of a dataset version, of its tenant."""
    table = CalibrationLedger
    cohorts = select(table.cohort).where(table.dataset_sha256 == sha256, *_of_tenant(dataset))
    rows = session.scalars(
        select(table).where(table.cohort.in_(cohorts)).order_by(table.number, table.created_at)
    ).all()
    return LedgerOut(
        dataset=dataset,
        dataset_sha256=sha256,
        candidates=len(rows),
        versions=[
            LedgerEntry.model_validate({**row.values(), "calibrated_at": row.created_at}) for row in rows
        ],
    )
