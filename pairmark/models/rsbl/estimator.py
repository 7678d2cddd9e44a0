"""Recursive similarity-based learning: similarities to neighbors as features, layer on layer."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64, Matrix
from pairmark.models.core.base import EmbedderMixin, PairScorerMixin
from pairmark.models.core.inputs import one_of_equals
from pairmark.models.core.kernels import LANES, row_products, unit_rows
from pairmark.models.core.progress import one_blas_thread, report
from pairmark.models.core.scaling import fitted_sharpness
from pairmark.models.core.search import (
    GalleryIndex,
    Rows,
    SearchForm,
    encode,
    same_measure,
    seal_array,
)
from pairmark.models.core.spec import LearnerSpec, Seed, check_params, document_parameters, keep_arguments
from pairmark.models.core.state import Array, Fact, StateRecord, StoredState, refuse
from pairmark.models.pairs.lists import labeled_rows_of_pairs
from pairmark.models.rsbl.growth import (
    MAX_EXACT_CLASSES,
    Distances,
    Growth,
    Inputs,
    Judge,
    Layer,
    by_class,
    choose,
    class_distances,
    exact_dual,
    folds,
    iterative_primal,
    walk_layers,
)

Metric = Literal["euclidean", "manhattan", "cosine"]
BLOCK_BYTES: Final = 64 * 1024 * 1024
"""Most memory for the rows of the space that are computed at a time."""


_MOST_LAYERS = 20


SELECTION_ROWS: Final = 2_000
"""k is chosen, and probabilities calibrated, on at most so many rows, drawn class by class."""
EXACT_ROWS: Final = 2_000
"""Up to so many rows the final machine is solved exactly, from their inner products."""
MAX_FINAL_BYTES: Final = 2 * 1024**3


@document_parameters
class RSBL(PairScorerMixin, EmbedderMixin, ClassifierMixin, BaseEstimator):
    """Recursive similarity-based learning (Maszczyk & Duch, "Recursive similarity-based algorithm for deep learning").

    Algorithm 1: features are standardised. Each layer finds every training row's nearest neighbors in the space so
    far and adds ``exp(-beta d(x, neighbor)^2)`` as features; k' neighbors of at most ``k_max`` are kept, those with
    the fewest errors. A linear SVM or the nearest row classifies in what has grown. ``beta = 0.1`` on Euclidean
    distances is the paper's width in the form of its section 4.1.

    Where the paper is silent: a row is not its own neighbor; ties go to the earlier row and the
    smaller k; a 1NN's training error leaves the row itself out; more than two classes take one machine each against
    the rest. With more than ``max_references`` training rows only a sample of them, drawn class by class, can be
    neighbors, and with more than 2,000 rows k' is chosen on a sample and the final machine solved iteratively, with
    squared hinge loss.

    From explicit pairs, rows that same pairs join, directly or in a chain, are one class. Pairs of positive weight
    count alike: a chain is no stronger than its links.

    Attributes
    ----------
    classes_ : the classes, sorted.
    k_ : neighbors kept in each layer.
    errors_ : share of errors of each k that was tried, for each layer.
    layers_ : what each layer adds.
    n_components_ : width of the space that has grown.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import RSBL
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(30), 4)  # 30 people, 4 samples each
    >>> X = rng.normal(size=(30, 6))[y] + 0.3 * rng.normal(size=(120, 6))
    >>> model = RSBL(depth=1, k_max=3).fit(X[:80], y[:80])
    >>> model.predict(X[:3])
    array([0, 0, 0])
    >>> same, different = model.pair_score(X[[80, 80]], X[[81, 84]])
    >>> bool(same > different)
    True
    """

    classes_: Annotated[NDArray[Any], Array(kind="labels", shape=("classes",))]
    k_: Annotated[list[Annotated[int, Field(ge=0)]], Fact()]
    errors_: Annotated[list[list[float]], Fact()]
    n_components_: Annotated[int, Fact(), Field(ge=1)]
    _sharpness: Annotated[float, Fact(), Field(ge=0.0)]
    _inputs: Annotated[Inputs, StateRecord()]
    _betas: Annotated[list[Annotated[float, Field(ge=0.0)]], Fact()]
    _refs: list[Float32]
    layers_: list[Layer]
    _final_codes: Annotated[Int64 | None, Array(shape=("rows",), below="classes")]
    _final_rows: list[Float32] | None
    _coef: Annotated[Float64 | None, Array(shape=("machines", "n_components"))]
    _intercept: Annotated[Float64 | None, Array(shape=("machines",))]

    _gone = frozenset({"nominal"})
    score = ClassifierMixin.score

    def __init__(
        self,
        depth: Annotated[int, Field(ge=1, le=20, description="layers of similarity features")] = 5,
        k_max: Annotated[
            int,
            Field(
                ge=1,
                le=1000,
                description="maximum number of neighbors of each training row that become features in one layer",
            ),
        ] = 20,
        beta: Annotated[
            Annotated[float, Field(gt=0.0, le=1e12)] | Literal["median"],
            Field(
                description="width of the Gaussian features exp(-beta d^2), above 0; median: one over the median "
                "squared distance, chosen for each layer"
            ),
        ] = 0.1,
        metric: Annotated[
            Metric, Field(description="the distance d that neighbors and features are made from")
        ] = "euclidean",
        final: Annotated[
            Literal["svm", "1nn"],
            Field(description="classifier in the final space: a linear SVM, or the nearest training row"),
        ] = "svm",
        C: Annotated[float, Field(gt=0.0, le=1e12, description="cost of the linear SVM's errors")] = 32.0,
        selection: Annotated[
            Literal["training", "folds"],
            Field(
                description="where the error that chooses k is measured: on inner folds, or on the training rows "
                "themselves"
            ),
        ] = "folds",
        n_folds: Annotated[
            int, Field(ge=2, le=50, description="inner folds, for selection and for calibrated probabilities")
        ] = 5,
        max_references: Annotated[
            int,
            Field(
                ge=2,
                le=50_000,
                description="maximum number of training rows that can be neighbors, drawn from each class",
            ),
        ] = 2_000,
        random_state: Annotated[Seed, Field(description="seed of all random draws")] = 0,
    ) -> None:
        keep_arguments(self, locals())

    def _learn_identities(self, rows: Float32, codes: Int64, identities: NDArray[Any]) -> None:
        rng = np.random.default_rng(self.random_state or 0)
        references = stratify(codes, self.max_references, rng)
        # Threads that wait for each other cost many times what products of so few rows take.
        with one_blas_thread():
            self.k_, self.errors_, judges = self.chosen(rows, codes, identities.size, rng)
            decisions = np.concatenate([judge.decisions() for judge in judges])
            self._sharpness = fitted_sharpness(decisions, np.concatenate([judge.truth for judge in judges]))
            self.classes_, self._inputs = identities, Inputs.of_rows(rows)
            growth = self._growth(self._inputs.transform(rows), np.arange(codes.size), references)
            for k in self.k_:
                growth.commit(k)
            self._set_space(growth)
            blocks = growth.blocks
            # Its distances take as much memory as the features.
            del growth
            self._set_classifier(blocks, codes, rng)

    def _learn_pairs(self, left: Float32, right: Float32, same: Bool, weight: Float64) -> None:
        rows, codes = labeled_rows_of_pairs(left, right, same, weight)
        self._learn_identities(rows, codes, np.arange(int(codes.max()) + 1))

    # ------------------------------------------------------------ fitting

    def _check_params(self) -> None:
        if not isinstance(self.beta, str) and not self.beta > 0:
            raise ValueError(
                f"beta is {self.beta}: expected a number above 0 (0 makes every similarity 1), or 'median'"
            )
        check_params(self)

    def chosen(
        self, X: Float32, codes: Int64, n_classes: int, rng: np.random.Generator
    ) -> tuple[list[int], list[list[float]], list[Judge]]:
        """k' of each layer, errors of each k that was tried, and the inner folds' spaces, grown by those k'."""
        sample = stratify(codes, SELECTION_ROWS, rng)
        X, codes = X[sample], codes[sample]
        parts = folds(codes, self.n_folds, rng)
        if not parts:
            raise ValueError(
                "X is too small for inner folds: expected two rows of some class, and three in all"
            )
        judges = [self.judge(X, codes, n_classes, train, held_out) for train, held_out in parts]
        if self.selection == "folds":
            return *choose(judges, depth=self.depth, k_max=self.k_max), judges
        everyone = np.arange(X.shape[0])
        by_training_rows = [self.judge(X, codes, n_classes, everyone, everyone)]
        ks, errors = choose(by_training_rows, depth=self.depth, k_max=self.k_max)
        for judge in judges:
            for k in ks:
                judge.commit(k)
        return ks, errors, judges

    def judge(self, X: Float32, codes: Int64, n_classes: int, train: Int64, judged: Int64) -> Judge:
        """What judges spaces grown from the rows ``train`` by how they classify the rows ``judged``."""
        # Standardised by the rows that train, so that held-out rows say nothing before they judge.
        rows = Inputs.of_rows(X[train]).transform(X)
        return Judge(
            self._growth(rows, train, train), codes, n_classes, judged, final=self.final, C=float(self.C)
        )

    def _growth(self, rows: Float32, train: Int64, references: Int64) -> Growth:
        return Growth(rows, train, references, metric=self.metric, k_max=self.k_max, beta=self.beta)

    def _set_space(self, growth: Growth) -> None:
        """Keep what rows need to be walked through the layers: the references that some layer uses."""
        self.n_components_ = sum(block.shape[1] for block in growth.blocks)
        empty = np.zeros(0, dtype=np.int64)
        columns = np.unique(np.concatenate([empty, *(layer.columns for layer in growth.layers)]))
        rows = growth.references[columns]
        self.layers_ = [
            Layer(columns=np.searchsorted(columns, layer.columns), counts=layer.counts, beta=layer.beta)
            for layer in growth.layers
        ]
        self._betas = [layer.beta for layer in growth.layers]
        self._refs = [np.ascontiguousarray(block[rows].T) for block in growth.blocks[: len(growth.layers)]]

    def _set_classifier(self, blocks: list[Float32], codes: Int64, rng: np.random.Generator) -> None:
        """Train what classifies; ``blocks`` is emptied."""
        n, width, n_classes = blocks[0].shape[0], self.n_components_, self.classes_.size
        self._coef = self._intercept = self._final_rows = self._final_codes = None
        if self.final == "1nn":
            if 4 * n * width > MAX_FINAL_BYTES:
                raise ValueError(
                    f"final '1nn' keeps all {n} rows in {width} dimensions, {4 * n * width / 1024**3:.1f} GiB; at most "
                    f"{MAX_FINAL_BYTES // 1024**3} are taken: lower max_references or depth, or use final 'svm'"
                )
            self._final_rows = [np.ascontiguousarray(block.T) for block in blocks]
            self._final_codes = codes
            return
        rows = np.concatenate(blocks, axis=1)
        blocks.clear()
        if n <= EXACT_ROWS and n_classes <= MAX_EXACT_CLASSES:
            wide = rows.astype(np.float64)
            weights, self._intercept = exact_dual(wide @ wide.T, codes, n_classes, float(self.C))
            self._coef = weights @ wide
            return
        if n > SELECTION_ROWS:
            # What a sample's machine says is less sharp than this one: some rows wait while a machine is trained that
            # tells how sharp it is, and have their say in the last.
            report(0.85, "training the final machine")
            held_out = stratify(codes, min(n // 10, SELECTION_ROWS), rng)
            # The first row of every class trains.
            held_out = np.setdiff1d(held_out, np.unique(codes, return_index=True)[1])
            training = np.delete(np.arange(n), held_out)
            coef, intercept = iterative_primal(rows[training], codes[training], float(self.C))
            decisions = by_class(rows[held_out].astype(np.float64) @ coef.T + intercept, n_classes)
            self._sharpness = fitted_sharpness(decisions, codes[held_out])
            report(0.95, "training the final machine")
        self._coef, self._intercept = iterative_primal(rows, codes, float(self.C))

    # ------------------------------------------------------------ using

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class of each row, (n,)."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self._decisions(self._validated(X, "X")).argmax(axis=1)])

    def predict_proba(self, X: ArrayLike) -> Float64:
        """Probability of each class, (n, n_classes) in the order of `classes_`, calibrated on inner folds.

        The most probable class is `predict`'s.
        """
        check_is_fitted(self)
        logits = self._sharpness * self._decisions(self._validated(X, "X"))
        return np.asarray(np.exp(log_softmax(logits, axis=1)))

    def decision_function(self, X: ArrayLike) -> Float64:
        """Decisions, as scikit-learn's classifiers give them: (n,) for two classes, else (n, n_classes)."""
        check_is_fitted(self)
        decisions = self._decisions(self._validated(X, "X"))
        return decisions[:, 1] if self.classes_.size == 2 else decisions

    def _decisions(self, X: Float32) -> Float64:
        """(n, n_classes); the class with the highest is predicted."""
        n_classes = self.classes_.size
        out = np.empty((X.shape[0], n_classes))
        width = self.n_components_
        if self._final_codes is not None:
            width += self._final_codes.size
        rows_a_time = max(1, BLOCK_BYTES // (8 * width))
        for at in range(0, X.shape[0], rows_a_time):
            blocks = self._walked(X[at : at + rows_a_time])
            part_of_out = out[at : at + rows_a_time]
            if self._final_rows is not None:
                assert self._final_codes is not None
                among = Distances(self.metric, blocks[0].shape[0], self._final_codes.size)
                counts = [np.ones(blocks[0].shape[1]), *(layer.counts for layer in self.layers_)]
                for block, rows, count in zip(blocks, self._final_rows, counts, strict=True):
                    among.extend(block, rows, count)
                part_of_out[:] = class_distances(among.squared(), self._final_codes, n_classes)
            else:
                assert self._coef is not None
                assert self._intercept is not None
                wide = np.concatenate(blocks, axis=1).astype(np.float64)
                part_of_out[:] = by_class(wide @ self._coef.T + self._intercept, n_classes)
        return out

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_refs")

    def _sizes(self, file: StoredState) -> Mapping[str, int]:
        n_layers = len(file.facts.betas)
        if n_layers > _MOST_LAYERS:
            raise refuse("columns_0", None, f"is one of {n_layers} layers", f"{_MOST_LAYERS} at most")
        widths = [
            file.sizes["features"],
            *(file.length(f"columns_{layer}") for layer in range(n_layers)),
        ]
        if sum(widths) != file.facts.n_components:
            raise refuse(
                "columns_0",
                None,
                f"all layers make {sum(widths)} components",
                f"{file.facts.n_components} of them",
            )
        n_classes = file.length("classes")
        if n_classes < 2:
            raise refuse("classes", None, f"has {n_classes} rows", "two or more")
        sizes = {f"width of {layer}": width for layer, width in enumerate(widths)}
        references = file.length("refs_0", 1)
        return sizes | {"machines": 1 if n_classes == 2 else n_classes, "references": references}

    def _parts(self) -> Mapping[str, Any]:
        parts: dict[str, Any] = {f"refs_{number}": refs for number, refs in enumerate(self._refs)}
        parts |= {f"columns_{number}": layer.columns for number, layer in enumerate(self.layers_)}
        parts |= {f"counts_{number}": layer.counts for number, layer in enumerate(self.layers_)}
        return parts | {f"final_rows_{number}": rows for number, rows in enumerate(self._final_rows or [])}

    def _read_parts(self, file: StoredState) -> None:
        widths = [f"width of {number}" for number in range(len(file.facts.betas) + 1)]
        self._refs, self.layers_ = [], []
        for number, beta in enumerate(file.facts.betas):
            refs = Array(kind="float32", shape=(widths[number], "references"))
            columns = Array(kind="int64", shape=(widths[number + 1],), below="references")
            counts = Array(kind="float64", shape=(widths[number + 1],), low=0)
            self._refs.append(file.array(f"refs_{number}", refs))
            self.layers_.append(
                Layer(
                    columns=file.array(f"columns_{number}", columns),
                    counts=file.array(f"counts_{number}", counts),
                    beta=beta,
                )
            )
        self._final_rows = None
        if self.final == "1nn":
            self._final_rows = [
                file.array(f"final_rows_{number}", Array(kind="float32", shape=(width, "rows")))
                for number, width in enumerate(widths)
            ]

    def _relate(self, file: StoredState) -> None:
        machine = self._coef is not None, self._intercept is not None, self._final_codes is None
        if machine != (self.final == "svm",) * 3:
            raise refuse("coef", None, "does not go with final", "coef and intercept, or final_codes")

    def transform(self, X: ArrayLike) -> Float32:
        """Rows in the space that has grown: the inputs as prepared, and each layer's features.

        A row that is c training rows' neighbor gives one feature, multiplied by sqrt(c).

        Returns
        -------
        (n, n_components_) float32.
        """
        check_is_fitted(self)
        return np.concatenate(self._walked(self._validated(X, "X")), axis=1)

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        """The gallery embedded, once."""
        prepared = self._prepared(vectors)
        return {"prepared": prepared, **encode(prepared)}

    def _search_form(self, queries: Matrix, index: GalleryIndex) -> SearchForm | None:
        return SearchForm(
            measure="inner",
            queries=self._prepared(queries),
            gallery=index.arrays["prepared"],
            least_measure=same_measure,
        )

    def _walked(self, X: Float32) -> list[Float32]:
        """Blocks of the space, computed some rows at a time."""
        rows_a_time = max(1, BLOCK_BYTES // (4 * max(self.n_components_, 1)))
        inputs = self._inputs.transform(X)
        parts = [
            walk_layers(inputs[at : at + rows_a_time], self._refs, self.layers_, self.metric)
            for at in range(0, inputs.shape[0], rows_a_time)
        ]
        if len(parts) == 1:
            return parts[0]
        return [np.concatenate(blocks) for blocks in zip(*parts, strict=True)]

    def _prepared(self, X: Float32) -> Float32:
        """Embedded rows as the kernels compare them: padded with zeros, of length one."""
        padded = np.zeros((X.shape[0], -(-self.n_components_ // LANES) * LANES), dtype=np.float32)
        padded[:, : self.n_components_] = np.concatenate(self._walked(X), axis=1)
        unit_rows(padded, seal_array(padded))
        return padded

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        a, b = self._prepared(one_of_equals(left)), self._prepared(one_of_equals(right))
        scores: Float32 = np.empty(left.shape[0], dtype=np.float32)
        row_products(a, seal_array(b), False, scores[:, None])
        return scores

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        gallery = seal_array(index.arrays["prepared"][rows])
        scores = np.empty((queries.shape[0], gallery.shape[0]), dtype=np.float32)
        row_products(self._prepared(queries), gallery, True, scores)
        return scores


def stratify(codes: Int64, n: int, rng: np.random.Generator) -> Int64:
    """At most ``n`` row numbers, sorted, each class in its proportion; all of them when there are no more."""
    if codes.size <= n:
        return np.arange(codes.size)
    # In an order that goes through each class evenly, every n-th row makes a sample in proportion.
    place = np.empty(codes.size)
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        place[members] = (np.arange(members.size) + rng.random()) / members.size
    return np.sort(np.argsort(place, kind="stable")[:n])


RSBL_SPEC = LearnerSpec(
    kind="rsbl",
    title="Recursive similarity features (RSBL): classifies, embeds and compares; for small, hard sets",
    estimator=RSBL,
    capabilities=frozenset({"similarity", "match", "search", "embed", "classify"}),
    retired={
        "similarity": "cosine",
        "patience": ...,
        "choose_depth": ...,
        "n_jobs": ...,
        "nominal": None,
        "standardize": ...,
    },
)
