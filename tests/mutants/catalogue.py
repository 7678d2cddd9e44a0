"""The mutants, by the promise they break."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Text of a file, which occurs once, and what stands there instead."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A break and the tests that must notice.

    Attributes
    ----------
    guarantee : the promise, in the docs' words, that nobody would keep.
    tests : pytest's names of the tests of which one must fail.
    """

    name: str
    guarantee: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def mutant(name: str, guarantee: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """A mutant of one edit."""
    return Mutant(name=name, guarantee=guarantee, edits=(Edit(file=file, old=old, new=new),), tests=tests)


BOUNDS = "tests/models/test_bounds.py"
POINTS = "tests/models/test_operating_points.py"
SPLITS = "tests/models/test_splits.py"
BLIND = "tests/models/test_score_blindness.py"
POWER = "tests/faults/test_power_cuts.py"
QUEUE = "tests/service/test_queue.py"
ACCESS = "tests/service/api/test_access.py"
ROUTES = "tests/service/api/test_routes.py"
KEYS = "tests/service/test_keys.py"
TRAINER = "tests/service/test_trainer.py"

KEPT = "tests/service/galleries/test_gallery_kept.py"

GALLERIES = (
    mutant(
        "erased-best-items-count-on",
        "a gallery's threshold follows every erasure",
        "pairmark/service/galleries/catching_up.py",
        'strangers & ~view.holds(records["at"])',
        'strangers & (records["at"] < 0)',
        f"{KEPT}::test_every_interleaving_scores_as_a_fresh_calibration_does",
    ),
    mutant(
        "new-items-are-not-searched",
        "a gallery's threshold follows every write",
        "pairmark/service/galleries/catching_up.py",
        "if view.seq > self._kept.seq:",
        "if view.seq < self._kept.seq:",
        f"{KEPT}::test_every_interleaving_scores_as_a_fresh_calibration_does",
    ),
    mutant(
        "touched-subjects-keep-their-scores",
        "a threshold of whole subjects follows every write and erasure",
        "pairmark/service/galleries/catching_up.py",
        "self.searched.whose[at] in touched",
        "self.searched.whose[at] is None",
        f"{KEPT}::test_no_probe_keeps_the_score_of_a_subject_that_changed",
    ),
    mutant(
        "uploads-on-a-full-disk-fail-inside",
        "on a full or read-only disk, writes are refused with the cause",
        "pairmark/service/galleries/sweeping.py",
        'with storage_errors("writing temporary files"):',
        "if home:",
        "tests/faults/test_full_disk.py::test_every_write_on_a_full_disk_is_refused_in_words",
    ),
    mutant(
        "jobs-compete-with-the-service",
        "a job runs at a lower priority than a service on the same machine",
        "pairmark/service/jobs/child.py",
        "_NICENESS = 10",
        "_NICENESS = 0",
        "tests/service/test_worker.py::test_an_attempt_yields_to_a_service_on_the_same_machine",
    ),
    mutant(
        "enrolled-probes-stay-strangers",
        "a probe whose subject is enrolled is no stranger",
        "pairmark/service/galleries/records.py",
        'enrolled = records["own_items"] > 0',
        'enrolled = records["own_items"] < 0',
        f"{KEPT}::test_every_interleaving_scores_as_a_fresh_calibration_does",
    ),
    mutant(
        "erased-probes-stay-in-memory",
        "an erased subject is in no probe, of any process",
        "pairmark/service/galleries/kept.py",
        "if kept is None or kept.revision != head.revision:",
        "if kept is None:",
        f"{KEPT}::test_every_interleaving_scores_as_a_fresh_calibration_does",
        f"{KEPT}::test_an_erased_subject_is_in_no_probe",
    ),
)

AUTO = "tests/models/auto/test_auto.py"

RACE = (
    mutant(
        "one-lucky-fold-wins",
        "a candidate that ran out of time wins only if half of the folds have judged it",
        "pairmark/models/auto/race.py",
        "2 * entry.rates.shape[0] >= n_folds",
        "entry.rates.shape[0] >= 1",
        f"{AUTO}::test_the_simplest_within_one_standard_error_of_the_best_wins",
    ),
    mutant(
        "the-cheapest-races-first",
        "the race depends on data and seed, not on a clock",
        "pairmark/models/auto/race.py",
        "        for number, entry in enumerate(staying):\n",
        "        for number, entry in enumerate(sorted(staying, key=lambda entry: entry.seconds)):\n",
        f"{AUTO}::test_slow_candidates_race_in_their_order_whatever_they_cost",
    ),
    mutant(
        "rarity-forgotten",
        "similarity-logistic weighs rows by how rare features are",
        "pairmark/models/logistic/rows.py",
        "rarity = 1.0 + np.log((1.0 + n) / (1.0 + used))",
        "rarity = np.ones(d)",
        "tests/models/logistic/test_logistic.py::test_rows_are_weighed_by_how_rare_features_are",
    ),
    mutant(
        "rows-ruled-out-too-early",
        "search returns the rows and scores of scoring everything",
        "pairmark/models/search/forms.py",
        "        places = np.delete(places, order)\n",
        "        places = np.delete(places[:looked_at], order)\n",
        "tests/models/test_search_forms.py::test_rows_far_down_a_gallery_are_found",
    ),
)

VALIDITY = (
    mutant(
        "visits-look-at-scores",
        "the order in which a list's units are matched is blind to scores",
        "pairmark/models/calibration/listed_product.py",
        "np.argsort(self._degree + rng.random((n, self._degree.size)), axis=1)",
        "np.argsort(np.bincount(self._graph.different.ravel(), weights=np.repeat(self.shares("
        "int(np.searchsorted(self._above, 0.1)), 0.1)[: len(self._graph.different)], 2), "
        "minlength=self._degree.size) + 1e-3 * rng.random((n, self._degree.size)), axis=1)",
        "tests/models/test_listed_product.py::"
        "test_an_order_that_looks_at_scores_breaks_the_promise_and_ours_keeps_it",
    ),
    mutant(
        "bound-at-a-threshold-that-was-not-admitted",
        "a group's bound is of the served threshold",
        "pairmark/models/calibration/finite_sample.py",
        "if chosen is None or chosen[0] < at:",
        "if chosen is None:",
        "tests/models/test_coverage.py::test_the_bound_at_a_fixed_threshold_holds_and_says_something",
    ),
    mutant(
        "double-names-unreported",
        "one person under two names is reported",
        "pairmark/models/evaluation/suspects.py",
        "np.flatnonzero(means > typical_same)",
        "np.flatnonzero(means > values.max())",
        "tests/models/test_suspects.py",
    ),
    mutant(
        "near-duplicates-across-labels-unreported",
        "rows that are nearly equal under two labels are reported",
        "pairmark/models/evaluation/suspects.py",
        "across = codes[pairs[:, 0]] != codes[pairs[:, 1]]",
        "across = codes[pairs[:, 0]] < codes[pairs[:, 0]]",
        "tests/models/test_suspects.py",
    ),
    mutant(
        "candidates-share-nothing",
        "a simultaneous promise holds for whichever version is chosen",
        "pairmark/models/calibration/promises.py",
        "return 1 / (number * (number + 1))",
        "return 1.0",
        f"{POINTS}::test_a_promise_for_candidates_is_the_bands_at_its_share",
    ),
    mutant(
        "deleted-versions-leave-the-ledger",
        "a version that was looked at stays in the ledger",
        "pairmark/service/store/ledger.py",
        "select(func.max(table.number)).where(table.dataset_sha256 == row.dataset_sha256)",
        "select(func.count()).select_from(CalibrationRow).where("
        "CalibrationRow.dataset_sha256 == row.dataset_sha256, CalibrationRow.id != row.id)",
        "tests/service/test_ledger.py",
    ),
    mutant(
        "classes-choose-the-bound",
        "which finite-sample bound answers depends on sizes alone",
        "pairmark/models/calibration/matching_product.py",
        "(self._graph.row_at.size + self._graph.same.shape[0])",
        "self._graph.row_at.size",
        f"{BLIND}::test_which_bound_answers_is_blind_to_labels_in_closed_set_use",
    ),
    mutant(
        "live-watch-begins-anew",
        "clients that ask at several confidences do not silence the live watch",
        "pairmark/service/runtime/unrelated.py",
        "        if key not in pairs.watches:\n",
        "        if True:\n",
        "tests/service/runtime/test_unrelated.py::test_thresholds_of_one_rate_are_watched_side_by_side",
    ),
    mutant(
        "one-probe-counts-as-two-people",
        "a probe that is sent again is not taken for a pair of strangers",
        "pairmark/service/runtime/unrelated.py",
        "        other = (left != right).any(axis=1)\n",
        "        other = np.ones(len(left), dtype=bool)\n",
        "tests/service/runtime/test_unrelated.py::test_one_probe_again_and_again_says_nothing",
    ),
    mutant(
        "live-watch-forgets-nothing",
        "a long good time does not hide a bad one",
        "pairmark/models/calibration/live_rate.py",
        "(one + 1.0) * factor",
        "max(one, 1.0 if self.n == 1 else 0.0) * factor",
        "tests/models/test_live_rate.py::test_a_long_good_time_does_not_hide_a_bad_one",
    ),
    mutant(
        "bound-of-one-rank-less",
        "fpr_upper_bound is an upper confidence bound of the rate at the threshold",
        "pairmark/models/calibration/finite_sample.py",
        "min(fpr, order_upper(rank, self.matched.size, confidence))",
        "min(fpr, order_upper(max(rank - 1, 0), self.matched.size, confidence))",
        f"{BOUNDS}::test_the_bound_of_the_order_statistic_is_clopper_and_pearsons_at_its_rank",
    ),
    mutant(
        "bound-of-a-threshold-that-scores-chose",
        "fpr_upper_bound is an upper confidence bound of the rate at the threshold",
        "pairmark/models/calibration/finite_sample.py",
        "        return at, fpr\n\n    def rate",
        "        return at, min(fpr, self.upper(at, confidence) or fpr)\n\n    def rate",
        f"{BOUNDS}::test_the_bound_of_a_threshold_chosen_by_scores_is_the_rate_that_was_asked_for",
    ),
    mutant(
        "bound-of-one-independent-row-less",
        "fpr_upper_bound is an upper confidence bound of the rate at the threshold",
        "pairmark/models/calibration/finite_sample.py",
        "order_upper(min(rank, self.n), self.n, confidence)",
        "order_upper(max(min(rank, self.n) - 1, 0), self.n, confidence)",
        f"{BOUNDS}::test_the_bound_of_independent_rows_is_that_of_the_largest_rank",
    ),
    mutant(
        "identification-bound-of-one-rank-less",
        "fpir_upper_bound is an upper confidence bound of the rate at the threshold",
        "pairmark/models/calibration/identification.py",
        "order_upper(rank, self.n_probes, confidence)",
        "order_upper(max(rank - 1, 0), self.n_probes, confidence)",
        "tests/models/test_identification.py::test_the_bound_is_clopper_and_pearsons_at_the_strangers_above",
    ),
    mutant(
        "one-rank-too-many",
        "P(FPR(threshold) > fpr) <= 1 - confidence",
        "pairmark/models/calibration/bounds.py",
        "            high = middle\n    return low\n\n\ndef smallest_true",
        "            high = middle\n    return low + 1\n\n\ndef smallest_true",
        f"{BOUNDS}::test_order_statistic_rank_is_the_largest_admitted",
    ),
    mutant(
        "rates-below-the-floor-answered",
        "what the calibration data cannot support is refused, never extrapolated",
        "pairmark/models/calibration/bounds.py",
        "    if not test(0):\n        return None\n    low, high",
        "    low, high",
        f"{BOUNDS}::test_threshold_is_the_lowest_admitted_and_the_bound_its_inverse",
    ),
    mutant(
        "rates-below-the-order-statistics-floor-answered",
        "what the calibration data cannot support is refused, never extrapolated",
        "pairmark/models/calibration/bounds.py",
        "        return None\n    low, high = 0, n\n",
        "        return 0\n    low, high = 0, n\n",
        f"{POINTS}::test_the_smallest_rate_is_answered_and_anything_below_refused",
    ),
    mutant(
        "blocks-that-share-units",
        "pairs that share a person are not counted as independent",
        "pairmark/models/pairs/samples.py",
        "n_edges // (largest + 1)",
        "n_edges // largest",
        "tests/models/test_pairs.py::test_blocks_of_a_list_are_as_many_as_disjoint_pairs_can_stand_for",
    ),
    mutant(
        "matching-by-score",
        "which disjoint pairs stand for the rest does not depend on scores, on partial lists of pairs too",
        "pairmark/models/pairs/samples.py",
        "greedy_matching(codes, rng.permutation(codes.shape[0]), int(known.size))",
        "greedy_matching(codes, np.argsort(-np.bincount(different.edge, different.scores, codes.shape[0])), "
        "int(known.size))",
        f"{BLIND}::test_the_matching_is_blind_to_scores",
    ),
    mutant(
        "matching-by-label",
        "which disjoint pairs stand for the rest does not depend on labels in closed-set use",
        "pairmark/models/pairs/samples.py",
        'if sample.protocol == "open-set":\n        edges',
        "if True:\n        edges",
        f"{BLIND}::test_the_matching_is_blind_to_labels_in_closed_set_use",
    ),
    Mutant(
        name="calibration-split-by-label",
        guarantee="calibration units are a simple random sample of all units",
        edits=(
            Edit(
                file="pairmark/models/pairs/splits.py",
                old="            np.zeros_like(codes),\n            calibration_fraction",
                new="            codes,\n            calibration_fraction",
            ),
            Edit(
                file="pairmark/models/pairs/splits.py",
                old="    order = rng.permutation(m)\n    part =",
                new="    order = rng.permutation(m)\n"
                "    order = order[np.argsort(strata[order], kind='stable')]\n"
                "    order = np.concatenate([order[k :: 4] for k in range(4)])\n    part =",
            ),
        ),
        tests=(f"{SPLITS}::test_calibration_rows_are_a_simple_random_sample",),
    ),
    mutant(
        "calibration-people-split-by-rows",
        "calibration people are a simple random sample of all people",
        "pairmark/models/pairs/splits.py",
        "    order = rng.permutation(m)\n    part =",
        "    order = rng.permutation(m)\n"
        "    order = order[np.argsort(strata[order], kind='stable')]\n"
        "    order = np.concatenate([order[k :: 4] for k in range(4)])\n    part =",
        f"{SPLITS}::test_calibration_people_are_a_simple_random_sample",
    ),
    mutant(
        "training-people-calibrate",
        "nobody who was trained on calibrates",
        "pairmark/models/pairs/splits.py",
        "    parts = [np.flatnonzero(part_of == part) for part in range(3)]\n    unit",
        "    parts = [np.flatnonzero(part_of == part) for part in range(3)]\n"
        "    parts[1] = np.flatnonzero(part_of <= 1)\n    unit",
        f"{SPLITS}::test_parts_are_disjoint_and_cover_every_row",
    ),
    mutant(
        "pairs-across-parts-kept",
        "no sampling unit is in two parts of an explicit list of pairs",
        "pairmark/models/pairs/splits.py",
        "kept = usable & (sides[:, 0] == sides[:, 1])",
        "kept = usable",
        f"{SPLITS}::test_units_of_listed_pairs_are_people_where_something_says_who_they_are",
    ),
    mutant(
        "jobs-fit-on-everybody",
        "a job learns from its training part alone",
        "pairmark/service/training/fitting.py",
        "estimator.fit(loaded.X[parts.rows], np.asarray(loaded.data.y)[parts.rows], **more)",
        "estimator.fit(loaded.X, np.asarray(loaded.data.y), **more)",
        f"{TRAINER}::test_a_job_learns_from_its_training_part_alone",
    ),
    mutant(
        "overlap-not-refused",
        "calibrating on rows that were trained on is refused",
        "pairmark/service/store/calibrations.py",
        "        if overlap.rows:\n            raise CalibrationOverlap(",
        "        if False:\n            raise CalibrationOverlap(",
        "tests/service/test_store.py::test_calibrating_on_what_was_trained_on_is_refused_with_a_count",
    ),
    mutant(
        "validated-on-training-rows",
        "LabelRankingAuto judges its candidates on rows they have not seen",
        "pairmark/models/label_ranking/auto.py",
        "train, test = np.flatnonzero(fold != part), np.flatnonzero(fold == part)",
        "train, test = np.arange(rows.size), np.flatnonzero(fold == part)",
        "tests/models/label_ranking/test_pairwise_and_auto.py::test_validation_on_noise_finds_nothing",
    ),
    mutant(
        "match-at-the-threshold",
        "match is score > threshold, strictly (arrays)",
        "pairmark/service/runtime/scoring.py",
        "= scores > self.threshold",
        "= scores >= self.threshold",
        "tests/service/runtime/test_decision.py",
    ),
    mutant(
        "match-at-the-threshold-of-few",
        "match is score > threshold, strictly (single pairs)",
        "pairmark/service/runtime/scoring.py",
        "[score > threshold for score in scores]",
        "[score >= threshold for score in scores]",
        "tests/service/runtime/test_decision.py",
    ),
    mutant(
        "people-weighed-by-samples",
        "people with many samples do not decide the rate",
        "pairmark/models/pairs/samples.py",
        "share = weight / (rows[edge] * max",
        "share = weight / (1 * max",
        f"{POINTS}::test_people_with_many_samples_do_not_decide_the_rate",
    ),
)

DURABILITY = (
    mutant(
        "sqlite-not-flushed",
        "a committed write survives a power cut",
        "pairmark/service/db.py",
        "synchronous=FULL",
        "synchronous=OFF",
        f"{POWER}::test_sqlite_keeps_every_committed_write_through_a_power_cut",
    ),
    mutant(
        "sqlite-flushed-now-and-then",
        "a committed write survives a power cut",
        "pairmark/service/db.py",
        "synchronous=FULL",
        "synchronous=NORMAL",
        f"{POWER}::test_sqlite_keeps_every_committed_write_through_a_power_cut",
    ),
    mutant(
        "blob-files-not-flushed",
        "a blob whose key was returned survives a power cut",
        "pairmark/service/blobs/local.py",
        "                    path.chmod(0o444)\n                fsync_path(path)\n",
        "                    path.chmod(0o444)\n",
        f"{POWER}::test_blobs_survive_a_power_cut_once_their_key_was_returned",
    ),
    mutant(
        "blob-shard-not-flushed",
        "a blob whose key was returned survives a power cut",
        "pairmark/service/blobs/local.py",
        "            fsync_path(self._blobs)\n",
        "",
        f"{POWER}::test_blobs_survive_a_power_cut_once_their_key_was_returned",
    ),
    mutant(
        "blob-rename-not-flushed",
        "a blob whose key was returned survives a power cut",
        "pairmark/service/blobs/local.py",
        "                os.utime(target)\n            fsync_path(target.parent)\n",
        "                os.utime(target)\n",
        f"{POWER}::test_blobs_survive_a_power_cut_once_their_key_was_returned",
    ),
    mutant(
        "blob-root-not-flushed",
        "a blob whose key was returned survives a power cut",
        "pairmark/service/blobs/local.py",
        "            make_folders(self._blobs)\n            fsync_path(self.root.parent)\n",
        "            self._blobs.mkdir(parents=True, exist_ok=True)\n",
        f"{POWER}::test_blobs_survive_a_power_cut_once_their_key_was_returned",
    ),
    mutant(
        "blob-deletion-not-flushed",
        "a blob that was deleted does not come back",
        "pairmark/service/blobs/local.py",
        "                return\n            fsync_path(self._path(key).parent)\n",
        "                return\n",
        f"{POWER}::test_blobs_survive_a_power_cut_once_their_key_was_returned",
    ),
    mutant(
        "block-files-not-flushed",
        "a gallery's block is whole or absent after a power cut",
        "pairmark/service/galleries/blocks.py",
        "                fsync_path(written)\n",
        "                pass\n",
        f"{POWER}::test_a_kept_gallery_block_is_there_whole_after_a_power_cut",
    ),
    mutant(
        "block-rename-not-flushed",
        "a gallery's block is whole or absent after a power cut",
        "pairmark/service/galleries/blocks.py",
        "            part.rename(path)\n            fsync_path(self.path)\n",
        "            part.rename(path)\n",
        f"{POWER}::test_a_kept_gallery_block_is_there_whole_after_a_power_cut",
    ),
    mutant(
        "block-removal-not-flushed",
        "what was erased does not come back with a power cut",
        "pairmark/service/galleries/blocks.py",
        "    # An erasure is promised to be over: a power cut must not bring the folder back.\n"
        "    fsync_path(path.parent)\n",
        "",
        f"{POWER}::test_an_erased_person_is_in_no_block_after_a_power_cut",
    ),
    mutant(
        "artefact-arrays-not-flushed",
        "a saved model survives a power cut",
        "pairmark/models/core/artefact.py",
        "                np.save(stream, array, allow_pickle=False)\n"
        "                stream.flush()\n                os.fsync(stream.fileno())\n",
        "                np.save(stream, array, allow_pickle=False)\n",
        f"{POWER}::test_an_artefact_survives_a_power_cut_and_its_replacement_is_the_old_or_the_new",
    ),
    mutant(
        "artefact-manifest-not-flushed",
        "a saved model survives a power cut",
        "pairmark/models/core/artefact.py",
        "            stream.write(body)\n            stream.flush()\n            os.fsync(stream.fileno())\n",
        "            stream.write(body)\n",
        f"{POWER}::test_an_artefact_survives_a_power_cut_and_its_replacement_is_the_old_or_the_new",
    ),
    mutant(
        "artefact-old-removed-first",
        "a saved model survives a power cut while it is replaced",
        "pairmark/models/core/artefact.py",
        "        fsync_path(target.parent)\n        if old.exists():\n            shutil.rmtree(old)\n",
        "        if old.exists():\n            shutil.rmtree(old)\n        fsync_path(target.parent)\n",
        f"{POWER}::test_an_artefact_survives_a_power_cut_and_its_replacement_is_the_old_or_the_new",
    ),
    mutant(
        "writes-of-superseded-attempts",
        "every write to a job is fenced by its attempt",
        "pairmark/service/jobs/repository.py",
        'JobRow.id == job_id, JobRow.attempt == attempt, JobRow.state == "running"',
        'JobRow.id == job_id, JobRow.state == "running"',
        f"{QUEUE}::test_a_silent_workers_job_is_taken_over_and_its_writes_refused",
    ),
    mutant(
        "success-of-cancelled-jobs",
        "a job whose cancel was acknowledged does not register a version",
        "pairmark/service/jobs/repository.py",
        "        statement = statement.where(JobRow.cancel_requested.is_(False))",
        "        pass",
        f"{QUEUE}::test_cancelling",
    ),
    mutant(
        "idempotency-ignored",
        "the same Idempotency-Key trains once",
        "pairmark/service/jobs/queue.py",
        "        if row is None:\n            return None\n        if row.request_sha256",
        "        if True:\n            return None\n        if row.request_sha256",
        f"{QUEUE}::test_an_idempotency_key_makes_one_job",
    ),
    mutant(
        "idempotency-of-other-requests",
        "an Idempotency-Key with another request is a conflict",
        "pairmark/service/jobs/queue.py",
        "if row.request_sha256 != once.request_sha256:",
        "if False:",
        f"{QUEUE}::test_an_idempotency_key_makes_one_job",
    ),
    mutant(
        "silent-workers-keep-their-jobs",
        "a job whose worker fell silent is taken over",
        "pairmark/service/jobs/leases.py",
        "            self._requeue_lost(session, now)\n",
        "",
        f"{QUEUE}::test_a_silent_workers_job_is_taken_over_and_its_writes_refused",
    ),
    mutant(
        "named-blobs-deleted",
        "a blob that a row names is never deleted",
        "pairmark/service/blobs/collect.py",
        "sorted(wanted - named_blobs(session, wanted))",
        "sorted(wanted)",
        "tests/service/test_blobs.py::test_only_blobs_that_no_row_names_are_deleted",
    ),
)

LOADING = (
    mutant(
        "artefact-hash-not-checked",
        "loading checks the sha256 of every array",
        "pairmark/models/core/artefact.py",
        "if verify and file_sha256(file) != sha256:",
        "if False:",
        "tests/models/test_artefacts.py::test_a_changed_array_is_refused",
    ),
    mutant(
        "artefact-shape-not-checked",
        "arrays are held against the manifest's types and shapes",
        "pairmark/models/core/artefact.py",
        "if in_columns or found[0] != shape or found[1].str != dtype or found[1].kind not in _KINDS_OF_DTYPE:",
        "if in_columns:",
        "tests/models/test_artefacts.py::test_arrays_must_be_those_the_manifest_lists",
    ),
    mutant(
        "state-schema-not-checked",
        "an artefact's arrays are held against its learner's schema at every load",
        "pairmark/models/core/registry.py",
        "        spec.state.check(params, artefact.meta, artefact.arrays)\n",
        "",
        "tests/models/test_states.py::TestStates::test_missing_and_stray_arrays_are_refused",
    ),
    mutant(
        "newer-formats-read",
        "a format newer than this code is refused",
        "pairmark/models/core/artefact.py",
        "if version > FORMAT_VERSION:",
        "if False:",
        "tests/models/test_artefacts.py::test_a_newer_format_is_refused",
    ),
    Mutant(
        name="pickles-loaded",
        guarantee="loading never runs code from the file",
        # Three checks stand before it; each alone is enough.
        edits=(
            Edit(
                file="pairmark/models/core/artefact.py",
                old=" or found[1].kind not in _KINDS_OF_DTYPE:",
                new=":",
            ),
            Edit(
                file="pairmark/models/core/artefact.py",
                old="if file.stat().st_size != start + found[1].itemsize * math.prod(shape):",
                new="if False:",
            ),
            Edit(
                file="pairmark/models/core/artefact.py",
                old='np.load(file, mmap_mode="r" if mmap else None, allow_pickle=False)',
                new="np.load(file, allow_pickle=True)",
            ),
        ),
        tests=("tests/models/test_artefacts.py::test_a_pickle_in_place_of_an_array_does_not_run",),
    ),
    mutant(
        "blob-hash-not-checked",
        "changed bytes are never served",
        "pairmark/service/blobs/local.py",
        "intact = listing_key(listing(folder)) == key",
        "intact = bool(listing(folder))",
        "tests/service/test_blobs.py::test_changed_bytes_are_found",
    ),
    mutant(
        "import-hash-not-checked",
        "an import is refused unless every file is as it was exported",
        "pairmark/service/store/transfer.py",
        "    if digest.hexdigest() != sha256:",
        "    if False:",
        "tests/service/test_transfer.py::test_a_file_that_is_not_a_whole_unchanged_export_is_refused",
    ),
)

ACCESS_AND_LEAKAGE = (
    mutant(
        "exports-for-any-key",
        "exporting a model takes more than reading",
        "pairmark/service/api/routes.py",
        'models.export_version, access="train"',
        'models.export_version, access="any"',
        f"{ROUTES}::test_what_a_request_needs",
    ),
    mutant(
        "versions-deleted-by-train",
        "deleting a version takes admin",
        "pairmark/service/api/routes.py",
        'models.delete_version, access="admin"',
        'models.delete_version, access="train"',
        f"{ROUTES}::test_what_a_request_needs",
    ),
    mutant(
        "galleries-written-by-any-key",
        "galleries take the scope gallery",
        "pairmark/service/api/routes.py",
        'galleries.upsert_items, access="gallery"',
        'galleries.upsert_items, access="any"',
        f"{ROUTES}::test_what_a_request_needs",
    ),
    mutant(
        "scoring-for-any-key",
        "scores take the scope score",
        "pairmark/service/api/routes.py",
        'scoring.similarity, access="score"',
        'scoring.similarity, access="any"',
        f"{ROUTES}::test_what_a_request_needs",
    ),
    mutant(
        "uploads-for-everybody",
        "uploading takes the scope train",
        "pairmark/service/api/routes.py",
        'datasets.add_dataset, access="train"',
        'datasets.add_dataset, access="open"',
        f"{ROUTES}::test_what_a_request_needs",
    ),
    mutant(
        "pages-of-other-sites",
        "without a key, pages of other sites are refused",
        "pairmark/service/api/access.py",
        'if origin is not None and origin.decode("latin-1").partition("://")[2] != host:',
        "if False:",
        "tests/e2e/test_edge.py::test_without_a_key_only_this_machine_is_served_and_no_foreign_page",
    ),
    mutant(
        "other-hosts-names",
        "without a key, only requests to this machine's own names are served",
        "pairmark/service/api/admission.py",
        "if not access.is_loopback(host):",
        "if False:",
        "tests/e2e/test_edge.py::test_without_a_key_only_this_machine_is_served_and_no_foreign_page",
    ),
    mutant(
        "expired-keys-are-remembered",
        "an expired key is refused at once",
        "pairmark/service/api/admission.py",
        "if key is None or key.expired:",
        "if key is None:",
        "tests/e2e/test_team_keys.py::test_a_key_that_was_let_in_often_is_refused_once_it_is_expired_or_revoked",
    ),
    mutant(
        "revoked-keys-are-remembered",
        "a revoked key is refused, and a key's scopes are those it has now",
        "pairmark/service/api/admission.py",
        "            self._let_in.clear()\n",
        "            pass\n",
        "tests/e2e/test_team_keys.py::test_a_key_that_was_let_in_often_is_refused_once_it_is_expired_or_revoked",
    ),
    mutant(
        "one-header-for-another",
        "a key counts only in the header that showed it",
        "pairmark/service/api/admission.py",
        'mark = own, None if own is not None else headers.get(b"authorization"), id(found and found.route)',
        'mark = own or headers.get(b"authorization"), id(found and found.route)',
        "tests/e2e/test_team_keys.py::test_a_key_that_was_let_in_often_is_refused_once_it_is_expired_or_revoked",
    ),
    mutant(
        "cookies-may-write",
        "changes in the console's session need its token",
        "pairmark/service/api/access.py",
        "if from_elsewhere(headers) or not hmac.compare_digest(shown.encode(), session.csrf.encode()):",
        "if from_elsewhere(headers):",
        f"{ACCESS}::test_changes_in_a_session_need_its_token",
    ),
    mutant(
        "scopes-not-asked",
        "a key does only what its scopes say",
        "pairmark/service/keys/grants.py",
        "if self.admin or scope in self._everything:",
        "if True:",
        KEYS,
    ),
    mutant(
        "revoked-keys-work",
        "a revoked key is useless at once",
        "pairmark/service/keys/repository.py",
        "query.where(ApiKey.revoked_at.is_(None)) if active else query",
        "query",
        f"{KEYS}::test_a_key_works_until_it_is_revoked",
    ),
    mutant(
        "revoking-the-last-key-opens",
        "once a key exists every request needs one",
        "pairmark/service/keys/repository.py",
        "exists().select_from(ApiKey)",
        "exists().select_from(ApiKey).where(ApiKey.revoked_at.is_(None))",
        f"{KEYS}::test_a_revoked_last_key_does_not_open_the_service",
    ),
    mutant(
        "keys-stored",
        "only hashes of keys are stored",
        "pairmark/service/keys/keys.py",
        "            name=name,\n            sha256=_sha256(key),",
        "            name=key,\n            sha256=_sha256(key),",
        f"{KEYS}::test_the_key_itself_is_nowhere_in_the_database",
    ),
    mutant(
        "wrong-secrets-work",
        "any change to a key is refused",
        "pairmark/service/keys/keys.py",
        "if hmac.compare_digest(presented, known.sha256 if known else _NOBODY) and known is not None:",
        "if known is not None:",
        f"{KEYS}::test_any_change_to_a_key_is_refused",
    ),
    mutant(
        "deleted-rows-left",
        "deleted cells are overwritten in SQLite's file",
        "pairmark/service/db.py",
        "secure_delete=ON",
        "secure_delete=OFF",
        "tests/service/test_db.py::test_deleted_rows_are_overwritten",
    ),
    mutant(
        "blocks-keep-the-erased",
        "an erasure removes index blocks that hold the person",
        "pairmark/service/galleries/blocks.py",
        "            if holds:\n                remove(path)",
        "            if False:\n                remove(path)",
        f"{POWER}::test_an_erased_person_is_in_no_block_after_a_power_cut",
    ),
)

FUSION = "tests/models/fusion/test_fusion.py"
COHORT = "tests/models/cohort/test_cohort.py"
RATIOS = "tests/models/test_likelihood_ratios.py"
PLAY = "tests/models/test_open_set_play.py"
EVIDENCE = (
    mutant(
        "evidence-weighs-rows",
        "people weigh equally in Cllr, however many samples they have",
        "pairmark/models/evaluation/likelihood.py",
        "same_weight=sample.same.weight / sample.same.weight.sum(),",
        "same_weight=np.full(len(sample.same), 1 / len(sample.same)),",
        f"{RATIOS}::test_cllr_is_the_definition_with_people_weighing_equally",
    ),
    mutant(
        "evidence-without-limits",
        "no likelihood ratio is stronger than the pairs can show",
        "pairmark/models/calibration/likelihood_ratios.py",
        "return np.clip(raw, self.low, self.high)",
        "return raw",
        f"{RATIOS}::test_no_likelihood_ratio_is_stronger_than_the_pairs_can_show",
    ),
    mutant(
        "evidence-falls",
        "likelihood ratios never fall as scores rise",
        "pairmark/models/calibration/likelihood_ratios.py",
        "    if a <= 0:",
        "    if False:",
        f"{RATIOS}::test_scores_that_run_backwards_are_no_evidence",
    ),
    mutant(
        "costs-turned-round",
        "a decision by prior and costs is the cheapest one",
        "pairmark/models/calibration/likelihood_ratios.py",
        "return math.log(cost_ratio) + math.log1p(-prior) - math.log(prior)",
        "return math.log(prior) - math.log1p(-prior) - math.log(cost_ratio)",
        f"{RATIOS}::test_the_bayes_decision_costs_least_and_its_threshold_agrees",
    ),
    mutant(
        "ratio-from-single-intervals",
        "the interval of a group's ratio holds over all groups jointly",
        "pairmark/models/calibration/differentials.py",
        "    low, high = rate.joint_interval",
        "    low, high = rate.value, rate.value",
        f"{PLAY}::test_the_interval_of_a_ratio_is_its_range_on_the_box_of_rates",
    ),
    mutant(
        "one-sided-cohort",
        "swapping the sides of a normalised pair changes no bit",
        "pairmark/models/cohort/normalising.py",
        "(0.5 * (left.of(scores) + right.of(scores)))",
        "(0.4 * left.of(scores) + 0.6 * right.of(scores))",
        f"{COHORT}::test_the_score_is_s_norm_by_its_definition",
    ),
    mutant(
        "cohort-at-any-price",
        "normalisation is chosen only where it pays",
        "pairmark/models/cohort/estimator.py",
        "if mean > max(error, gain):",
        "if True:",
        f"{COHORT}::test_auto_is_none_where_nothing_is_gained_and_then_the_learner_itself",
    ),
    mutant(
        "weights-from-seen-people",
        "a fused model's weights come from people whom no learner had seen",
        "pairmark/models/fusion/estimator.py",
        "model.fit(rows[fold.train], codes[fold.train]).score_against(test, test).reshape(-1)[at]",
        "model.fit(rows, codes).score_against(test, test).reshape(-1)[at]",
        f"{FUSION}::test_who_remembers_the_training_people_gets_no_credit_for_it",
    ),
    mutant(
        "fused-at-any-price",
        "a combination is kept only where it beats the best learner alone",
        "pairmark/models/fusion/estimator.py",
        'self.keep == "if-better" and gain <= error',
        'self.keep == "if-better" and gain <= -1',
        f"{FUSION}::test_the_best_alone_is_kept_where_nothing_is_gained",
    ),
    mutant(
        "ties-are-found",
        "a search of an enrolled person that ties with the threshold is missed",
        "pairmark/models/evaluation/open_set.py",
        'fnir = np.searchsorted(mates, thresholds, side="right") / mates.size',
        'fnir = np.searchsorted(mates, thresholds, side="left") / mates.size',
        f"{PLAY}::test_fnir_against_fpir_is_that_of_counting",
    ),
)

SUBJECTS = (
    mutant(
        "scores-of-samples-are-not-sorted",
        "the order of samples and sides changes no bit of a subject's score",
        "pairmark/models/core/kernels/subjects.py",
        "values = np.sort(scores[:, start : ends[s]].copy().reshape(-1).astype(np.float64))",
        "values = scores[:, start : ends[s]].copy().reshape(-1).astype(np.float64)",
        "tests/models/test_subject_scores.py::test_sides_and_order_change_no_bit",
        "tests/models/test_subject_scores.py::test_scores_of_samples_become_one_score",
    ),
    mutant(
        "templates-meet-probes-one-way",
        "the kernel of templates and probes is symmetric",
        "pairmark/models/pairs/subjects.py",
        "ways = 1 if k == p else 2",
        "ways = 1",
        "tests/models/test_subject_pairs.py::test_every_two_people_meet_both_ways",
    ),
    mutant(
        "people-are-probed-with-enrolled-samples",
        "the true positive rate of templates is of samples that were not enrolled",
        "pairmark/models/pairs/subjects.py",
        "probes[at * draws + draw] = chosen[-p:]",
        "probes[at * draws + draw] = chosen[:p]",
        "tests/models/test_subject_pairs.py::test_every_two_people_meet_both_ways",
    ),
    mutant(
        "erased-samples-stay-in-templates",
        "an erased sample has no part in its subject's template",
        "pairmark/service/galleries/templates.py",
        "gone = np.flatnonzero(before & ~new.alive)",
        "gone = np.flatnonzero(before & ~before)",
        "tests/service/galleries/test_gallery_templates.py",
    ),
    mutant(
        "verifications-use-the-threshold-of-pairs",
        "a verification of a whole subject has a calibration of its own",
        "pairmark/service/api/search.py",
        "return await decide(subjects=of), how",
        "return await decide(), how",
        "tests/e2e/test_subjects.py::test_verification_decides_about_the_whole_subject",
    ),
)

ENDLESS = "tests/e2e/test_endless_requests.py"
CONNECTIONS = "pairmark/service/api/connections.py"

REQUESTS = (
    mutant(
        "trailers-without-a-bound",
        "trailers and chunk extensions of a body are bounded",
        CONNECTIONS,
        "if self.framing > MAX_FRAMING_BYTES:",
        "if self.framing < 0:",
        f"{ENDLESS}::test_what_never_ends_is_refused_in_words",
    ),
    mutant(
        "chunks-are-credit-for-trailers",
        "trailers are bounded after any number of chunks",
        CONNECTIONS,
        "self.framing = max(0, self.framing)",
        "self.framing = self.framing",
        f"{ENDLESS}::test_earlier_chunks_are_no_credit_for_trailers",
    ),
    mutant(
        "frames-of-chunks-count",
        "a body may come in any number of chunks of fair size",
        CONNECTIONS,
        "self.framing -= size + min(size, FRAME_BYTES)",
        "self.framing -= size",
        f"{ENDLESS}::test_chunks_of_fair_size_may_be_many",
    ),
    mutant(
        "tiny-chunks-without-a-bound",
        "frames of tiny chunks are bounded",
        CONNECTIONS,
        "self.framing -= size + min(size, FRAME_BYTES)",
        "self.framing -= size + FRAME_BYTES",
        f"{ENDLESS}::test_what_never_ends_is_refused_in_words",
    ),
    mutant(
        "heads-without-a-bound",
        "the head of a request is bounded",
        CONNECTIONS,
        "if self.received > MAX_HEAD_BYTES:",
        "if self.received < 0:",
        f"{ENDLESS}::test_what_never_ends_is_refused_in_words",
    ),
    mutant(
        "any-number-of-header-fields",
        "a request has a largest number of header fields",
        CONNECTIONS,
        "if len(self.headers) > MAX_HEADERS or",
        "if",
        f"{ENDLESS}::test_header_fields_are_counted",
    ),
    mutant(
        "any-number-of-requests-in-a-row",
        "requests of one connection that wait for earlier answers are bounded",
        CONNECTIONS,
        " or len(self.pipeline) >= MAX_PIPELINED",
        "",
        f"{ENDLESS}::test_requests_may_wait_in_a_row_and_not_in_thousands",
    ),
    mutant(
        "refused-requests-go-on",
        "a request that is answered before its body was read ends its connection",
        CONNECTIONS,
        "self.keep_alive, self.cycle.keep_alive = self.cycle.keep_alive, False",
        "self.keep_alive = self.cycle.keep_alive",
        f"{ENDLESS}::test_a_request_refused_before_its_body_was_read_ends_its_connection",
    ),
    mutant(
        "refusals-are-cut-off",
        "a client that still sends can read its refusal",
        CONNECTIONS,
        "if connection.socket.is_closing() or not connection.is_receiving():",
        "if connection:",
        f"{ENDLESS}::test_a_client_that_sends_on_reads_its_refusal",
    ),
    mutant(
        "refused-clients-may-send-for-ever",
        "what a client sends after its refusal is bounded",
        CONNECTIONS,
        "if self.received > LINGER_BYTES:",
        "if self.received < 0:",
        f"{ENDLESS}::test_a_client_that_sends_on_reads_its_refusal",
    ),
    mutant(
        "refused-clients-may-stay-for-ever",
        "a refused client has a time to stop sending",
        CONNECTIONS,
        "connection.phase == _LINGER and waited > LINGER_S",
        "connection.phase == _LINGER and waited < 0",
        f"{ENDLESS}::test_a_client_that_sends_slowly_after_its_refusal_is_left_soon",
    ),
)

ROWS = "tests/service/galleries/test_gallery_rows.py"
REFUSED_IDS = f"{ROWS}::test_texts_that_could_pass_for_another_are_no_ids"
STORED_IDS = f"{ROWS}::test_other_texts_are_stored_in_nfc"
ODD_IDS = "tests/e2e/test_odd_ids.py"
ODD_IDS_IN_A_BROWSER = "tests/browser/test_erasing_odd_ids.py"

IDS = (
    mutant(
        "ids-are-paths",
        "an id or subject with a segment `.` or `..` is refused",
        "pairmark/service/galleries/rows.py",
        "    if _RELATIVE.search(text):",
        "    if not text:",
        REFUSED_IDS,
    ),
    mutant(
        "ids-checked-together-are-paths",
        "an id with a segment `..` is refused among plain ones",
        "pairmark/service/galleries/rows.py",
        'and not ("." in joined and',
        'and not ("." not in joined and',
        f"{ROWS}::test_rows_checked_together_are_those_checked_one_by_one",
    ),
    mutant(
        "backslashes-are-no-separators",
        "a segment ends at a backslash too",
        "pairmark/service/galleries/rows.py",
        r"(?:^|[/\\])\.\.?(?:[/\\]|$)",
        r"(?:^|/)\.\.?(?:/|$)",
        REFUSED_IDS,
    ),
    mutant(
        "ids-hold-c1-controls",
        "control characters beyond ASCII are refused",
        "pairmark/service/galleries/rows.py",
        r"\x7f-\x9f",
        r"\x7f",
        REFUSED_IDS,
    ),
    mutant(
        "ids-turn-text-round",
        "characters that set the direction of text are refused",
        "pairmark/service/galleries/rows.py",
        r"\u202a-\u202e",
        r"\u202a",
        REFUSED_IDS,
    ),
    mutant(
        "ids-are-bounded-in-characters",
        "an id has at most 512 bytes",
        "pairmark/service/galleries/rows.py",
        "if not 0 < size <= MAX_ID_BYTES:",
        "if not 0 < len(text) <= MAX_ID_BYTES:",
        REFUSED_IDS,
    ),
    mutant(
        "ids-are-measured-before-nfc",
        "the bound is of the text that is stored",
        "pairmark/service/galleries/rows.py",
        '        text = normalize("NFC", text)\n        size = len(text.encode())',
        '        text = normalize("NFC", text)',
        REFUSED_IDS,
        STORED_IDS,
    ),
    mutant(
        "ids-are-stored-as-they-come",
        "text is stored in NFC",
        "pairmark/service/galleries/rows.py",
        '        text = normalize("NFC", text)',
        "        pass",
        STORED_IDS,
    ),
    mutant(
        "older-spellings-are-not-looked-for",
        "items from before NFC are read, replaced and erased by any spelling of their id",
        "pairmark/service/galleries/rows.py",
        'text, normalize("NFD", text)))',
        "text)))",
        f"{ODD_IDS}::test_text_is_compared_as_nfc",
    ),
    mutant(
        "a-line-break-ends-a-name",
        "an address with a line break at its end is another address",
        "pairmark/service/api/routing.py",
        "pattern.fullmatch(path)",
        "pattern.match(path)",
        f"{ODD_IDS}::test_a_delete_with_a_slash_or_a_line_break_at_the_end_is_of_nothing",
    ),
    mutant(
        "the-client-sends-dots",
        "the client refuses names that libraries resolve",
        "pairmark/client/wire.py",
        'if text in ("", ".", ".."):',
        'if text == "":',
        f"{ODD_IDS}::test_names_that_are_no_segment_are_refused_before_anything_is_sent",
    ),
    mutant(
        "the-client-erases-by-address",
        "an erasure names its item in the body",
        "pairmark/client/galleries.py",
        'Receipt.of(await self._send("POST", path, {"id": id, "subject": subject}))',
        'Receipt.of((await self.request("DELETE", f"{path[:-5]}subjects/{subject or id}")).json())',
        f"{ODD_IDS}::test_erasing_an_odd_id_takes_that_item_and_nothing_else",
    ),
    mutant(
        "an-erasure-names-two-things",
        "the body of an erasure names an item or a subject, not both",
        "pairmark/service/galleries/schemas.py",
        "if (self.id is None) == (self.subject is None):",
        "if self.id is None and self.subject is None:",
        f"{ODD_IDS}::test_a_body_names_one_thing",
    ),
    mutant(
        "the-console-erases-by-address",
        "an erasure in the console takes no key",
        "pairmark/service/console/static/gallery.js",
        'api("POST", `${base}/erase`, { id: button.dataset.eraseItem })',
        'api("DELETE", `${base}/items/${button.dataset.eraseItem}`)',
        f"{ODD_IDS_IN_A_BROWSER}::test_items_and_subjects_are_erased_alone",
    ),
    mutant(
        "the-console-sends-dots",
        "the console refuses names that browsers resolve",
        "pairmark/service/console/static/api.js",
        '["", ".", ".."].includes(text)',
        '[""].includes(text)',
        f"{ODD_IDS_IN_A_BROWSER}::test_looking_an_odd_id_up_asks_for_nothing_else",
    ),
    mutant(
        "the-console-sends-slashes",
        "an id typed into the reference is one segment",
        "pairmark/service/console/static/api.js",
        "return encodeURIComponent(text);",
        'return text.split("/").map(encodeURIComponent).join("/");',
        f"{ODD_IDS_IN_A_BROWSER}::test_the_reference_sends_no_address_that_is_resolved",
    ),
    mutant(
        "backups-bring-odd-ids-back",
        "a restore takes no item that an upload would be refused",
        "pairmark/service/operations/restore.py",
        "        item_repository.erase(session, state, ids, now)\n",
        "",
        "tests/service/test_backup.py::test_items_that_an_upload_would_be_refused_are_not_restored",
    ),
    mutant(
        "backups-bring-odd-probes-back",
        "a restore takes no probe whose subject an upload would be refused",
        "pairmark/service/operations/restore.py",
        "n_probes += erase_probes(session, state.id, subject)",
        "n_probes += 1",
        "tests/service/test_backup.py::test_items_that_an_upload_would_be_refused_are_not_restored",
    ),
)

SCHEMA = "tests/models/records/test_schema.py"
MODELS_OF_RECORDS = "tests/models/records/test_record_models.py"

RECORDS = (
    mutant(
        "text-becomes-a-number",
        "a number in quotes is no number in a request",
        "pairmark/models/records/cells.py",
        "return None if strict else number_of(value)",
        "return number_of(value)",
        f"{SCHEMA}::TestRecords::test_what_does_not_fit_is_named",
    ),
    mutant(
        "true-becomes-one",
        "true is no number",
        "pairmark/models/records/cells.py",
        "    if isinstance(value, bool):\n        return None\n",
        "",
        f"{SCHEMA}::TestRecords::test_equal_values_of_different_types_are_told_apart",
    ),
    mutant(
        "codes-lose-their-zeros",
        "digits with leading zeros stay text",
        "pairmark/models/records/inference.py",
        "if zero_led is not None:",
        "if False:",
        f"{SCHEMA}::TestInference::test_leading_zeros_are_kept",
    ),
    mutant(
        "mixed-dates-are-guessed",
        "a column of dates has one format, and a cell of another is named",
        "pairmark/models/records/inference.py",
        "    if misfits:\n        row, cell",
        "    if False:\n        row, cell",
        f"{SCHEMA}::TestInference::test_mixed_dates_name_the_row_and_are_never_guessed",
    ),
    mutant(
        "unknown-columns-are-dropped",
        "a column that the model does not know is named",
        "pairmark/models/records/schema.py",
        "                    if name not in self._others:\n",
        "                    if False:\n",
        f"{SCHEMA}::TestRecords::test_what_does_not_fit_is_named",
    ),
    mutant(
        "sides-are-not-alike",
        "swapped records have the same features to the last bit",
        "pairmark/models/records/kernels/strings.py",
        "    if _first_is_less(a[:n], b[:m]):",
        "    if True:",
        "tests/models/records/test_comparators.py::TestStrings::test_scores_are_those_of_rapidfuzz",
    ),
    mutant(
        "trees-lead-back",
        "a tree whose nodes lead back is refused before a kernel follows it",
        "pairmark/models/records/trees.py",
        "(children > np.arange(n)) & (children + 1 < end)",
        "(children + 1 < end)",
        f"{MODELS_OF_RECORDS}::TestArtefacts::test_arrays_that_no_fit_writes_are_refused",
    ),
    mutant(
        "the-encoder-sees-everybody",
        "the encoder of a table learns from training rows alone",
        "pairmark/service/training/fitting.py",
        "fit(np.asarray(loaded.X)[parts.rows])",
        "fit(np.asarray(loaded.X))",
        "tests/service/test_records.py::TestTraining::test_the_encoder_sees_training_rows_alone",
    ),
)

MUTANTS = (
    *RECORDS,
    *REQUESTS,
    *IDS,
    *SUBJECTS,
    *RACE,
    *EVIDENCE,
    *VALIDITY,
    *GALLERIES,
    *DURABILITY,
    *LOADING,
    *ACCESS_AND_LEAKAGE,
)
