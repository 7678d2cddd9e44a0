"""Pages of reviews: their list, and the queue of pairs to judge."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.api.services import InServices
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import HEADERS, CursorQuery, listing, page

router = APIRouter(include_in_schema=False, route_class=GuardedRoute, default_response_class=HTMLResponse)


ON_A_PAGE = 25


@router.get("/console/reviews")
@needs("any")
async def reviews_page(request: Request, query: Annotated[CursorQuery, Query()]) -> HTMLResponse:
    """Reviews, newest first."""
    api = Api(request)
    reviews = await api.need("/reviews", limit=ON_A_PAGE, cursor=query.cursor)
    models = await api.items("/models", limit=100)
    reviewable = [model["name"] for model in models if model["policy"]["reviews"] is not None]
    return page(request, "reviews.html", **listing(reviews, query), models=reviewable)


@router.get("/console/reviews/{review_id}")
@needs("any")
async def show_review(request: Request, services: InServices, review_id: str) -> HTMLResponse:
    """One review, with the pairs to judge."""
    images = services.settings.review_images
    review = await Api(request).need(f"/reviews/{review_id}")
    response = page(request, "review.html", review=review, images=images)
    if images:
        host = "{0.scheme}://{0.netloc}".format(urlsplit(images))
        policy = HEADERS["content-security-policy"]
        response.headers["content-security-policy"] = policy.replace(
            "img-src 'self'", f"img-src 'self' {host}"
        )
    return response
