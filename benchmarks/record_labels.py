"""Labels of pairs of records: what chosen ones bring, and whether thresholds keep what they promise.

F1 of the published test pairs by the number of labelled pairs, chosen as `pairmark label` chooses them and drawn at
random. Then customers in households, so that fields decide who is a candidate: thresholds of pairs drawn from the
candidates, and of people for lone pairs, each held against the rate among all pairs that it is about.

Needs ``records/`` in ``PAIRMARK_DATA``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks._customers import COLUMNS, customers, entered_again, twice
from benchmarks.common import Claim, Preset, Result
from benchmarks.records import judged, read_published, records_folder
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.records.estimator import RecordSimilarity
from pairmark.models.records.inference import infer
from pairmark.models.records.labelling import LabellingPool
from pairmark.models.records.schema import Records, Schema
from pairmark.models.records.tables import declaration

_AT_A_TIME = 20
N_LABELS = (100, 200, 400, 800)


def run(preset: Preset) -> Result:
    """Two sets and twelve worlds of 50 draws; ``quick``: one set, up to 200 labels, and four worlds of 25."""
    full, folder = preset == "full", records_folder()
    worlds, draws = (12, 50) if full else (4, 25)
    rows, claims = [], []
    for name in ("abt-buy", "amazon-google") if full else ("abt-buy",):
        curve = learning_curve(*read_published(folder / name), N_LABELS if full else N_LABELS[:2])
        rows += [
            {"set": name, "labelled pairs": n, "F1, chosen": round(chosen, 4), "F1, drawn": round(drawn, 4)}
            for n, (chosen, drawn) in curve.items()
        ]
        chosen, drawn = curve[N_LABELS[1]]
        claims.append(
            Claim(what=f"{name}: F1 of 200 chosen pairs beyond that of 200 drawn ones", goal="above 0",
                  measured=round(chosen - drawn, 4), holds=chosen > drawn)
        )  # fmt: skip
    facts = {
        "among candidates": promise_among_candidates(worlds, draws),
        "lone pairs": promise_of_lone_pairs(worlds, draws),
    }
    # Of all calibrations; the worst of so many worlds would be beyond by chance.
    most = 0.05 + 2 * (0.05 * 0.95 / (worlds * draws)) ** 0.5
    claims += [
        Claim(what=f"{what}: calibrations beyond the rate", goal=f"at most .05 and two standard errors, {most:.3f}",
              measured=round(fact["beyond"], 4), holds=fact["beyond"] <= most)
        for what, fact in facts.items()
    ]  # fmt: skip
    return Result(rows=rows, claims=claims, facts=facts)


def learning_curve(
    schema: Schema,
    cells: Records,
    pairs: dict[str, Any],
    n_labels: tuple[int, ...],
) -> dict[int, tuple[float, float]]:
    """Test F1 by the number of labelled pairs, chosen by `LabellingPool` and drawn at random from its candidates.

    A pair is the same where a published part says so; others are different. Test and validation pairs are never asked.
    """
    same_as = {
        tuple(sorted((int(a), int(b))))
        for left, right, same in pairs.values()
        for a, b in zip(left[same], right[same], strict=True)
    }

    def truth(left: Any, right: Any) -> np.ndarray:
        return np.array(
            [tuple(sorted((int(a), int(b)))) in same_as for a, b in zip(left, right, strict=True)], bool
        )

    n_left = int(max(side[0].max() for side in pairs.values())) + 1
    pool = LabellingPool(schema, cells, n_left, random_state=0)
    held_out = np.concatenate([pool.codes(*pairs[part][:2]) for part in ("valid", "test")])
    rows = np.empty((0, 2), dtype=np.int64)
    order = pool.draws(*pairs["test"][:2])
    order = order[~np.isin(pool.codes(order[:, 0], order[:, 1]), held_out)]
    curve = {}
    for n in n_labels:
        while len(rows) < n:
            labels = truth(rows[:, 0], rows[:, 1])
            chosen = pool.choose(
                min(_AT_A_TIME, n - len(rows)), rows[:, 0], rows[:, 1], labels, held_out.tolist()
            )
            rows = np.concatenate([rows, chosen])
        found = []
        for part in (rows, order[:n]):
            model = RecordSimilarity(columns=declaration(schema), random_state=0)
            same = truth(part[:, 0], part[:, 1])
            if same.all() or not same.any():
                found.append(0.0)
                continue
            model.fit_pairs(cells[part[:, 0]], cells[part[:, 1]], same)
            found.append(judged(lambda a, b, m=model: m.score_pairs(cells, a, b), pairs))
        curve[n] = (found[0], found[1])
    return curve


def promise_among_candidates(worlds: int, draws: int, fpr: float = 0.02) -> dict[str, float]:
    """How often a threshold lets more than the rate pass, of the different pairs of the list that was drawn from.

    Customers live in households, and candidates share rare cells, so who is listed depends on the fields that are
    compared. Chosen pairs train; for each of many random draws from the rest the threshold is computed anew.
    """
    beyond, worst, ratios, refused = 0, 0.0, [], 0
    for world in range(worlds):
        random = np.random.default_rng([6, world])
        table, who = twice(300, random)
        schema = infer(table, COLUMNS).schema
        pool = LabellingPool(schema, schema.read(table), random_state=world)
        rows = np.empty((0, 2), dtype=np.int64)
        while len(rows) < 80:
            chosen = pool.choose(20, rows[:, 0], rows[:, 1], who[rows[:, 0]] == who[rows[:, 1]])
            rows = np.concatenate([rows, chosen])
        model = RecordSimilarity(columns=COLUMNS, n_estimators=20, n_forest=20, random_state=world)
        cells = schema.read(table)
        model.fit_pairs(cells[rows[:, 0]], cells[rows[:, 1]], who[rows[:, 0]] == who[rows[:, 1]])
        listed = pool.draws(rows[:, 0], rows[:, 1])
        scores = model.score_pairs(cells, listed[:, 0], listed[:, 1])
        same = who[listed[:, 0]] == who[listed[:, 1]]
        failures = 0
        for _ in range(draws):
            drawn = random.permutation(len(listed))[:400]
            calibration = Calibration.fit(
                scores[drawn], same[drawn], population=len(listed), random_state=int(random.integers(2**31))
            )
            try:
                point = calibration.operating_point(fpr)
            except ValueError:
                refused += 1
                continue
            rate = float((scores[~same] > np.float32(point.threshold)).mean())
            failures += rate > fpr
            ratios.append(rate / fpr)
        beyond += failures
        worst = max(worst, failures / draws)
    return {
        "calibrations": worlds * draws, "beyond": beyond / (worlds * draws), "worst world": worst,
        "refused": refused, "mean of FPR / rate": float(np.mean(ratios)),
    }  # fmt: skip


def promise_of_lone_pairs(
    worlds: int, draws: int, fpr: float = 0.05, n_people: int = 160
) -> dict[str, float]:
    """The same for pairs of new customers, calibrated on people: training pairs are half candidates, which look alike;
    households share cells. The truth is the rate among all pairs of different people of a population of 700."""
    beyond, worst, ratios = 0, 0.0, []
    for world in range(worlds):
        random = np.random.default_rng([7, world])
        table, who = twice(200, random)
        model = RecordSimilarity(
            columns=COLUMNS, n_estimators=20, n_forest=20, n_pairs=4_000, random_state=world
        )
        model.fit(table, who)
        base = customers(700, random)
        again = entered_again(base, range(700), random)
        cells = model._validated({name: [*base[name], *again[name]] for name in base}, "X")
        left, right = np.triu_indices(700, 1)
        different = model.score_pairs(cells, left, right + 700)
        score_of = np.zeros((700, 700), dtype=np.float32)
        score_of[left, right] = score_of[right, left] = different
        own = model.score_pairs(cells, np.arange(700), np.arange(700) + 700)
        failures = 0
        for _ in range(draws):
            # Drawn with replacement, so that it is a sample of the population whatever its size; who comes twice counts
            # once, as one person.
            people = np.unique(random.integers(0, 700, n_people))
            a, b = np.triu_indices(people.size, 1)
            units = np.stack([people[a], people[b]], axis=1)
            scores = np.concatenate([score_of[people[a], people[b]], own[people]])
            same = np.arange(scores.size) >= a.size
            units = np.concatenate([units, np.stack([people, people], axis=1)])
            calibration = Calibration.fit(
                scores,
                same,
                units,
                protocol="open-set",
                listing="all",
                random_state=int(random.integers(2**31)),
            )
            rate = float((different > np.float32(calibration.operating_point(fpr).threshold)).mean())
            failures += rate > fpr
            ratios.append(rate / fpr)
        beyond += failures
        worst = max(worst, failures / draws)
    return {
        "calibrations": worlds * draws, "beyond": beyond / (worlds * draws), "worst world": worst,
        "mean of FPR / rate": float(np.mean(ratios)),
    }  # fmt: skip
