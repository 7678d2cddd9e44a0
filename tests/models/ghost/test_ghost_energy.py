"""Slaves, their sum, subgradients and bounds of GHOST, against every assignment there is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from pairmark.models.ghost.kernels import energy as kernels
from pairmark.models.ghost.learning import GhostWeights, TrainingSet, error_of


def training_set(rng, n, n_clusters=2, *, balanced=True, n_others=1, alpha=1.0, beta=1.0):
    codes = np.sort(np.concatenate([np.arange(n_clusters), rng.integers(0, n_clusters, n - n_clusters)]))
    others = rng.uniform(0.0, 1.5, (n_others, n, n)).astype(np.float32)
    made = TrainingSet(
        columns=rng.standard_normal((3, n)).astype(np.float32),
        slaves=others,
        truths=others,
        codes=codes.astype(np.int64),
        error=error_of(codes, n_clusters, alpha=alpha, beta=beta, balanced=balanced),
        exemplar=2.0,
    )
    # Away from the start: any multipliers that add up to 0 over the slaves of an exemplar.
    points = rng.standard_normal((n, n))
    made.points, made.clusters = points, -points.sum(axis=0)
    return made


def random_weights(rng, n_others=1):
    return GhostWeights(
        features=rng.uniform(0, 1, 3), meta_features=rng.uniform(0, 1, n_others), exemplar=rng.uniform(0, 2)
    )


def open_sets(n):
    return [np.array(bits, dtype=bool) for bits in product((0, 1), repeat=n)]


def delta(codes, assigned, opened, error):
    """Equation 10, word by word."""
    total = 0.0
    for c in range(error.over.size):
        z = 1 - opened[codes == c].sum()
        total += error.none[c] if z > 0 else -z * error.over[c]
        total += sum(error.away[c] for p in np.flatnonzero(codes == c) if codes[assigned[p]] != c)
    return total


def assignments(n):
    """Every feasible (exemplar of each point, exemplars)."""
    for opened in open_sets(n):
        if opened.any():
            for chosen in product(*([p] if opened[p] else np.flatnonzero(opened) for p in range(n))):
                yield np.array(chosen), opened


@pytest.mark.parametrize("order", [2, 3, 4])
def test_slaves_of_any_order_add_up_to_the_energy_and_are_minimised(order: int) -> None:
    """Over all x in {0, 1}^(n x n), with potentials of every tuple of points, and not only of sets that are chosen."""
    rng = np.random.default_rng(order)
    n = 3
    codes = np.array([0, 0, 1])
    error = error_of(codes, 2, alpha=0.7, beta=0.9, balanced=True)
    # u[l][p_0, ..., p_l, q]
    potentials = [rng.uniform(0, 1, (n,) * (size)) for size in range(2, order + 1)]
    lam = rng.standard_normal((n, n))
    lam_clusters = -lam.sum(axis=0)
    paired, own = np.zeros((n, n)), np.zeros(n)
    for u in potentials:
        for index in np.ndindex(*u.shape):
            others = set(index[:-1]) - {index[-1]}
            if not others:
                own[index[-1]] += u[index]
            elif len(others) == 1:
                paired[others.pop(), index[-1]] += u[index]
    home = error.away[codes][:, None] * (codes[:, None] == codes[None, :])

    def slave_energy(p, x):
        """What belongs to p: tuples whose first point that is not the center is p; its share of the exemplars."""
        total = 0.0
        for u in potentials:
            for index in np.ndindex(*u.shape):
                *some, q = index
                first = next((i for i in some if i != q), None)
                if first == p:
                    total += u[index] * np.prod([x[i, q] for i in some])
        total += sum(home[p, q] * x[p, q] for q in range(n) if q != p)
        total += sum(((own[q] + home[q, q]) / (n + 1) + lam[p, q]) * x[q, q] for q in range(n))
        return total

    def cluster_energy(c, x):
        there = np.flatnonzero(codes == c)
        count = sum(x[q, q] for q in there)
        total = sum(((own[q] + home[q, q]) / (n + 1) + lam_clusters[q]) * x[q, q] for q in there)
        return total - (error.none[c] if count == 0 else (count - 1) * error.over[c])

    least = np.full(n + 2, np.inf)
    for bits in product((0, 1), repeat=n * n):
        x = np.array(bits).reshape(n, n)
        energies = [slave_energy(p, x) for p in range(n)] + [cluster_energy(c, x) for c in range(2)]
        allowed = [x[p].sum() == 1 and (x[p] <= np.diag(x)).all() for p in range(n)] + [True, True]
        least = np.where(allowed, np.minimum(least, energies), least)
        if all(allowed):
            energy = sum(
                u[index] * np.prod([x[i, index[-1]] for i in index[:-1]])
                for u in potentials
                for index in np.ndindex(*u.shape)
            )
            chosen = x.argmax(axis=1)
            expected = energy - delta(codes, chosen, np.diag(x) > 0, error)
            assert sum(energies) - error.away[codes].sum() == pytest.approx(expected)
    costs = paired + home
    np.fill_diagonal(costs, own + np.diag(home))
    chosen, votes = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    assert kernels.solve_points(costs, lam, chosen, votes) == pytest.approx(least[:n].sum())
    opened = np.empty(n, dtype=np.bool_)
    found = kernels.solve_clusters(costs, lam_clusters, codes, error.over, error.none, opened)
    assert found == pytest.approx(least[n:].sum())


@pytest.mark.parametrize("balanced", [True, False])
def test_energies_are_those_of_equations_10_to_12(balanced: bool) -> None:
    rng = np.random.default_rng(3)
    made, weights = training_set(rng, 5, balanced=balanced), random_weights(rng)
    seen = made.distances(weights)
    costs = made.costs(seen, weights)
    expected = np.einsum(
        "i,ipq->pq", weights.features, np.abs(made.columns[:, :, None] - made.columns[:, None])
    )
    np.testing.assert_allclose(seen, expected + weights.meta_features[0] * made.slaves[0], rtol=1e-5)
    for exemplars in ([0], [4], [0, 4], [1, 2, 3], [0, 1, 2, 3, 4]):
        opened = np.isin(np.arange(5), exemplars)
        best = np.inf
        for chosen, there in assignments(5):
            if (there == opened).all():
                paid = seen[np.arange(5), chosen].sum() + opened.sum() * weights.exemplar * made.exemplar
                best = min(best, paid - delta(made.codes, chosen, opened, made.error))
        assert made.augmented(costs, np.array(exemplars)) == pytest.approx(best, rel=1e-5)
    truth = made.true_exemplars(seen)
    assert delta(made.codes, truth, np.isin(np.arange(5), truth), made.error) == 0
    paid = seen[np.arange(5), truth].sum() + 2 * weights.exemplar * made.exemplar
    assert made.true_energy(seen, truth, weights) == pytest.approx(paid, rel=1e-5)
    for c in range(2):
        there = np.flatnonzero(made.codes == c)
        assert truth[there[0]] == there[seen[np.ix_(there, there)].sum(axis=0).argmin()]


def lp_bound(made: TrainingSet, costs: np.ndarray) -> float:
    """The largest dual value: every slave mixes its configurations, exemplars alike in all of them."""
    n = len(made)
    prices = []
    theta = np.diag(costs) / (n + 1)
    slaves = [
        [
            (theta[opened].sum() + (costs[p, q] if q != p else 0.0), opened)
            for opened in open_sets(n)
            for q in np.flatnonzero(opened)
            if opened[p] == (q == p)
        ]
        for p in range(n)
    ]
    for c in range(made.error.over.size):
        there = np.flatnonzero(made.codes == c)
        configurations = []
        for some in open_sets(there.size):
            opened = np.zeros(n, dtype=bool)
            opened[there[some]] = True
            earned = made.error.none[c] if not some.any() else (some.sum() - 1) * made.error.over[c]
            configurations.append((theta[opened].sum() - earned, opened))
        slaves.append(configurations)
    total = sum(len(configurations) for configurations in slaves)
    at = 0
    equal, right = [], []
    for which, configurations in enumerate(slaves):
        one = np.zeros(total + n)
        one[at : at + len(configurations)] = 1
        equal.append(one)
        right.append(1.0)
        for q in range(n):
            if which < n or made.codes[q] == which - n:
                line = np.zeros(total + n)
                for i, (_, opened) in enumerate(configurations):
                    line[at + i] = opened[q]
                line[total + q] = -1
                equal.append(line)
                right.append(0.0)
        prices += [price for price, _ in configurations]
        at += len(configurations)
    found = linprog(
        prices + [0.0] * n, A_eq=np.array(equal), b_eq=right, bounds=[(0, None)] * total + [(None, None)] * n
    )
    return found.fun - made.constant


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("balanced", [True, False])
def test_the_dual_is_below_every_assignment_and_climbs_to_the_lp_bound(seed: int, balanced: bool) -> None:
    rng = np.random.default_rng(seed)
    made = training_set(rng, 5, balanced=balanced, alpha=0.3)
    weights = random_weights(rng)
    costs = made.costs(made.distances(weights), weights).astype(np.float64)
    least = min(
        costs[np.flatnonzero(~opened), chosen[~opened]].sum()
        + np.diag(costs)[opened].sum()
        - sum(
            made.error.none[c] if count == 0 else (count - 1) * made.error.over[c]
            for c, count in enumerate(np.bincount(made.codes[opened], minlength=2))
        )
        - made.constant
        for chosen, opened in assignments(5)
    )
    bound = lp_bound(made, costs)
    assert bound <= least + 1e-9
    best = -np.inf
    for _ in range(20_000):
        solution = made.solve(costs)
        assert solution.dual <= least + 1e-9
        best = max(best, solution.dual)
        if best >= bound - 1e-3:
            break
        # Polyak's step, whose limit is the bound: the squared length of the projected subgradient is known.
        length = float((solution.votes * (1 - solution.votes / 6)).sum())
        made.move(costs, solution, (bound - solution.dual) / length)
    # The multipliers stayed in Lambda all the way.
    np.testing.assert_allclose(made.points.sum(axis=0) + made.clusters, 0.0, atol=1e-9)
    assert best == pytest.approx(bound, abs=2e-3)


def test_subgradients_equal_finite_differences() -> None:
    rng = np.random.default_rng(8)
    for _ in range(5):
        made, weights = training_set(rng, 6, n_others=2), random_weights(rng, 2)
        truth = made.true_exemplars(made.distances(weights))

        def loss(some: GhostWeights, made: TrainingSet = made, truth: np.ndarray = truth) -> float:
            seen = made.distances(some)
            return made.true_energy(seen, truth, some) - made.solve(made.costs(seen, some)).dual

        solution = made.solve(made.costs(made.distances(weights), weights))
        features, others, price = made.gradient(truth, solution)
        flat = np.concatenate([features, others, [price]])
        step = 1e-3
        for at in range(flat.size):
            ends = []
            for sign in (1, -1):
                moved = np.concatenate([weights.features, weights.meta_features, [weights.exemplar]])
                moved[at] += sign * step
                ends.append(
                    loss(GhostWeights(features=moved[:3], meta_features=moved[3:5], exemplar=float(moved[5])))
                )
            assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(flat[at], abs=5e-3)
        # In the multipliers: raising lambda of one slave alone raises the dual by what that slave holds.
        before = solution.dual
        made.points[2, 4] += step
        assert made.solve(made.costs(made.distances(weights), weights)).dual >= before - 1e-9
