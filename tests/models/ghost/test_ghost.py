"""What a user of GHOST counts on: meta-features, graphs, strategies, clustering, honesty about bad data."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.spatial import distance as scipy_distance
from scipy.stats import kendalltau, pearsonr, spearmanr
from sklearn.datasets import load_wine

from pairmark.models import Ghost
from pairmark.models.ghost.learning import GhostWeights, TrainingSet, error_of
from pairmark.models.ghost.space import (
    PAIRS,
    Space,
    choose,
    draw_companions,
    given_graph,
    known_names,
    nearest_graph,
    scales_of,
)

X, y = load_wine(return_X_y=True)
X = X.astype(np.float32)
RNG = np.random.default_rng(0)
# Read before any test registers a function of its own, whatever the order of the tests.
BUILT_IN = tuple(known_names())


def noisy(n: int = 60, informative: int = 2, noise: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % 2
    A = rng.standard_normal((n, informative + noise))
    A[:, :informative] += 3.0 * classes[:, None]
    A[:, informative:] *= 10.0
    return A.astype(np.float32), classes


def space_of(names: list[str], rows: np.ndarray = X) -> Space:
    return Space(choose(names, order=2, graph=False, cluster_metric=False), scales_of(rows), rows)


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_distances_are_scipys(name: str) -> None:
    space = space_of([name])
    A, B = space.points(X[:6]), space.points(X[100:104])
    got = space.pair_values(name, A, B, grid=True)
    if name in ("pearson", "spearman", "kendall"):
        by = {"pearson": pearsonr, "spearman": spearmanr, "kendall": kendalltau}[name]
        rows = (A.scaled, B.scaled) if name == "pearson" else (A.raw, B.raw)
        expected = np.array([[1.0 - by(a, b).statistic for b in rows[1]] for a in rows[0]])
    elif name == "kulsinski":
        a, b = A.binary[:, None] > 0, B.binary[None] > 0
        apart, both, n = (a != b).sum(axis=2), (a & b).sum(axis=2), X.shape[1]
        expected = (apart - both + n) / (apart + n)
    else:
        view = PAIRS[name][1]
        boolean = view == "binary"
        rows = [np.asarray(getattr(side, view), dtype=bool if boolean else float) for side in (A, B)]  # type: ignore[assignment]
        power = {"p": 3.0} if name == "minkowski" else {}
        expected = scipy_distance.cdist(*rows, name, **power)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    pairs = space.pair_values(name, space.points(X[:4]), space.points(X[100:104]))
    assert pairs.tolist() == np.diag(got[:4]).tolist()
    assert pairs.tobytes() == space.pair_values(name, space.points(X[100:104]), space.points(X[:4])).tobytes()


def test_scales_are_means_over_all_pairs_and_constant_columns_count_for_nothing() -> None:
    rows = np.column_stack([RNG.standard_normal(20), np.full(20, 0.1), RNG.integers(0, 2, 20)])
    scales = scales_of(rows.astype(np.float32))
    i, j = np.triu_indices(20, 1)
    expected = np.abs(rows[i].astype(np.float32) - rows[j].astype(np.float32)).mean(axis=0)
    np.testing.assert_allclose(scales.differences, expected, rtol=1e-5, atol=1e-9)
    assert (scales.differences[1], scales.thresholds[2]) == (0, 0.5)


def test_rows_without_direction_have_a_distance() -> None:
    flat, other = np.full((1, 4), 3.0, dtype=np.float32), np.array([[1, 2, 3, 5]], dtype=np.float32)
    space = space_of(["correlation"], X[:, :4])
    for name in ("correlation", "spearman", "kendall"):
        assert space.pair_values(name, space.points(flat), space.points(other))[0] == 1.0
        assert space.pair_values(name, space.points(flat), space.points(flat))[0] == 0.0


def three_by_hand(name: str, between: np.ndarray, top: int) -> float:
    """Section 3.9 word by word, of three points; the last one is the center."""
    a, b, c = (between[couple] for couple in combinations(range(3), 2))
    if name == "perimeter":
        return a + b + c
    if name == "area":
        half = (a + b + c) / 2
        return np.sqrt(max(0.0, half * (half - a) * (half - b) * (half - c)))
    if name == "eccentricity":
        return max(a, b, c)
    if name == "hub":
        return min(16.0, (between[0, 2] + between[1, 2]) / max(between[0, 1], 1e-12))

    def connected(members: tuple[int, ...]) -> bool:
        seen = {members[0]}
        while others := {j for i in seen for j in members if between[i, j]} - seen:
            seen |= others
        return len(seen) == len(members)

    subsets = [subset for n in (1, 2, 3) for subset in combinations(range(3), n)]
    if name == "cliques":
        cliques = [subset for subset in subsets if all(between[c] for c in combinations(subset, 2))]
        return max(0.0, top - max(map(len, cliques)))
    apart = [len(subset) for subset in subsets if not connected(subset)]
    # What must go before the rest falls apart: of a clique all but one.
    return 3 - (3 - max(apart) if apart else 2)


@pytest.mark.parametrize("name", ["perimeter", "area", "eccentricity", "hub", "cliques", "resilience"])
@pytest.mark.parametrize("how", ["average", "minimum", "maximum"])
def test_features_of_three_points_are_those_of_their_definition(name: str, how: str) -> None:
    rows, codes = X[::18], np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1], dtype=np.int64)
    assert len(rows) == 10
    space = Space(choose([name], order=3, graph=True, cluster_metric=False), scales_of(rows), rows)
    everyone = space.points(rows)
    space.graph = nearest_graph(space.graph_distances(everyone, everyone), 2)
    points = space.training_points
    companions = draw_companions(codes, 2, np.random.default_rng(0))
    got = space.set_grid(name, points, points, points.take(companions.by_class), companions, codes, how)
    euclid = scipy_distance.cdist(points.scaled, points.scaled)
    graph = space.graph
    between = euclid if name in ("perimeter", "area") else graph.paths
    between = graph.links.astype(float) if name in ("cliques", "resilience") else between
    for p in range(10):
        for q in range(10):
            values = [
                three_by_hand(name, between[np.ix_([p, r, q], [p, r, q])], graph.facts.top_degree)
                for r in np.flatnonzero(codes == codes[q])
                if r not in (p, q)
            ]
            by = {"average": np.mean, "minimum": np.min, "maximum": np.max}[how]
            assert got[p, q] == pytest.approx(by(values) if p != q and values else 0.0, rel=1e-4, abs=1e-3)


class TestGraphs:
    def test_paths_are_shortest_and_unconnected_points_count_as_far(self) -> None:
        graph = given_graph([[0, 1, 2.0], [1, 2, 3.0], [0, 2, 9.0], [3, 4, 1.0], [1, 0, 5.0]], 6, 2)
        assert (graph.paths[0, :3].tolist(), graph.facts.far) == ([0.0, 2.0, 5.0], 2 * (5.0 + 9.0))
        assert graph.paths[0, 3] == graph.paths[5, 0] == graph.facts.far
        assert (graph.paths == graph.paths.T).all()
        assert graph.facts.top_degree == 2

    @pytest.mark.parametrize(
        ("edges", "message"),
        [
            ([[0, 7]], "beyond"),
            ([[0, 0]], "itself"),
            ([[0, 0.5]], "row numbers"),
            ([[0, 1, 0.0]], "above 0"),
            ([0, 1], "shape"),
        ],
    )
    def test_bad_edges_are_named(self, edges: list, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Ghost().fit(X[::40], y[::40], edges=edges)

    def test_a_new_point_is_linked_by_its_features_never_by_a_label(self) -> None:
        A, classes = noisy(80)
        model = Ghost(graph="knn", random_state=0).fit(A[:60], classes[:60])
        one = model.class_distances(A[60:])
        np.testing.assert_allclose(
            np.vstack([model.class_distances(row[None]) for row in A[60:]]), one, rtol=1e-9
        )

    def test_edges_given_for_new_points_are_used(self) -> None:
        A, classes = noisy(60)
        inside = [(i, j) for i, j in combinations(range(60), 2) if classes[i] == classes[j]]
        model = Ghost(meta_features=["path"], random_state=0).fit(A, classes, edges=inside)
        new = np.zeros((3, 12), dtype=np.float32)
        assert model.predict(new, edges=[(0, 0), (0, 2), (1, 1), (2, 3)]).tolist() == [0, 1, 1]

    def test_disconnected_parts_are_no_error(self) -> None:
        A, classes = noisy(40)
        model = Ghost(random_state=0, order=3).fit(A, classes, edges=[[0, 2], [1, 3]])
        assert np.isfinite(model.class_distances(A)).all()
        assert np.isfinite(model.pair_score(A[:20], A[20:])).all()


class TestLearning:
    def test_noise_gets_little_weight(self) -> None:
        A, classes = noisy(120)
        model = Ghost(random_state=0).fit(A, classes)
        assert model.weights_[:2].min() > model.weights_[2:].max()
        assert model.weights_[:2].mean() > 2 * model.weights_[2:].mean()
        B, others = noisy(200, seed=1)
        right = (model.predict(B) == others).mean()
        assert right > 0.95
        # The temperature of probabilities is that of rows that were withheld.
        assert abs(model.predict_proba(B).max(axis=1).mean() - right) < 0.1

    def test_a_stronger_penalty_leaves_fewer_weights_and_then_says_so(self) -> None:
        A, classes = noisy(60, noise=30)
        kept = [
            (Ghost(random_state=0, tau=tau, max_iter=100).fit(A, classes).weights_ > 0).sum()
            for tau in (0.0, 20.0)
        ]
        assert kept[0] > kept[1]
        with pytest.raises(ValueError, match="all weights were projected to zero"):
            Ghost(meta_features=["hamming"], random_state=0, tau=1e6, max_iter=5).fit(
                np.round(A), np.roll(classes, 7)
            )

    def test_learning_lowers_the_loss_and_reports_it(self) -> None:
        model = Ghost(random_state=0).fit(X, y)
        assert min(model.loss_curve_) < model.loss_curve_[0]
        assert min(model.loss_curve_) >= 0

    def test_it_ends_when_it_no_longer_gets_better(self) -> None:
        assert len(Ghost(random_state=0, max_iter=2_000).fit(X, y).loss_curve_) < 2_000

    def test_large_data_are_learned_in_parts(self) -> None:
        A, classes = noisy(300)
        model = Ghost(subset_size=64, random_state=0).fit(A, classes)
        assert model.weights_[:2].min() > model.weights_[2:].max()


class TestClasses:
    @pytest.mark.parametrize("strategy", ["average", "minimum", "maximum", "center", "knn"])
    def test_strategies_read_distances_as_named(self, strategy: str) -> None:
        model = Ghost(strategy=strategy, random_state=0).fit(X[::2], y[::2])
        found = model.class_distances(X[1::2])
        table = -model.score_against(X[1::2], X[::2])
        codes = y[::2]
        for c in range(3):
            if strategy == "center":
                assert codes[model.exemplars_[c]] == c
                np.testing.assert_allclose(found[:, c], table[:, model.exemplars_[c]], rtol=1e-5)
            elif strategy != "knn":
                by = {"average": np.mean, "minimum": np.min, "maximum": np.max}[strategy]
                np.testing.assert_allclose(found[:, c], by(table[:, codes == c], axis=1), rtol=1e-5)
        if strategy == "knn":
            near = codes[np.argsort(table, axis=1, kind="stable")[:, :5]]
            votes = np.stack([(near == c).sum(axis=1) for c in range(3)], axis=1)
            assert (votes[np.arange(len(near)), model.predict(X[1::2])] == votes.max(axis=1)).all()
        share = model.predict_proba(X[1::2])
        np.testing.assert_allclose(share.sum(axis=1), 1.0)
        assert (model.classes_[share.argmax(axis=1)] == model.predict(X[1::2])).all()
        assert model.score(X[1::2], y[1::2]) > 0.85

    def test_higher_orders_and_cluster_metrics_classify(self) -> None:
        for params in ({"order": 3}, {"cluster_metric": True}):
            model = Ghost(graph="knn", random_state=0, **params).fit(X[::2], y[::2])
            assert model.score(X[1::2], y[1::2]) > 0.85
            one = np.vstack([model.class_distances(row[None]) for row in X[1:8:2]])
            np.testing.assert_allclose(one, model.class_distances(X[1:8:2]), rtol=1e-6)

    def test_auto_takes_the_best_of_the_withheld_rows(self) -> None:
        model = Ghost(random_state=0).fit(X, y)
        assert model.validation_[model.strategy_] == max(model.validation_.values())

    def test_small_classes_and_sets_larger_than_a_class(self) -> None:
        rows = np.vstack([X[:4], X[100:101], X[150:152]])
        model = Ghost(order=3, random_state=0).fit(rows, [0, 0, 0, 0, 1, 2, 2])
        assert set(model.predict(rows)) <= {0, 1, 2}
        assert np.isfinite(model.predict_proba(rows)).all()

    def test_pairs_teach_no_classes(self) -> None:
        i, j = np.triu_indices(60, 1)
        model = Ghost(random_state=0).fit_pairs(X[::3][i], X[::3][j], y[::3][i] == y[::3][j])
        with pytest.raises(ValueError, match="knows no classes"):
            model.predict(X)


class TestTheDistance:
    def test_transform_gives_the_same_distance(self) -> None:
        model = Ghost(random_state=0).fit(X, y)
        Z = model.transform(X)
        assert Z.shape[1] == (model.weights_ > 0).sum()
        expected = np.abs(Z[:40] - Z[60:100]).sum(axis=1)
        np.testing.assert_allclose(-model.pair_score(X[:40], X[60:100]), expected, rtol=1e-4)
        named = Ghost(meta_features=["euclidean", "cosine"], random_state=0).fit(X, y)
        with pytest.raises(ValueError, match="which no vectors express"):
            named.transform(X)

    def test_contributions_add_up(self) -> None:
        model = Ghost(meta_features=["features", "euclidean", "path"], graph="knn", random_state=0).fit(X, y)
        reported = model.explain(X[0], X[100])
        total = sum(entry["contribution"] for entry in reported["contributions"]) + reported["rest"]
        assert total == pytest.approx(model.pair_score(X[:1], X[100:101])[0], rel=1e-5)
        assert {entry["meta_feature"] for entry in reported["contributions"]} <= set(
            model.meta_feature_names_
        )
        with pytest.raises(ValueError, match="explain takes one pair"):
            model.explain(X[:2], X[:2])

    def test_every_meta_feature_at_once_is_symmetric(self) -> None:
        model = Ghost(
            order=3, meta_features=list(BUILT_IN), graph="knn", cluster_metric=True, tau=0.0, max_iter=5
        ).fit(X[::3], y[::3])
        a, b = X[1::3], X[2::3]
        assert model.pair_score(a, b).tobytes() == model.pair_score(b, a).tobytes()
        grid = model.score_against(a[:5], b)
        assert grid.tobytes() == np.stack([model.pair_score(row[None], b) for row in a[:5]]).tobytes()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"meta_features": ["no-such"]}, "known: features"),
        ({"meta_features": []}, "at least one"),
        ({"meta_features": ["features", "features"]}, "each name once"),
        ({"meta_features": ["path"]}, "needs a graph"),
        ({"meta_features": ["area"]}, "order=3"),
        ({"order": 4}, "order"),
        ({"strategy": "best"}, "strategy"),
        ({"graph": "delaunay"}, "graph"),
    ],
)
def test_bad_parameters_are_named(params: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ghost(**params).fit(X, y)


def test_all_rows_alike_is_said() -> None:
    with pytest.raises(ValueError, match="alike"):
        Ghost().fit(np.ones((10, 3)), np.arange(10) % 2)


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
