"""Entry point of one attempt at a job; imports only the package that runs such jobs."""

from __future__ import annotations

import sys

from pairmark.service.blobs import Blobs
from pairmark.service.db import Database
from pairmark.service.jobs.child import Runner, main
from pairmark.service.jobs.queue import Claim
from pairmark.service.settings import Settings


def runner_of(claim: Claim, db: Database, blobs: Blobs, settings: Settings) -> Runner:
    if claim.task == "training":
        from pairmark.service.training.trainer import Trainer

        return Trainer(db, blobs, settings)
    if claim.task == "link":
        from pairmark.service.links.jobs import Linker

        return Linker(db, blobs, settings)
    from pairmark.service.galleries.calibration.identification import Measurer

    return Measurer(db, blobs, settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], runner_of))
