"""Webhooks: named by admins, told of events by signed messages, tried again with growing pauses."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from prometheus_client import Counter
from sqlalchemy import delete, func, select, update

from pairmark.schemas.admin import NewWebhook, WebhookOut, WebhookRequest
from pairmark.schemas.base import Page
from pairmark.service.audit.log import record
from pairmark.service.db import Database, execute_change, insert_into, read_page
from pairmark.service.errors import Conflict, InvalidInput, PairmarkError, UnknownWebhook
from pairmark.service.settings import Settings
from pairmark.service.tables import ServiceSecret, WebhookDelivery, WebhookRow

if TYPE_CHECKING:
    import httpx


log = logging.getLogger(__name__)

MOST_WEBHOOKS: Final = 50
TIMEOUT_S: Final = 10.0
PAUSES_S: Final = (10, 60, 300, 1_800, 7_200, 18_000, 36_000)
"""Before each further attempt; after the last one, 18 hours on, a delivery has failed."""
LONGEST_REST_S: Final = 300
"""A receiver that fails is told nothing else for as long as the message waits, and at most this long."""
_ROW: Final = 1
_SENT = Counter("pairmark_webhook_attempts_total", "attempts to deliver to webhooks", ["delivered"])


class Webhooks:
    """Makes and lists webhooks, and delivers what the outbox holds."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._hosts = frozenset(filter(None, (part.strip() for part in settings.webhook_hosts.split(","))))
        self._busy: set[str] = set()
        """Webhooks that this process sends to just now."""

    @property
    def on(self) -> bool:
        return bool(self._hosts)

    def create(self, request: WebhookRequest) -> NewWebhook:
        """Make a webhook; only this answer tells its secret."""
        self._check(request.url)
        with self._db.write() as session:
            if (session.scalar(select(func.count()).select_from(WebhookRow)) or 0) >= MOST_WEBHOOKS:
                raise Conflict(f"there are {MOST_WEBHOOKS} webhooks already; delete one first")
            now = self._db.now(session)
            webhook = WebhookRow(
                id=secrets.token_hex(12),
                url=request.url,
                events=list(dict.fromkeys(request.events)),
                created_at=now,
            )
            session.add(webhook)
            facts = {"host": urlsplit(webhook.url).netloc, "events": webhook.events}
            record(session, now, "webhook.create", f"webhook:{webhook.id}", after=facts)
            webhook_out = WebhookOut.model_validate(webhook)
        secret = "whsec_" + base64.b64encode(self._secret(webhook_out.id)).decode()
        return NewWebhook(**webhook_out.model_dump(), secret=secret)

    def page(self, limit: int, cursor: str | None) -> Page[WebhookOut]:
        """Webhooks, oldest first."""
        order = WebhookRow.created_at, WebhookRow.id
        with self._db.read() as session:
            make = WebhookOut.model_validate
            return read_page(session, Page[WebhookOut], make, select(WebhookRow), order, limit, cursor)

    def delete(self, webhook_id: str) -> None:
        """Delete a webhook with its deliveries, or `UnknownWebhook`."""
        with self._db.write() as session:
            session.execute(delete(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook_id))
            if not execute_change(session, delete(WebhookRow).where(WebhookRow.id == webhook_id)):
                raise UnknownWebhook(f"there is no webhook {webhook_id[:50]!r}")
            record(session, self._db.now(session), "webhook.delete", f"webhook:{webhook_id}")

    async def deliver(self) -> int:
        """Try what is due: messages of one receiver one after another, receivers side by side; returns how many.

        Receivers that an earlier call still sends to are left to it: a slow one delays nobody.
        """
        receivers = await asyncio.to_thread(self._receivers) - self._busy
        if not receivers:
            return 0
        # Services that tell nobody never load it.
        import httpx

        self._busy |= receivers
        async with httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False) as http:
            return sum(await asyncio.gather(*(self._deliver_to(http, receiver) for receiver in receivers)))

    async def _deliver_to(self, http: httpx.AsyncClient, receiver: str) -> int:
        """Send a receiver what is due to it, up to the first message that fails."""
        n_attempts, delivered = 0, True
        try:
            while delivered and (due := await asyncio.to_thread(self._claim, receiver)) is not None:
                answer, delivered = await self._send(http, due)
                _SENT.labels(str(delivered).lower()).inc()
                await asyncio.to_thread(self._close, due, answer, delivered)
                n_attempts += 1
        except PairmarkError as error:
            log.warning("a webhook waits: %s", error.detail)
        finally:
            self._busy.discard(receiver)
        return n_attempts

    def _receivers(self) -> set[str]:
        with self._db.read() as session:
            due = WebhookDelivery.next_at <= self._db.now(session)
            return set(session.scalars(select(WebhookDelivery.webhook_id).where(due).distinct()))

    def _claim(self, receiver: str) -> Any:
        """Take the delivery to a webhook that is due the longest: nobody else tries it for a while. None: none is."""
        delivery = WebhookDelivery
        columns = delivery.id, delivery.webhook_id, WebhookRow.url, delivery.body, delivery.attempts
        with self._db.write() as session:
            now = self._db.now(session)
            due = session.execute(
                select(*columns)
                .join(WebhookRow, WebhookRow.id == delivery.webhook_id)
                .where(delivery.webhook_id == receiver, delivery.next_at <= now)
                .order_by(delivery.next_at)
                .limit(1)
                .with_for_update(of=delivery, skip_locked=True)
            ).first()
            if due is not None:
                # A sender that dies leaves it to be tried again, when its attempt must be over.
                claimed = {"next_at": now + 3 * TIMEOUT_S, "attempts": delivery.attempts + 1}
                session.execute(update(delivery).where(delivery.id == due.id).values(**claimed))
            return due

    async def _send(self, http: httpx.AsyncClient, due: Any) -> tuple[str, bool]:
        import httpx

        body = json.dumps(due.body, separators=(",", ":")).encode()
        try:
            self._check(due.url)
            headers = signed_headers(self._secret(due.webhook_id), due.id, int(time.time()), body)
            # What the host answers is not read: its status says it all, and its body may have any size.
            async with (
                asyncio.timeout(TIMEOUT_S),
                http.stream("POST", due.url, content=body, headers=headers) as got,
            ):
                return str(got.status_code), 200 <= got.status_code < 300
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            return f"{type(error).__name__}: {error}", False
        except InvalidInput as error:
            return error.detail, False

    def _close(self, due: Any, answer: str, delivered: bool) -> None:
        """Forget a message that is delivered, or was tried for the last time; let its receiver rest after a failure."""
        delivery = WebhookDelivery
        is_last = due.attempts >= len(PAUSES_S)
        with self._db.write() as session:
            if delivered or is_last:
                session.execute(delete(delivery).where(delivery.id == due.id))
            if delivered:
                return
            now = self._db.now(session)
            pause = LONGEST_REST_S if is_last else PAUSES_S[due.attempts]
            rest = now + min(pause, LONGEST_REST_S)
            waiting = update(delivery).where(delivery.webhook_id == due.webhook_id, delivery.next_at < rest)
            session.execute(waiting.values(next_at=rest))
            session.execute(update(delivery).where(delivery.id == due.id).values(next_at=now + pause))
        facts = {"webhook": due.webhook_id, "delivery": due.id, "answer": answer[:200], "given_up": is_last}
        log.warning("a webhook was not delivered", extra=facts)

    def _check(self, url: str) -> None:
        """Refuse addresses that are not on a host of the setting: the service must not be sent anywhere else."""
        try:
            scheme, host, *_ = urlsplit(url)
        except ValueError:
            scheme = host = ""
        # Compared as written: what a library might read in another way is no host of the setting.
        odd = any(letter <= " " or letter in "\\\x7f" for letter in url)
        if odd or not (f"{scheme}://{host}" in self._hosts or (scheme == "https" and host in self._hosts)):
            raise InvalidInput(
                "url is not an https address on a host that PAIRMARK_WEBHOOK_HOSTS names"
                + (f" ({', '.join(sorted(self._hosts))})" if self._hosts else " (it names none)"),
                field="url",
            )

    def _secret(self, webhook_id: str) -> bytes:
        return hmac.digest(service_secret(self._db), b"webhook:" + webhook_id.encode(), hashlib.sha256)


def service_secret(db: Database) -> bytes:
    """The service's secret; the first who asks makes it."""
    with db.read() as session:
        row = session.get(ServiceSecret, _ROW)
    if row is not None:
        return row.value
    with db.write() as session:
        # Another process may make it meanwhile.
        new = insert_into(session, ServiceSecret).values(id=_ROW, value=secrets.token_bytes(32))
        session.execute(new.on_conflict_do_nothing())
        return session.get_one(ServiceSecret, _ROW).value


def signed_headers(secret: bytes, message: str, now: int, body: bytes) -> dict[str, str]:
    """Headers of a message as Standard Webhooks has them: who gets it checks who sent it, and when."""
    mark = hmac.digest(secret, f"{message}.{now}.".encode() + body, hashlib.sha256)
    return {
        "content-type": "application/json",
        "user-agent": "pairmark",
        "webhook-id": message,
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{base64.b64encode(mark).decode()}",
    }
