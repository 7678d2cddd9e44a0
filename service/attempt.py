"""What a worker starts for one attempt at a job: the room that does such jobs is opened, and no other."""

from __future__ import annotations

import sys

from service.blobs import Blobs
from service.db import Database
from service.settings import Settings
from service.training.child import Runner, main
from service.training.schemas import Claim


def runner_of(claim: Claim, db: Database, blobs: Blobs, settings: Settings) -> Runner:
    """Who does the claim's work."""
    if claim.task == "training":
        from service.training.trainer import Trainer

        return Trainer(db, blobs, settings)
    from service.galleries.measuring import Measurer

    return Measurer(db, blobs, settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], runner_of))
