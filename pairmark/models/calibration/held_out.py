"""What held-out scores say about every threshold: the rates, what the bounds count, and the bootstrap's table."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.bootstrap import CONFIDENCES, BootstrapTable, bootstrap_table
from pairmark.models.calibration.finite_sample import FiniteSample
from pairmark.models.calibration.likelihood_ratios import LikelihoodRatios
from pairmark.models.calibration.listed_product import ListedPairs
from pairmark.models.calibration.matching_product import AllPairs, ScoredGraph
from pairmark.models.calibration.schema import check_calibration, reading_state
from pairmark.models.calibration.steps import n_above
from pairmark.models.pairs.samples import PairSample, matched_scores

Arrays = dict[str, NDArray[Any]]

STATE_VERSION = 1


class HeldOutScores:
    """The scores of held-out pairs, reduced to what thresholds are chosen from; it can be saved.

    Attributes
    ----------
    arrays, facts : what `to_state` writes, without the bootstrap's table.
    thresholds : (k,) float32, the distinct scores of different pairs, descending.
    finite : the finite-sample bounds, by threshold number.
    likelihood_ratios : what scores are worth as evidence; None without same pairs, or where it was not kept yet.
    """

    def __init__(
        self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], table: BootstrapTable | None
    ) -> None:
        self.arrays = dict(arrays)
        self.facts = dict(meta)
        self._table = table
        self._sample: PairSample | None = None
        self._n_jobs: int | None = None
        self._lock = threading.Lock()
        self.thresholds: NDArray[np.float32] = self.arrays["thresholds"]
        ratios = meta.get("likelihood_ratios")
        self.likelihood_ratios = None if ratios is None else LikelihoodRatios.from_state(self.arrays, ratios)
        graph = ScoredGraph.from_arrays(self.arrays)
        self.finite = FiniteSample(
            above=self.arrays["above"],
            n=int(meta["n_independent"]),
            different_share=float(meta["different_share"]),
            exact_binomial=bool(meta["exact_binomial"]),
            # Calibrations stored before there was a matching answer by the average alone, as they always did.
            matched=self.arrays.get("matched"),
            n_matched=meta.get("n_matched"),
            disjoint=bool(meta.get("disjoint", False)),
            product=None
            if graph is None
            else (AllPairs if graph.cell.size else ListedPairs)(
                graph, self.arrays["above"], seed=int(meta["seed"])
            ),
            protocol=str(meta["protocol"]),
        )

    @classmethod
    def of(
        cls,
        sample: PairSample,
        *,
        seed: int,
        n_replicates: int,
        n_jobs: int | None = None,
        units_assumed: bool = False,
    ) -> Self:
        """Count what bounds need. The bootstrap, which takes longest, waits until somebody asks for it."""
        thresholds, above = sample.different.steps()
        mate_scores, mate_above = sample.same.steps()
        matched, n_matched, matched_same = None, None, np.sort(sample.same.scores)
        if not sample.independent:
            different, matched_same, n_matched = matched_scores(sample, np.random.default_rng([seed, 1]))
            matched = np.searchsorted(-thresholds, -different).astype(np.int64)
        meta: dict[str, Any] = {
            "state_version": STATE_VERSION,
            "protocol": sample.protocol,
            "n_units": sample.n_units,
            "n_independent": sample.different.n_blocks,
            "n_negative_pairs": len(sample.different),
            "n_same_pairs": len(sample.same),
            "n_same_independent": sample.same.n_blocks,
            "independent_rows": sample.independent,
            "weighted": False,
            "different_share": sample.different.total() if sample.protocol == "closed-set" else 1.0,
            "exact_binomial": sample.independent,
            "units": "assumed" if units_assumed else "independent" if sample.independent else "given",
            "n_matched": n_matched,
            "disjoint": n_matched == len(sample.different) + len(sample.same)
            if sample.protocol == "closed-set"
            else n_matched == len(sample.different),
            "n_replicates": n_replicates,
            "seed": seed,
        }
        arrays: Arrays = {
            "thresholds": thresholds,
            "above": above,
            "same_scores": mate_scores,
            "same_above": mate_above,
            "matched_same": matched_same,
        }
        if matched is not None:
            arrays["matched"] = matched
        if len(sample.same):
            ratios, meta["likelihood_ratios"] = LikelihoodRatios.of_sample(sample).to_state()
            arrays |= ratios
        graph = ScoredGraph.of(sample, thresholds)
        if graph is not None:
            arrays |= graph.arrays()
        made = cls(arrays, meta, None)
        made._sample, made._n_jobs = sample, n_jobs
        return made

    def to_state(self) -> tuple[Arrays, dict[str, Any]]:
        """See `Calibration.to_state`."""
        table = self.bootstrap()
        arrays = {
            **self.arrays,
            "bootstrap_thresholds": table.thresholds,
            "bootstrap_upper": table.upper,
            "bootstrap_admitted": table.admitted,
        }
        if table.simultaneous is not None:
            arrays["bootstrap_simultaneous"] = table.simultaneous
        return arrays, dict(self.facts)

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """See `Calibration.from_state`."""
        with reading_state("the calibration", meta, STATE_VERSION):
            check_calibration(arrays, len(CONFIDENCES))
            table = BootstrapTable(
                thresholds=arrays["bootstrap_thresholds"],
                upper=arrays["bootstrap_upper"],
                admitted=arrays["bootstrap_admitted"],
                simultaneous=arrays.get("bootstrap_simultaneous"),
            )
            # The arrays of later versions are kept as they are.
            kept = {name: array for name, array in arrays.items() if not name.startswith("bootstrap_")}
            return cls(kept, meta, table)

    @property
    def units(self) -> str:
        """``given``, ``independent`` or ``assumed``, as in `OperatingPoint`; as far as is known of old calibrations."""
        return str(self.facts.get("units", "independent" if self.facts["independent_rows"] else "given"))

    @property
    def protocol(self) -> str:
        """``open-set`` or ``closed-set``."""
        return str(self.facts["protocol"])

    def share_above(self, threshold: np.float32) -> float:
        """The share of same pairs above a threshold."""
        above = self.arrays["same_above"]
        at = n_above(self.arrays["same_scores"], threshold)
        return min(1.0, float(above[at])) if at < above.size else 1.0

    def bootstrap(self) -> BootstrapTable:
        """The bootstrap's table, made when it is first asked for."""
        with self._lock:
            if self._table is None:
                assert self._sample is not None
                self._table = bootstrap_table(
                    self._sample,
                    n_replicates=int(self.facts["n_replicates"]),
                    seed=int(self.facts["seed"]),
                    n_jobs=self._n_jobs,
                )
                self._sample = None
            return self._table
