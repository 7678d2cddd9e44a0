"""Every router of the service, in the order in which routes are looked for."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from pairmark.service.api import (
    audit,
    calibrations,
    datasets,
    docs,
    galleries,
    guide,
    jobs,
    keys,
    learners,
    links,
    models,
    operating,
    points,
    problem_pages,
    reviews,
    scoring,
    search,
    status,
    webhooks,
)
from pairmark.service.api.routing import GuardedRoute

ROUTERS: Final[tuple[APIRouter, ...]] = (
    scoring.router,
    points.router,
    points.ranking,
    search.router,
    datasets.router,
    jobs.router,
    models.router,
    operating.router,
    calibrations.router,
    learners.router,
    galleries.router,
    galleries.bulk,
    links.router,
    reviews.router,
    keys.router,
    webhooks.router,
    status.router,
    audit.router,
    problem_pages.router,
    guide.router,
    docs.router,
)


def guarded_routes(*routers: APIRouter) -> list[GuardedRoute]:
    """The routes of some routers; of every one of the API without arguments."""
    found = [route for router in routers or ROUTERS for route in router.routes]
    return [route for route in found if isinstance(route, GuardedRoute)]
