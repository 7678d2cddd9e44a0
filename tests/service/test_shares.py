"""Fair shares: all of it for who asks alone, and a share for each of several."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from pairmark.service.errors import RateLimited
from pairmark.service.places import Places
from pairmark.service.shares import LoopTurns, Seats, Turns, noting_limits, own


def test_one_owner_gets_every_seat_and_a_newcomer_one_of_them() -> None:
    seats, taken = Seats("places", 4, "places are taken"), []
    evicted: list[str] = []
    own("a")

    def evict(number: int) -> bool:
        evicted.append(f"a{number}")
        return True

    taken += [seats.take(partial(evict, number)) for number in range(4)]
    noted = noting_limits()
    with pytest.raises(RateLimited, match="4 places"):
        seats.take(lambda: True)
    assert noted == [("places", 4, 0)]
    own("b")
    for _ in range(2):
        seats.take(lambda: True)
    # Two and two: nobody takes from who has as many.
    with pytest.raises(RateLimited):
        seats.take(lambda: True)
    assert evicted == ["a3", "a2"]
    seats.leave(taken[3])  # Was taken away: changes nothing.
    with pytest.raises(RateLimited):
        seats.take(lambda: True)
    seats.leave(taken[0])
    seats.take(lambda: True)
    own("")


def test_a_seat_that_is_in_use_is_not_taken_away() -> None:
    seats = Seats("places", 2, "places are taken")
    own("a")
    for _ in range(2):
        seats.take(lambda: False)
    own("b")
    with pytest.raises(RateLimited):
        seats.take(lambda: True)
    own("")


def test_turns_go_to_who_has_the_fewest() -> None:
    turns, started = Turns(2, 3), []
    of_a = [turns.ask("a", lambda _, number=number: started.append(f"a{number}")) for number in range(4)]
    assert [turn.at_once for turn in of_a] == [True, True, False, False]
    # Beyond what runs at once, for who has none.
    of_b = [turns.ask("b", lambda _, number=number: started.append(f"b{number}")) for number in range(2)]
    assert [turn.at_once for turn in of_b] == [True, False]
    assert not turns.ask("c", lambda _: started.append("c0")).at_once
    turns.end(of_a[0])
    assert started == ["c0"]
    turns.end(of_a[1])
    turns.end(of_b[0])
    assert {*started[1:]} == {"a2", "b1"} or len(started) == 2
    for turn in (*of_a, *of_b):
        if turn.granted:
            turns.end(turn)


def test_a_turn_that_is_no_longer_wanted_is_passed_on() -> None:
    turns, started = Turns(1, 1), []
    first = turns.ask("a", lambda _: started.append("first"))
    second = turns.ask("a", lambda _: started.append("second"))
    turns.ask("a", lambda _: started.append("third"))
    turns.end(second)
    turns.end(first)
    assert started == ["third"]


def test_every_turn_is_given_back_however_short_its_work() -> None:
    """Work that is done before whoever asked for its turn looks again, of several owners, piece after piece."""
    places = Places("test", 1, 100, max_threads=2)

    async def work(owner: str) -> None:
        own(owner)
        async with places() as place:
            for _ in range(20):
                await place.run(lambda: None)

    async def scenario() -> None:
        await asyncio.gather(*(work(owner) for owner in "abcde" * 4))
        await work("f")

    asyncio.run(asyncio.wait_for(scenario(), 30))
    places.close()


def test_places_let_another_owner_in_while_one_fills_them() -> None:
    places = Places("test", 1, 3, max_threads=2)
    gate, order = threading.Event(), []

    async def work(owner: str, name: str) -> None:
        own(owner)
        async with places() as place:

            def step() -> None:
                if owner == "a":
                    gate.wait(10)
                order.append(name)

            await place.run(step)

    async def scenario() -> list[object]:
        tasks = [asyncio.create_task(work("a", f"a{number}")) for number in range(3)]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(asyncio.create_task(work("b", "b")), 5)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    ended = asyncio.run(scenario())
    assert order == ["b", "a0", "a1"]
    assert [type(one) for one in ended] == [type(None), type(None), RateLimited]
    places.close()


def test_requests_of_several_owners_start_one_each_a_turn() -> None:
    async def scenario() -> list[str]:
        turns, order = LoopTurns(), []

        async def ask(owner: str) -> None:
            await turns.turn(owner)
            order.append(owner)

        await asyncio.gather(*(ask("a") for _ in range(5)), ask("b"))
        return order

    order = asyncio.run(scenario())
    assert order.index("b") == 1
    assert sorted(order) == [*"aaaaab"]


def test_who_asks_alone_waits_for_nobody() -> None:
    turns = LoopTurns()
    assert not any(turns.crowded("a") for _ in range(3))
    assert turns.crowded("b")
    assert turns.crowded("b")
