"""Slaves, their sum, subgradients and bounds of GHOST, against every assignment there is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from pairmark.models.ghost.learning import GhostWeights, TrainingSet, error_of


def training_set(rng, n, n_clusters=2, *, balanced=True, n_others=1):
    codes = np.sort(np.concatenate([np.arange(n_clusters), rng.integers(0, n_clusters, n - n_clusters)]))
    others = rng.uniform(0.0, 1.5, (n_others, n, n)).astype(np.float32)
    training = TrainingSet(
        columns=rng.standard_normal((3, n)).astype(np.float32),
        matrices=others,
        codes=codes.astype(np.int64),
        error=error_of(codes, n_clusters, balanced=balanced),
        exemplar=2.0,
    )
    # Away from the start: any multipliers that add up to 0 over the slaves of an exemplar.
    points = rng.standard_normal((n, n))
    training.points, training.clusters = points, -points.sum(axis=0)
    return training


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


@pytest.mark.parametrize("balanced", [True, False])
def test_energies_are_those_of_equations_10_to_12(balanced: bool) -> None:
    rng = np.random.default_rng(3)
    training, weights = training_set(rng, 5, balanced=balanced), random_weights(rng)
    seen = training.distances(weights)
    costs = training.costs(seen, weights)
    expected = np.einsum(
        "i,ipq->pq", weights.features, np.abs(training.columns[:, :, None] - training.columns[:, None])
    )
    np.testing.assert_allclose(seen, expected + weights.meta_features[0] * training.matrices[0], rtol=1e-5)
    for exemplars in ([0], [4], [0, 4], [1, 2, 3], [0, 1, 2, 3, 4]):
        opened = np.isin(np.arange(5), exemplars)
        best = np.inf
        for chosen, there in assignments(5):
            if (there == opened).all():
                paid = seen[np.arange(5), chosen].sum() + opened.sum() * weights.exemplar * training.exemplar
                best = min(best, paid - delta(training.codes, chosen, opened, training.error))
        assert training.solve(costs).dual <= best + 1e-6
    truth = training.true_exemplars(seen)
    assert delta(training.codes, truth, np.isin(np.arange(5), truth), training.error) == 0
    paid = seen[np.arange(5), truth].sum() + 2 * weights.exemplar * training.exemplar
    assert training.true_energy(seen, truth, weights) == pytest.approx(paid, rel=1e-5)
    for c in range(2):
        there = np.flatnonzero(training.codes == c)
        assert truth[there[0]] == there[seen[np.ix_(there, there)].sum(axis=0).argmin()]


def test_subgradients_equal_finite_differences() -> None:
    rng = np.random.default_rng(8)
    for _ in range(5):
        training, weights = training_set(rng, 6, n_others=2), random_weights(rng, 2)
        truth = training.true_exemplars(training.distances(weights))

        def loss(some: GhostWeights, training: TrainingSet = training, truth: np.ndarray = truth) -> float:
            seen = training.distances(some)
            return training.true_energy(seen, truth, some) - training.solve(training.costs(seen, some)).dual

        solution = training.solve(training.costs(training.distances(weights), weights))
        features, others, price = training.gradient(truth, solution)
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
        training.points[2, 4] += step
        assert training.solve(training.costs(training.distances(weights), weights)).dual >= before - 1e-9
