"""The process that runs one attempt at a job: ``python -m pairmark.service.attempt JOB ATTEMPT PARENT``.

A process of its own, so that a cancel can stop any fit at once, its memory goes back to the system, and a
crash in native code takes nothing else down. It exits with `SUCCEEDED` or `FAILED` when the job was ended, with
`FENCED` when the attempt was superseded, and with anything else when it could not end the job itself.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

from pairmark.service.audit import Actor, acting_as
from pairmark.service.blobs import Blobs, open_blobs
from pairmark.service.db import Database, open_database
from pairmark.service.errors import Fenced, NotReady, PairmarkError, TrainingFailed
from pairmark.service.jobs.leases import Claim, Leases
from pairmark.service.jobs.worker import FAILED, FENCED, SUCCEEDED, memory_limit, out_of_memory
from pairmark.service.processes import configure_logging, die_with_parent
from pairmark.service.settings import Settings

_NICENESS = 10
logger = logging.getLogger("pairmark.training")


def main(arguments: list[str]) -> int:
    """Run one attempt at a job; returns the exit status."""
    job_id, attempt, parent = arguments[0], int(arguments[1]), int(arguments[2])
    die_with_parent(parent)
    # A service on the same machine goes first.
    os.nice(_NICENESS)
    # The worker decides when this process stops; a terminal's Ctrl-C reaches the worker too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = Settings()
    configure_logging(settings.log_level)
    db = open_database(settings)
    leases = Leases(db, settings)
    try:
        claim = leases.claim_of(job_id, attempt)
        work = runner_of(claim, db, open_blobs(settings), settings)
        limit = memory_limit(settings)
        with acting_as(Actor(name=f"job {claim.job_id}")):
            error = attempt_error(claim, work, limit)
        if error is None:
            return SUCCEEDED
        if isinstance(error, NotReady):
            leases.lost(claim, error.detail)
        else:
            leases.fail(claim, error)
    except Fenced:
        return FENCED
    finally:
        db.dispose()
    return FAILED


def attempt_error(claim: Claim, runner: Any, limit: int) -> PairmarkError | None:
    """Run it; returns the message for people when it failed. `Fenced` goes through."""
    fields: dict[str, Any] = {"job": claim.job_id, "attempt": claim.attempt}
    try:
        outcome = runner.run(claim)
    except Fenced:
        raise
    except PairmarkError as error:
        logger.warning("job failed", extra={**fields, "problem": error.slug})
        return error
    except Exception as error:
        if isinstance(error, MemoryError):
            logger.warning("job ran out of memory", extra={**fields, "limit_bytes": limit}, exc_info=error)
            return out_of_memory(limit)
        logger.exception("job failed unexpectedly", extra=fields)
        return TrainingFailed(
            f"something unexpected happened; the worker's log has the details under job {claim.job_id}"
        )
    logger.info("job succeeded", extra={**fields, "model": claim.model, "made": outcome})
    return None


def runner_of(claim: Claim, db: Database, blobs: Blobs, settings: Settings) -> Any:
    if claim.task == "training":
        from pairmark.service.training.trainer import Trainer

        return Trainer(db, blobs, settings)
    from pairmark.service.links.jobs import Linker

    return Linker(db, blobs, settings)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    logging.shutdown()
    # What a large fit leaves behind takes the interpreter longer to take apart than the worker waits.
    os._exit(status)
