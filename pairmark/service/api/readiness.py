"""Readiness checks of the database, with a time limit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from pairmark.service.errors import NotReady

LIMIT_S = 1.5
T = TypeVar("T")


class TimedQuestion(Generic[T]):
    """Asks in a thread of its own: one question at a time, however many wait for its answer.

    A frozen database blocks the thread that asks it for as long as it is frozen, and no other.
    """

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._question: Future[T] | None = None

    async def answer(self) -> T:
        """The answer; `NotReady` when the database fails, or does not answer within `LIMIT_S`."""
        if self._question is None or self._question.done():
            self._question = Future()
            threading.Thread(target=self._run, args=(self._question,), name="question", daemon=True).start()
        question = self._question
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(question)), LIMIT_S)
        except TimeoutError as error:
            raise NotReady(f"the database has not answered within {LIMIT_S:g} s") from error

    def _run(self, question: Future[T]) -> None:
        try:
            question.set_result(self._ask())
        except NotReady as error:
            question.set_exception(error)
        except Exception as error:
            question.set_exception(
                NotReady(f"the database does not answer as it should: {type(error).__name__}")
            )
