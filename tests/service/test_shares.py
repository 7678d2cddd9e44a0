"""Nobody's requests wait for all that another one sends."""

import asyncio

from pairmark.service.scheduling import BEGUN_AT_ONCE, Turns


def test_a_request_stands_behind_few_of_another_owner_and_none_is_lost() -> None:
    began: list[str] = []

    async def answer(turns: Turns, owner: str, name: str) -> None:
        if (turn := turns.begin(owner)) is not None:
            await turn
        began.append(name)

    async def run() -> None:
        turns = Turns()
        flood = [asyncio.create_task(answer(turns, "a", f"a{at}")) for at in range(20)]
        gone = flood[6]
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(asyncio.create_task(answer(turns, "b", "b")), *flood, return_exceptions=True)
        # Nothing is left behind: who comes later begins at once.
        await asyncio.sleep(0)
        await asyncio.wait_for(answer(turns, "a", "later"), 5)

    asyncio.run(run())
    assert began.index("b") <= 2 * BEGUN_AT_ONCE
    assert [name for name in began if name != "b"] == [
        *(f"a{at}" for at in range(20) if at != 6),
        "later",
    ]
