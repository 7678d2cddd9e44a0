"""Every router of the service, in the order in which routes are looked for."""

from typing import Final

from fastapi import APIRouter

from pairmark.service.api import (
    admin,
    calibrations,
    datasets,
    docs,
    galleries,
    jobs,
    links,
    metrics,
    models,
    reviews,
    scoring,
)
from pairmark.service.api.routing import GuardedRoute

ROUTERS: Final[tuple[APIRouter, ...]] = (
    scoring.router,
    scoring.ranking,
    galleries.bulk,
    datasets.router,
    jobs.router,
    models.router,
    calibrations.scores,
    calibrations.router,
    calibrations.learners,
    galleries.router,
    links.router,
    reviews.lists,
    reviews.router,
    admin.keys,
    admin.webhooks,
    metrics.router,
    admin.audit,
    docs.problems,
    docs.router,
)


def guarded_routes(*routers: APIRouter) -> list[GuardedRoute]:
    """The routes of some routers; of every one of the API without arguments."""
    found = [route for router in routers or ROUTERS for route in router.routes]
    return [route for route in found if isinstance(route, GuardedRoute)]
