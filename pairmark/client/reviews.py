"""Calls about reviews: judge a few decisions drawn at random, know how many of all are wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from pairmark.client.calls import Calls
from pairmark.client.encoding import path_part, without_none
from pairmark.schemas.base import Answer
from pairmark.schemas.reviews import ReviewOut


class ReviewCalls(Calls):
    """Reviews of decisions, and outcomes from elsewhere."""

    async def create_review(
        self,
        /,
        *,
        model: str | None = None,
        gallery: str | None = None,
        refs: Sequence[Sequence[str]] | None = None,
        scores: Sequence[float] | None = None,
        matches: Sequence[bool] | None = None,
        version: int | None = None,
        since: str | None = None,
        until: str | None = None,
        **options: Any,
    ) -> ReviewOut:
        """Ask how many of a model's, a gallery's or a list's decisions are wrong; ``options`` are ``name``,
        ``question``, ``at_most`` and ``confidence``."""
        source = without_none(
            {
                "model": model,
                "gallery": gallery,
                "refs": refs,
                "scores": scores,
                "matches": matches,
                "version": version,
                "since": since,
                "until": until,
            }
        )
        return ReviewOut.from_json(await self._send("POST", "/reviews", {"source": source, **options}))

    async def reviews(self, *, limit: int | None = None) -> AsyncIterator[ReviewOut]:
        """Reviews, newest first."""
        async for review in self.pages("/reviews", limit=limit):
            yield ReviewOut.from_json(review)

    async def review(self, review: str) -> ReviewOut:
        """A review and what it has shown so far."""
        return ReviewOut.from_json(await self._get(f"/reviews/{path_part(review)}"))

    async def pairs_to_judge(self, review: str, n: int = 1, *, by: str | None = None) -> list[dict[str, Any]]:
        """Pairs that are this reviewer's for ten minutes; none when all are drawn or with others."""
        answer = await self._get(f"/reviews/{path_part(review)}/next", n=n, by=by)
        items: list[dict[str, Any]] = answer["items"]
        return items

    async def judge(self, review: str, outcomes: Sequence[Mapping[str, Any]]) -> ReviewOut:
        """Say of items whether they are the same: ``{"item", "same", "by"?}`` each; ``same`` None is "cannot tell"."""
        return ReviewOut.from_json(
            await self._send("POST", f"/reviews/{path_part(review)}/outcomes", {"outcomes": list(outcomes)})
        )

    async def report_outcomes(self, model: str, outcomes: Sequence[Mapping[str, Any]]) -> Answer:
        """Tell what became of pairs: ``{"left", "right", "same"}`` each. They never bound anything."""
        return Answer.from_json(
            await self._send("POST", "/outcomes", {"model": model, "outcomes": list(outcomes)})
        )

    async def erase_refs(self, model: str, refs: Sequence[str]) -> Answer:
        """Erase what is kept of decisions under these names."""
        return Answer.from_json(
            await self._send("POST", "/reviews/erase", {"model": model, "refs": list(refs)})
        )
