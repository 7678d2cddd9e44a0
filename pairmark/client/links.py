"""Calls about links of tables."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pairmark.client.encoding import Progress, path_part
from pairmark.client.training import TrainingCalls
from pairmark.schemas.jobs import JobOut
from pairmark.schemas.links import EntityOut, LinkOut, LinksOut


class LinkCalls(TrainingCalls):
    """Duplicates within a dataset, and links between two."""

    async def link(
        self,
        left: str,
        right: str | None = None,
        *,
        false_links: float | None = None,
        wait: bool = True,
        progress: Progress | None = None,
    ) -> LinksOut:
        """Find the duplicates of a dataset of records, or link two, and say what was found.

        Parameters
        ----------
        false_links : the share of the links that may be false, by the fitted model's own estimate.
        wait : False returns at once.
        """
        body = {"left": left, "right": right, "false_links": false_links}
        job = JobOut.from_json(await self._send("POST", "/links", body))
        if wait:
            await self.wait(job.id, progress=progress)
        return LinksOut.from_json(await self._get(f"/links/{job.id}"))

    async def links(self, links: str, *, limit: int | None = None) -> AsyncIterator[LinkOut]:
        """Linked pairs of records: ``left, right, score, decision, entity``."""
        async for pair in self.pages(f"/links/{path_part(links)}/links", limit=limit):
            yield LinkOut.from_json(pair)

    async def entities(self, links: str, *, limit: int | None = None) -> AsyncIterator[EntityOut]:
        """Entities of two records or more: ``id, records``."""
        async for entity in self.pages(f"/links/{path_part(links)}/entities", limit=limit):
            yield EntityOut.from_json(entity)

    async def link_jobs(self, *, limit: int | None = None) -> AsyncIterator[LinksOut]:
        """Link jobs, newest first."""
        async for entry in self.pages("/links", limit=limit):
            yield LinksOut.from_json(entry)

    async def delete_links(self, links: str) -> None:
        """Delete what a link job found."""
        await self.request("DELETE", f"/links/{path_part(links)}")
