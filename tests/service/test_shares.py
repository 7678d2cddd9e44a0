"""Fair shares: all of it for who asks alone, and a share for each of several."""

from __future__ import annotations

from pairmark.service.shares import Turns


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
