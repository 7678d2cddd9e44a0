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
EDGES = "tests/models/test_promise_edges.py"
LEDGER = "tests/service/test_ledger.py"
POWER = "tests/faults/test_power_cuts.py"
QUEUE = "tests/service/test_queue.py"
ACCESS = "tests/service/api/test_access.py"
ROUTES = "tests/service/api/test_routes.py"
KEYS = "tests/service/test_keys.py"
TRAINER = "tests/service/test_trainer.py"
CONFINED = "tests/service/test_confined.py"
CRAFTED = "tests/e2e/test_crafted_uploads.py"

KEPT = "tests/service/galleries/test_gallery_thresholds.py"

GALLERIES = (
    mutant(
        "erased-best-items-count-on",
        "a gallery's threshold follows every erasure",
        "pairmark/service/galleries/probe_updates.py",
        'strangers & ~view.holds(records["at"])',
        'strangers & (records["at"] < 0)',
        f"{KEPT}::test_every_interleaving_scores_as_a_fresh_calibration_does",
    ),
    mutant(
        "new-items-are-not-searched",
        "a gallery's threshold follows every write",
        "pairmark/service/galleries/probe_updates.py",
        "if view.seq > self._probes.seq:",
        "if view.seq < self._probes.seq:",
        f"{KEPT}::test_every_interleaving_scores_as_a_fresh_calibration_does",
    ),
    mutant(
        "touched-subjects-keep-their-scores",
        "a threshold of whole subjects follows every write and erasure",
        "pairmark/service/galleries/probe_updates.py",
        "self.base_scores.best_owner[at] in touched",
        "self.base_scores.best_owner[at] is None",
        f"{KEPT}::test_no_probe_keeps_the_score_of_a_subject_that_changed",
    ),
    mutant(
        "uploads-on-a-full-disk-fail-inside",
        "on a full or read-only disk, writes are refused with the cause",
        "pairmark/service/galleries/leftovers.py",
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
        "pairmark/service/galleries/kept_probes.py",
        'enrolled = records["own_items"] > 0',
        'enrolled = records["own_items"] < 0',
        f"{KEPT}::test_every_interleaving_scores_as_a_fresh_calibration_does",
    ),
    mutant(
        "erased-probes-stay-in-memory",
        "an erased subject is in no probe, of any process",
        "pairmark/service/galleries/thresholds.py",
        "if probes is None or probes.revision != head.revision:",
        "if probes is None:",
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
        "        for number, entry in enumerate(racing):\n            share",
        "        for number, entry in enumerate(sorted(racing, key=lambda entry: entry.seconds)):\n            share",
        f"{AUTO}::test_slow_candidates_race_in_their_order_whatever_they_cost",
    ),
    mutant(
        "rarity-forgotten",
        "similarity-logistic weighs rows by how rare features are",
        "pairmark/models/logistic/rows.py",
        "rarity = 1.0 + np.log((1.0 + n) / (1.0 + n_nonzero))",
        "rarity = np.ones(d)",
        "tests/models/logistic/test_logistic.py::test_rows_are_weighed_by_how_rare_features_are",
    ),
    mutant(
        "rows-ruled-out-too-early",
        "search returns the rows and scores of scoring everything",
        "pairmark/models/core/search/forms.py",
        "        places = np.delete(places, order)\n",
        "        places = np.delete(places[:looked_at], order)\n",
        "tests/models/test_search_forms.py::test_rows_far_down_a_gallery_are_found",
    ),
    mutant(
        "filtered-rows-misnumbered",
        "a search among few allowed rows returns the rows and scores of scoring everything",
        "pairmark/models/core/search/forms.py",
        "if isinstance(rows, slice) else rows[places]",
        "if isinstance(rows, slice) else places",
        "tests/models/test_search_forms.py::test_rows_far_down_a_gallery_are_found",
    ),
    mutant(
        "metadata-numbers-unchecked-in-bulk",
        "rows checked together are stored as rows checked one by one",
        "pairmark/service/galleries/metadata.py",
        "    if types <= {int, float} and all(-_LARGEST <= value <= _LARGEST for value in values):\n",
        "    if types <= {int, float}:\n",
        "tests/service/galleries/test_gallery_rows.py::test_metadata_checked_together_is_that_checked_one_by_one",
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
        "        number=max(count, last or 0) + 1,\n",
        "        number=1 + (session.scalar(select(func.count()).select_from(CalibrationRow).where("
        "CalibrationRow.dataset_sha256 == row.dataset_sha256, CalibrationRow.id != row.id)) or 0),\n",
        "tests/service/test_ledger.py",
    ),
    mutant(
        "classes-choose-the-bound",
        "which finite-sample bound answers depends on sizes alone",
        "pairmark/models/calibration/matching_product.py",
        "(graph.row_at.size + graph.same.shape[0])",
        "graph.row_at.size",
        f"{BLIND}::test_how_many_splits_are_averaged_is_blind_to_labels_in_closed_set_use",
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
        "a user who returns counts as one",
        "pairmark/service/runtime/unrelated.py",
        "        if not pairs.is_new(probe):\n            return\n",
        "",
        "tests/service/runtime/test_unrelated.py::test_users_who_return_count_as_one",
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
        "bound-of-one-independent-row-less",
        "fpr_upper_bound is an upper confidence bound of the rate at the threshold",
        "pairmark/models/calibration/finite_sample.py",
        "min(fpr, order_upper(rank, self.n, confidence))",
        "min(fpr, order_upper(max(rank - 1, 0), self.n, confidence))",
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
        "greedy_matching(codes, rng.permutation(codes.shape[0]), int(units.size))",
        "greedy_matching(codes, np.argsort(-np.bincount(different.edge, different.scores, codes.shape[0])), "
        "int(units.size))",
        f"{BLIND}::test_how_many_pairs_are_matched_is_blind_to_scores",
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
        "                fsync_path(file)\n",
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
        "bounds-of-parameters-unread",
        "a parameter out of the bounds that its constructor states is refused and named",
        "pairmark/models/core/spec.py",
        "        parameters_of(cls).model_validate(values)",
        "        parameters_of(cls).model_construct(**values)",
        "tests/models/test_parameters.py::test_values_out_of_bounds_are_named_with_what_was_expected",
    ),
    mutant(
        "parameters-undescribed",
        "help() describes every parameter as the schema does",
        "pairmark/models/core/spec.py",
        "{name} : {_description(annotation)} (default",
        "{name} : (default",
        "tests/models/test_parameters.py::test_help_of_every_learner_describes_each_parameter",
    ),
    mutant(
        "generators-in-the-schema",
        "what no JSON can carry is no part of a learner's public schema",
        "pairmark/models/core/spec.py",
        "if not _is_python_only(member))]  # noqa",
        "if member is not _is_python_only)]  # noqa",
        "tests/models/test_parameters.py::test_the_model_has_what_the_constructor_says",
    ),
    mutant(
        "state-schema-not-checked",
        "an artefact's arrays are held against its learner's schema at every load",
        "pairmark/models/registry.py",
        "        spec.state.check(params, artefact.meta, arrays)\n",
        "",
        "tests/models/test_states.py::TestStates::test_missing_and_stray_arrays_are_refused",
    ),
    mutant(
        "declared-bounds-not-resolved",
        "numbers of rows, nodes and features are bounded by the sizes that their declaration names",
        "pairmark/models/core/state.py",
        "below=None if marker.below is None else own(marker.below),",
        "below=None,",
        "tests/models/test_states.py::TestKnownAttacks::test_is_refused_by_array_and_row",
    ),
    mutant(
        "unstated-bounds-pass",
        "a bound that nothing in the file states is a refusal",
        "pairmark/models/core/schema.py",
        "    if spec.below is not None and below is None:",
        "    if False:",
        "tests/models/test_declared_state.py::test_a_bound_that_nothing_states_refuses_instead_of_passing",
    ),
    mutant(
        "records-not-related",
        "what holds between the arrays of a record is checked wherever the record is part of a state",
        "pairmark/models/core/state.py",
        "            record.relate(file, prefix)\n",
        "            pass\n",
        "tests/models/test_states.py::TestKnownAttacks::test_is_refused_by_array_and_row",
    ),
    mutant(
        "cache-drops-what-is-used",
        "the service's cache drops what was used longest ago",
        "pairmark/service/caches.py",
        "            if value is not None:\n                self._values.move_to_end(key)\n",
        "",
        "tests/service/test_caches.py::test_the_least_recently_used_is_dropped_first",
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
        'mark = plain, None if plain is not None else headers.get(b"authorization"), id(found and found.route)',
        'mark = plain or headers.get(b"authorization"), id(found and found.route)',
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
        "            if holds_one:\n                remove(path)",
        "            if False:\n                remove(path)",
        f"{POWER}::test_an_erased_person_is_in_no_block_after_a_power_cut",
    ),
)

SYSTEMS = "tests/models/calibration/test_system_weights.py"
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
        "return np.maximum(np.minimum(raw, _cap_at(values, self.cap_scores, self.cap_values)), self.low)",
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
        "systems-weighed-by-those-who-calibrate",
        "nobody whose scores weigh several systems calibrates them",
        "pairmark/models/calibration/system_weights.py",
        "np.flatnonzero(sides_in_first == 2), np.flatnonzero(sides_in_first == 0)",
        "np.flatnonzero(sides_in_first >= 1), np.flatnonzero(sides_in_first == 0)",
        f"{SYSTEMS}::test_no_person_weighs_the_systems_and_calibrates_them",
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
        "pairmark/service/galleries/subject_search.py",
        "removed_rows = np.flatnonzero(before & ~new.alive)",
        "removed_rows = np.flatnonzero(before & ~before)",
        "tests/service/galleries/test_gallery_subjects.py",
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
LIMITS = "tests/e2e/test_limits.py"
HEADS = "tests/e2e/test_http_heads.py"
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
    mutant(
        "a-batch-is-one-probe",
        "each query of a search is a probe",
        "pairmark/service/api/search.py",
        "_draw_probes(call, name, len(request.queries))",
        "_draw_probes(call, name, 1)",
        f"{LIMITS}::test_keys_have_rates_and_one_budget_of_probes_for_each_gallery",
    ),
    mutant(
        "verifications-are-no-probes",
        "verifications and searches share one budget",
        "pairmark/service/api/search.py",
        "_draw_probes(call, name, 1)",
        "pass",
        f"{LIMITS}::test_keys_have_rates_and_one_budget_of_probes_for_each_gallery",
    ),
    mutant(
        "probes-without-a-limit",
        "probes are limited by default",
        "pairmark/service/settings.py",
        "        1_000.0,\n",
        "        0.0,\n",
        f"{LIMITS}::test_probes_are_limited_unless_one_says_otherwise",
    ),
    mutant(
        "answers-hide-their-limits",
        "every limited answer states its limits",
        "pairmark/service/api/rates.py",
        "    if not limits and not noted:",
        "    if limits or not noted:",
        f"{LIMITS}::test_keys_have_rates_and_one_budget_of_probes_for_each_gallery",
        "tests/service/api/test_rates.py::test_an_answer_states_what_remains_of_each_limit",
    ),
    mutant(
        "other-protocols-swallow-bodies",
        "a request that asks for another protocol is answered as if it had not asked",
        CONNECTIONS,
        'if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":',
        "if False:",
        f"{HEADS}::test_who_asks_for_another_protocol_is_answered_in_this_one",
    ),
    mutant(
        "two-hosts",
        "a request names one host",
        "pairmark/service/api/edge.py",
        "if count > 1:",
        "if count > 2:",
        f"{HEADS}::test_a_request_names_one_host",
    ),
    mutant(
        "compressed-bodies-are-read",
        "compressed bodies are refused in words",
        "pairmark/service/api/edge.py",
        'if encoding not in (b"", b"identity"):',
        'if encoding == b"br":',
        f"{HEADS}::test_compressed_bodies_are_refused_in_words",
    ),
    mutant(
        "pages-tell-others-their-address",
        "every page has the same headers",
        "pairmark/service/api/edge.py",
        'if kind.startswith(b"text/html"):',
        'if kind.startswith(b"text/nothing"):',
        "tests/service/api/test_guide.py::test_pages_are_served_and_nothing_beside_them",
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
        "text))",
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

BACKUP = "tests/service/test_backup.py"
TRANSFER = "tests/service/test_transfer.py"
_HELD_AGAINST = f"{TRANSFER}::test_an_imported_calibration_is_held_against_the_file_and_guarantees_nothing"

RESTORES = (
    mutant(
        "restores-revive-keys",
        "a restore revokes the keys of the backup unless they are kept",
        "pairmark/service/operations/restore.py",
        'keys = "keep" if covered else "drop"',
        'keys = "keep"',
        f"{BACKUP}::test_keys_of_a_backup_do_not_work_again_unless_they_are_kept",
    ),
    mutant(
        "restores-revive-sessions",
        "console sessions are never restored",
        "pairmark/service/operations/restore.py",
        '        connection.execute(tables["sessions"].delete())',
        "        pass",
        f"{BACKUP}::test_sessions_in_a_backup_of_an_earlier_version_are_not_restored",
    ),
    mutant(
        "backups-without-a-signature",
        "where an import key is set, a backup without a good signature is refused",
        "pairmark/service/operations/restore.py",
        "    check_signature(body, signature, settings, file=str(source))\n",
        "",
        f"{BACKUP}::test_where_an_import_key_is_set_backups_are_signed_and_others_refused",
    ),
    mutant(
        "backups-leave-their-folder",
        "a manifest whose paths leave their folder is refused",
        "pairmark/service/operations/manifest.py",
        '{"", ".", ".."} & {*parts}',
        "not parts",
        f"{BACKUP}::test_a_changed_backup_is_refused_and_leaves_no_row",
    ),
)

IMPORTS = (
    mutant(
        "imported-calibrations-guarantee",
        "a calibration that came unsigned guarantees nothing",
        "pairmark/service/store/calibrations.py",
        "            calibration = calibration.without_guarantee()\n",
        "            pass\n",
        _HELD_AGAINST,
    ),
    mutant(
        "moved-thresholds-are-imported",
        "an imported calibration is held against the ROC that comes with it",
        "pairmark/service/store/rehearsal.py",
        "if not _ODD <= seen <= 1 - _ODD:",
        "if False:",
        _HELD_AGAINST,
    ),
    mutant(
        "summaries-are-believed",
        "an imported calibration is held against what the file says of it",
        "pairmark/service/store/rehearsal.py",
        "if name in summary and summary[name] != computed[name]:",
        "if False:",
        _HELD_AGAINST,
    ),
    mutant(
        "signers-vouch-for-imports",
        "a calibration that came unsigned stays so whoever signs its export",
        "pairmark/service/store/transfer.py",
        'is_signed and measured.summary.get("imported") != "unsigned"',
        "is_signed",
        f"{TRANSFER}::test_a_signed_calibration_keeps_its_guarantee_and_a_stripped_signature_is_refused",
    ),
    mutant(
        "signatures-are-stripped",
        "where an import key is set, a file without a signature is refused",
        "pairmark/service/store/signing.py",
        "    if signature is None:\n        raise InvalidInput(",
        "    if signature is None:\n        return False\n        raise InvalidInput(",
        f"{TRANSFER}::test_a_signed_calibration_keeps_its_guarantee_and_a_stripped_signature_is_refused",
    ),
)

DAMAGE = "tests/service/test_damage.py"

DAMAGED_ROWS = (
    mutant(
        "doctor-skips-json",
        "the doctor checks every column of JSON",
        "pairmark/service/operations/rows.py",
        "damage_of(kind, values) or _bad_hash(hashes, values)",
        "_bad_hash(hashes, values)",
        f"{DAMAGE}::test_the_doctor_names_each_damaged_row_and_its_repair",
    ),
    mutant(
        "doctor-skips-vectors",
        "the doctor checks the size of every vector",
        "pairmark/service/operations/rows.py",
        "func.length(of.vector) != 4 * GalleryRow.dimension",
        "func.length(of.vector) < 0",
        f"{DAMAGE}::test_the_doctor_names_each_damaged_row_and_its_repair",
    ),
    mutant(
        "one-bad-key-stops-the-service",
        "a damaged key opens nothing and keeps no other from working",
        "pairmark/service/keys/keys.py",
        "except (InvalidInput, TypeError, AttributeError):",
        "except ZeroDivisionError:",
        f"{DAMAGE}::test_the_service_starts_with_bad_rows_and_names_them",
    ),
    mutant(
        "damaged-rows-are-loaded",
        "a damaged row is answered with 503 and its name",
        "pairmark/service/tables.py",
        "    if reason is not None:\n        raise damage_error",
        "    if False:\n        raise damage_error",
        f"{DAMAGE}::test_the_service_starts_with_bad_rows_and_names_them",
    ),
    mutant(
        "ready-without-calibration",
        "/readyz is not 200 while production's calibration is gone",
        "pairmark/service/api/status.py",
        "    if uncalibrated:",
        "    if False:",
        f"{DAMAGE}::test_production_without_its_calibration_is_not_ready",
    ),
    mutant(
        "one-short-vector-ends-searches",
        "one damaged item leaves the others searchable",
        "pairmark/service/galleries/item_repository.py",
        " if isinstance(row[2], bytes) and len(row[2]) == size]",
        "]",
        f"{DAMAGE}::test_one_damaged_item_leaves_the_others_searchable",
    ),
)

UPLOADS = (
    mutant(
        "reader-has-all-memory",
        "reading an upload takes no more memory than PAIRMARK_PARSE_MEMORY_BYTES",
        "pairmark/service/parser.py",
        "    limit_memory(limits.memory_bytes)\n",
        "",
        f"{CONFINED}::test_memory_is_bounded",
    ),
    Mutant(
        name="reader-has-all-time",
        guarantee="reading an upload takes no more time than PAIRMARK_PARSE_TIMEOUT_S and its size allow",
        edits=(
            Edit(
                file="pairmark/service/parser.py",
                old="    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))\n",
                new="",
            ),
            Edit(file="pairmark/service/datasets/confined.py", old="_WAIT = 4\n", new="_WAIT = 400\n"),
        ),
        tests=(f"{CONFINED}::test_time_is_bounded",),
    ),
    mutant(
        "reader-outlives-its-client",
        "reading an upload ends when its client leaves",
        "pairmark/service/datasets/confined.py",
        "            if self._gone():\n",
        "            if False:\n",
        f"{CONFINED}::test_reading_ends_when_nobody_waits_for_it",
        f"{CRAFTED}::test_reading_stops_when_its_client_leaves",
    ),
    mutant(
        "client-that-leaves-is-not-seen",
        "reading an upload ends when its client leaves",
        "pairmark/service/api/leaving.py",
        "            pass\n        gone.set()\n",
        "            pass\n",
        f"{CRAFTED}::test_reading_stops_when_its_client_leaves",
    ),
    mutant(
        "reader-not-killed",
        "reading an upload ends when its client leaves",
        "pairmark/service/parser.py",
        "                os.kill(readers[descriptor], signal.SIGKILL)\n                poll",
        "                poll",
        f"{CRAFTED}::test_reading_stops_when_its_client_leaves",
    ),
    mutant(
        "readers-outlive-the-service",
        "processes that read uploads end with the service",
        "pairmark/service/parser.py",
        "                        os.kill(process, signal.SIGKILL)\n                    return\n",
        "                        os.kill(process, signal.SIGKILL)\n                    signal.pause()\n",
        f"{CRAFTED}::test_readers_end_with_the_service",
    ),
    mutant(
        "reader-has-the-settings",
        "processes that read uploads have no secret of the service",
        "pairmark/service/datasets/confined.py",
        'if not name.startswith(("PAIRMARK_", "AWS_"))',
        'if not name.startswith("AWS_")',
        f"{CRAFTED}::test_readers_end_with_the_service",
    ),
    mutant(
        "any-number-of-columns",
        "a CSV or Parquet file has at most PAIRMARK_MAX_TABLE_COLUMNS columns",
        "pairmark/service/datasets/tabular.py",
        "    if columns > limits.columns:\n",
        "    if columns > 10 * limits.columns:\n",
        f"{CRAFTED}::test_columns_are_counted_before_the_rest_is_sent",
    ),
    mutant(
        "columns-counted-when-all-is-there",
        "too many columns of a CSV file are refused before the rest of it is sent",
        "pairmark/service/datasets/beginnings.py",
        "        check_width(len(columns), self._limits)\n",
        "",
        f"{CRAFTED}::test_columns_are_counted_before_the_rest_is_sent",
    ),
    mutant(
        "any-ratio-of-compression",
        "a file unpacks to at most PAIRMARK_MAX_UNPACKED_RATIO times its size",
        "pairmark/service/datasets/limits.py",
        "by_ratio = max(UNPACKED_FREE, settings.max_unpacked_ratio * upload_bytes)",
        "by_ratio = settings.max_dataset_bytes * 8",
        f"{CONFINED}::test_what_a_file_may_become_follows_its_size",
        f"{CRAFTED}::test_a_packed_file_is_refused_by_what_it_becomes",
    ),
    mutant(
        "gzip-unpacked-without-end",
        "a file unpacks to at most PAIRMARK_MAX_UNPACKED_RATIO times its size",
        "pairmark/service/datasets/text.py",
        "        if taken > limits.unpacked_bytes:\n",
        "        if taken > 10 * limits.unpacked_bytes:\n",
        f"{CRAFTED}::test_a_packed_file_is_refused_by_what_it_becomes",
    ),
    mutant(
        "npz-unpacked-without-end",
        "a file unpacks to at most PAIRMARK_MAX_UNPACKED_RATIO times its size",
        "pairmark/service/datasets/arrays.py",
        "checked_members(archive, limits.unpacked_bytes, limits",
        "checked_members(archive, 10 * limits.unpacked_bytes, limits",
        f"{CRAFTED}::test_a_packed_file_is_refused_by_what_it_becomes",
    ),
    mutant(
        "parquet-unpacked-without-end",
        "a file unpacks to at most PAIRMARK_MAX_UNPACKED_RATIO times its size",
        "pairmark/service/datasets/tabular.py",
        "        if stored > self._limits.stored_bytes:\n",
        "        if stored > 10 * self._limits.stored_bytes:\n",
        f"{CRAFTED}::test_a_packed_file_is_refused_by_what_it_becomes",
    ),
    mutant(
        "whole-texts-leave-duckdb",
        "texts of a table are cut before they become Python's",
        "pairmark/service/datasets/tabular.py",
        'return f"left(CAST({cell} AS VARCHAR), {_MAX_TEXT})"',
        'return f"CAST({cell} AS VARCHAR)"',
        f"{CONFINED}::test_texts_are_cut_before_they_are_python_s",
    ),
    mutant(
        "whole-texts-leave-numpy",
        "texts of an array are cut before they become Python's",
        "pairmark/service/datasets/arrays.py",
        'array = array.astype(f"{array.dtype.kind}{width}")',
        "array = array.copy()",
        f"{CONFINED}::test_texts_of_arrays_are_cut_before_they_are_python_s",
    ),
    mutant(
        "any-length-of-rankings",
        "rankings of a dataset have at most 32 MiB together",
        "pairmark/service/datasets/tabular.py",
        "        if (total or 0) > _RANKING_CHARACTERS:\n",
        "        if (total or 0) > 10 * _RANKING_CHARACTERS:\n",
        f"{CONFINED}::test_rankings_are_bounded_together",
    ),
    mutant(
        "whole-ids-leave-duckdb",
        "texts of a bulk import are cut before they become Python's",
        "pairmark/service/galleries/imports.py",
        'return f"left(CAST({_quoted(name)} AS VARCHAR), {longest + 1})"',
        'return f"CAST({_quoted(name)} AS VARCHAR)"',
        f"{CONFINED}::test_rows_of_a_gallery_are_bounded_before_they_are_python_s",
    ),
    mutant(
        "whole-lists-leave-duckdb",
        "vectors of another width are not read by a bulk import",
        "pairmark/service/galleries/imports.py",
        'f"CASE WHEN len({cell}) = {dimension} THEN CAST({cell} AS FLOAT[]) END"',
        'f"CAST({cell} AS FLOAT[])"',
        f"{CONFINED}::test_rows_of_a_gallery_are_bounded_before_they_are_python_s",
    ),
    mutant(
        "whole-facts-leave-duckdb",
        "lists in metadata of a bulk import are refused before they become Python's",
        "pairmark/service/galleries/imports.py",
        'return f"CASE WHEN {_quoted(name)} IS NOT NULL THEN [] END"',
        "return _quoted(name)",
        f"{CONFINED}::test_rows_of_a_gallery_are_bounded_before_they_are_python_s",
    ),
    mutant(
        "refusals-name-no-setting",
        "a refusal names the setting that raises its limit",
        "pairmark/service/datasets/limits.py",
        "are taken ({setting} raises this){instead}",
        "are taken{instead}",
        f"{CRAFTED}::test_a_packed_file_is_refused_by_what_it_becomes",
    ),
    mutant(
        "a-reader-fills-the-disk",
        "a full disk is said while an upload is read",
        "pairmark/service/parser.py",
        '    resource.setrlimit(resource.RLIMIT_FSIZE, (task.pop("file_bytes"), hard))\n',
        '    task.pop("file_bytes")\n',
        "tests/service/test_dataset_errors.py::test_a_full_disk_while_storing_is_said_and_leaves_nothing",
    ),
)

PROMISE_EDGES = (
    mutant(
        "a-fixed-uniform",
        "the random number of a threshold is uniform and independent of scores",
        "pairmark/models/calibration/chance.py",
        "uniform=((first >> 11) + 0.5) * HALVES",
        "uniform=0.5",
        f"{EDGES}::test_the_random_number_is_the_peoples_own",
    ),
    mutant(
        "uniform-by-rows",
        "the random number of a threshold depends on who the people are, not on rows",
        "pairmark/models/calibration/chance.py",
        "for name in sorted(known):",
        "for name in sorted(known, key=id):",
        f"{EDGES}::test_the_random_number_is_the_peoples_own",
    ),
    mutant(
        "names-that-join",
        "two sets of people never share a random number",
        "pairmark/models/calibration/chance.py",
        'made.update(len(name).to_bytes(8, "big") + name)',
        "made.update(name)",
        f"{EDGES}::test_the_random_number_is_the_peoples_own",
    ),
    mutant(
        "uniform-by-scores",
        "versions on the same people share one random number, whatever their scores are",
        "pairmark/models/calibration/operating_points.py",
        "else Chance.of_people(sample.names)",
        "else Chance.of_people(sample.names, sample.different.scores[:1].tobytes())",
        f"{EDGES}::test_versions_on_the_same_people_share_it_whatever_their_scores_and_rows_are",
    ),
    mutant(
        "luck-below-the-floor",
        "a rate is refused below the floor, whatever the random number is",
        "pairmark/models/calibration/finite_sample.py",
        "            if multiple < 1 - _HAIR:\n                return None\n",
        "",
        f"{EDGES}::test_no_random_number_costs_power_and_none_answers_below_the_floor",
    ),
    mutant(
        "a-seed-moves-the-threshold",
        "no seed that a caller can give moves a threshold of the service",
        "pairmark/service/store/calibrations.py",
        "            chance=chance,\n            units_assumed",
        "            random_state=random_state,\n            units_assumed",
        f"{LEDGER}::test_no_seed_of_a_caller_moves_a_threshold",
    ),
    mutant(
        "cells-of-somebodys-list",
        "complete parts of a list are cells only where Pairmark drew them",
        "pairmark/models/calibration/origins.py",
        'return "unknown" if listing is None else',
        'return "drawn" if listing is None else',
        f"{EDGES}::test_blocks_that_match_everything_are_counted_as_blocks",
    ),
    mutant(
        "people-in-two-blocks",
        "blocks that share a person are not taken for independent",
        "pairmark/models/pairs/samples.py",
        "    if torn.size:\n",
        "    if False:\n",
        f"{EDGES}::test_all_pairs_are_recognised_and_what_is_declared_is_checked",
    ),
    mutant(
        "unnamed-people-promised",
        "nothing is guaranteed where nobody says whom pairs are of",
        "pairmark/models/calibration/origins.py",
        'return "independent" if independent else "unnamed"',
        'return "independent"',
        f"{EDGES}::test_a_list_is_promised_what_its_origin_allows",
    ),
    mutant(
        "a-population-of-the-least-size",
        "a sample of a population is bounded for every number of different pairs in it",
        "pairmark/models/calibration/bounds.py",
        "math.floor(p * population) + 2",
        "math.floor(p * n) + 2",
        f"{BOUNDS}::test_a_sample_of_a_population_is_bounded_for_every_number_of_different_pairs",
    ),
    mutant(
        "files-are-counted",
        "the ledger counts calibrations on people in common, whatever file names them",
        "pairmark/service/store/ledger.py",
        "            cohorts.add(cohort)\n",
        "",
        f"{LEDGER}::test_people_are_counted_whatever_file_names_them",
    ),
    mutant(
        "misses-one-by-one",
        "under a simultaneous promise all false negative rates hold at once",
        "pairmark/models/calibration/refusals.py",
        "    if simultaneous:\n        sure",
        "    if False:\n        sure",
        f"{EDGES}::test_false_negative_rates_hold_together_under_a_simultaneous_promise",
    ),
    mutant(
        "evidence-of-pairs",
        "no likelihood ratio is stronger than the people can show",
        "pairmark/models/calibration/likelihood_ratios.py",
        "    n = sample.different.n_blocks\n",
        "    n = len(sample.different)\n",
        f"{RATIOS}::test_no_likelihood_ratio_is_stronger_than_the_people_can_show",
    ),
)

RESPONSES = (
    Mutant(
        name="exports-that-never-begin-stay",
        guarantee="what an answer needed on disk goes when it ends, begun or not",
        edits=(
            Edit(
                file="pairmark/service/api/services.py",
                old="    with services.blobs.workspace() as folder:\n        yield folder\n",
                new="    import tempfile\n\n"
                '    yield Path(tempfile.mkdtemp(dir=services.settings.home / "artefacts" / "tmp"))\n',
            ),
            Edit(
                file="pairmark/service/api/models.py",
                old='    with path.open("rb") as stream:\n        while piece := stream.read(1024 * 1024):\n'
                "            yield piece\n",
                new='    try:\n        with path.open("rb") as stream:\n'
                "            while piece := stream.read(1024 * 1024):\n                yield piece\n"
                "    finally:\n        path.unlink()\n        path.parent.rmdir()\n",
            ),
        ),
        tests=("tests/service/api/test_aborted_answers.py::test_an_aborted_export_leaves_nothing",),
    ),
    mutant(
        "a-start-sweeps-nothing",
        "what a crash left half-made in storage goes at the next start",
        "pairmark/service/blobs/collect.py",
        "    _record(db, blobs.sweep(), [])\n",
        "    _record(db, 0, [])\n",
        "tests/e2e/test_aborted_exports.py::test_what_a_crash_left_goes_at_the_next_start",
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
        "(children > np.arange(n)) & (children < end - 1)",
        "(children < end - 1)",
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

LABEL_ROLES = "tests/service/test_label_roles.py"
FEW = "tests/service/test_few_people.py"
POPULATIONS = (
    mutant(
        "few-labels-are-classes",
        "few labels that nobody said to be classes are asked about",
        "pairmark/service/datasets/promises.py",
        '    return "open-set" if n_labels >= OPEN_SET_FROM else None\n',
        '    return "open-set" if n_labels >= OPEN_SET_FROM else "closed-set"\n',
        f"{LABEL_ROLES}::test_a_bare_label_of_few_values_is_asked_about_with_what_each_answer_could_promise",
    ),
    mutant(
        "few-identities-are-classes",
        "a promise about few people holds for new ones",
        "pairmark/service/datasets/promises.py",
        '{"identity": "open-set", "classes": "closed-set"}',
        '{"identity": "closed-set", "classes": "closed-set"}',
        f"{LABEL_ROLES}::test_what_is_promised_of_few_people_holds_for_people_never_met",
    ),
    mutant(
        "a-population-is-not-named",
        "a closed-set promise names the classes among which it holds",
        "pairmark/service/training/registering.py",
        "                **class_count(loaded.data, calibration.protocol),\n",
        "",
        f"{LABEL_ROLES}::test_a_closed_set_promise_names_its_population",
    ),
    mutant(
        "training-gives-way-first",
        "the test part shrinks before the training part does",
        "pairmark/service/datasets/promises.py",
        "    n_test = max(smallest_test, min(n_test, units - needed - n_training))\n",
        "",
        f"{FEW}::test_the_test_part_gives_way_before_training_does",
    ),
    mutant(
        "half-is-the-most-that-calibrates",
        "a rate that some split supports is supported where it was named",
        "pairmark/service/datasets/promises.py",
        "    if round(usual_share * units) >= needed or units - needed - smallest_test < fewest:\n",
        "    if True:\n",
        f"{FEW}::test_a_named_rate_is_supported_if_any_split_supports_it",
    ),
)

TIES = "tests/models/similarity/test_ties_and_people.py"

DEFAULTS = (
    mutant(
        "saturated-pairs-tie",
        "pairs that share the best leaf of every tree keep an order",
        "pairmark/models/similarity/base.py",
        "            scores += self.learned_.tie_breaks(*columns)\n",
        "            pass\n",
        f"{TIES}::test_new_people_beyond_all_that_trees_learned_from_keep_an_order",
    ),
    mutant(
        "one-person-is-all-same-pairs",
        "same pairs are drawn evenly over people where one has most rows",
        "pairmark/models/pairs/sampling.py",
        "evenly=bool(uneven)",
        "evenly=False",
        f"{TIES}::test_same_pairs_are_drawn_evenly_where_one_person_has_most_rows",
    ),
    mutant(
        "forests-differ-each-time",
        "every learner has the seed 0 by default",
        "pairmark/models/rankboost/estimator.py",
        "        ] = 0,\n    ) -> None:",
        "        ] = None,\n    ) -> None:",
        f"{TIES}::test_every_learner_has_the_same_seed_by_default",
    ),
    mutant(
        "children-wrap-around",
        "no number in a model file makes scoring read beyond its trees",
        "pairmark/models/records/trees.py",
        "(children < end - 1)",
        "(children + 1 < end)",
        "tests/models/test_states.py::test_a_child_at_the_end_of_the_number_range_is_refused",
    ),
)

ITEMS_KEY = f"{ODD_IDS}::test_a_key_for_items_deletes_no_gallery_whoever_resolves_its_addresses"

RESOLVED = (
    mutant(
        "a-slash-at-the-end-is-nothing",
        "an address with a slash at its end, as a resolved `..` leaves it, is another address",
        "pairmark/service/api/routing.py",
        "        found = self._exact.get((method, path))\n",
        '        path = path.rstrip("/") or path\n        found = self._exact.get((method, path))\n',
        f"{ODD_IDS}::test_a_delete_with_a_slash_or_a_line_break_at_the_end_is_of_nothing",
    ),
    mutant(
        "a-key-for-items-is-one-for-the-gallery",
        "a key for items does not delete the gallery",
        "pairmark/service/api/routing.py",
        '"items" if self.of_items else "all"',
        '"items"',
        ITEMS_KEY,
    ),
    mutant(
        "levels-are-not-compared",
        "a grant covers no more than its level",
        "pairmark/service/keys/grants.py",
        "            and grant.covers(level)\n",
        "",
        "tests/service/test_keys.py::test_grants",
    ),
)

KINDS = "tests/service/test_damage_kinds.py"
DAMAGED_ROW = f"{KINDS}::test_a_damaged_row_is_named_with_its_repair_and_never_a_500"

DAMAGE_KINDS = (
    mutant(
        "columns-hold-anything",
        "the doctor and every load check the type of each column",
        "pairmark/service/tables.py",
        "        if not (type_ is float and type(value) is int):\n",
        "        if False:\n",
        DAMAGED_ROW,
    ),
    mutant(
        "what-cannot-be-shown-is-a-500",
        "a row whose JSON lacks what shows it answers 503",
        "pairmark/service/tables.py",
        "except (LookupError, TypeError, ValueError, AttributeError) as error:",
        "except ZeroDivisionError as error:",
        DAMAGED_ROW,
    ),
    mutant(
        "vectors-of-no-number-are-searched",
        "one item that is not finite leaves the others searchable",
        "pairmark/service/galleries/item_repository.py",
        "    sound = np.isfinite(vectors).all(axis=1)\n",
        "    sound = np.ones(len(whole), dtype=bool)\n",
        f"{KINDS}::test_items_beside_a_damaged_one_are_searched",
    ),
    mutant(
        "doctor-counts-nothing",
        "the doctor holds a gallery's numbers against its rows",
        "pairmark/service/operations/rows.py",
        "    yield from _counts(session)\n",
        "",
        DAMAGED_ROW,
    ),
    mutant(
        "doctor-skips-the-schema",
        "the doctor names tables, columns, indexes and triggers that are not there",
        "pairmark/service/operations/rows.py",
        "            schema = list(_schema(session))\n",
        "            schema: list[Damage] = []\n",
        DAMAGED_ROW,
    ),
    mutant(
        "a-sequence-that-went-back-is-a-500",
        "a search of a gallery whose sequence went back names it",
        "pairmark/service/galleries/thresholds.py",
        '                    raise DamagedRow(\n                        f"gallery {state.name!r} is damaged: its seq',
        '                    raise OSError(\n                        f"gallery {state.name!r} is damaged: its seq',
        DAMAGED_ROW,
    ),
    mutant(
        "ready-without-the-calibrations-blob",
        "/readyz is not 200 while the blob of production's calibration is gone",
        "pairmark/service/store/store.py",
        "        return sorted({*lost, *self._without_blob(blobs)})\n",
        "        return sorted(lost)\n",
        f"{KINDS}::test_production_whose_calibration_has_no_blob_is_not_ready",
    ),
    mutant(
        "a-gallery-of-no-version-stays",
        "deleting a gallery whose version is gone repairs it",
        "pairmark/service/galleries/galleries.py",
        "            row = _existing(name, partial(repository.locked_row, session))\n",
        "            row = _existing(name, partial(repository.locked_row, session))\n"
        "            repository.state_by_id(session, row.id)\n",
        f"{KINDS}::test_deleting_a_gallery_of_no_version_repairs_it",
    ),
    mutant(
        "likelihood-ratios-are-unmarked",
        "likelihood ratios of an imported calibration say so",
        "pairmark/service/runtime/runtime.py",
        "loaded.calibration.origin, loaded.imported)",
        '"all", None)',
        "tests/service/test_transfer.py::test_likelihood_ratios_say_whose_calibration_they_are_of",
    ),
)

MISHAPS = "tests/faults/test_mishaps.py::test_nothing_is_lost_doubled_or_half"

UNLIKELY = (
    mutant(
        "an-upgrade-without-space-is-a-traceback",
        "an upgrade on a full disk is refused in words",
        "pairmark/service/db.py",
        "        with _in_our_words():\n            self._migrate(to)\n",
        "        self._migrate(to)\n",
        f"{MISHAPS}[full_migrations]",
    ),
    mutant(
        "a-backup-appears-in-pieces",
        "a backup is whole or not there",
        "pairmark/service/operations/backup.py",
        '    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")\n',
        "    part = target\n",
        f"{MISHAPS}[killed_backups]",
    ),
)

SSO = "tests/e2e/test_single_sign_on.py"
OPENID = "pairmark/service/keys/openid.py"
NOT_OURS = f"{SSO}::test_an_id_token_that_is_not_ours_is_refused"
CALLED_BACK = f"{SSO}::test_a_way_back_that_this_browser_did_not_begin_is_refused"

SIGN_ON = (
    mutant(
        "sign-on-without-pkce",
        "the code flow goes with PKCE",
        OPENID,
        '                "code_challenge_method": "S256",\n',
        "",
        f"{SSO}::test_a_person_is_let_in_with_the_scopes_of_their_groups",
    ),
    mutant(
        "tokens-for-others-are-taken",
        "an ID token for another service is refused",
        OPENID,
        '            "aud": {"essential": True, "values": [self._settings.oidc_client_id]},\n',
        "",
        NOT_OURS,
    ),
    mutant(
        "no-id-token-is-needed",
        "an answer without an ID token signs nobody in",
        OPENID,
        '        if not claims or not isinstance(claims.get("sub"), str):\n',
        '        claims = claims or {"sub": "x", "groups": ["research"]}\n        if False:\n',
        NOT_OURS,
    ),
    mutant(
        "another-provider-answers",
        "an answer that names another issuer is refused",
        OPENID,
        "        if issuer is not None and issuer != self.issuer:\n",
        "        if False:\n",
        CALLED_BACK,
    ),
    mutant(
        "no-group-is-needed",
        "who is in no group of the settings is refused",
        OPENID,
        "        if not scopes:\n",
        "        scopes = scopes or ('score',)\n        if False:\n",
        f"{SSO}::test_who_has_no_group_is_refused",
    ),
    mutant(
        "sign-on-leads-anywhere",
        "a sign-in leads to pages of this service only",
        "pairmark/service/console/session.py",
        'return path if path and re.fullmatch(r"/(?![/\\\\])[\\x21-\\x7e]*", path) else "/"',
        'return path or "/"',
        f"{SSO}::test_it_leads_to_pages_of_this_service_only",
    ),
    mutant(
        "the-sign-on-lasts",
        "a session of single sign-on ends when the settings say",
        "pairmark/service/keys/keys.py",
        "scopes, expires_in_s=seconds).id",
        "scopes).id",
        f"{SSO}::test_a_person_is_let_in_with_the_scopes_of_their_groups",
    ),
    mutant(
        "the-host-header-is-believed",
        "the provider sends people back to the address of the settings",
        OPENID,
        "self._client.authorize_redirect(request, self.public_url + CALLBACK)",
        "self._client.authorize_redirect(request, str(request.base_url).rstrip('/') + CALLBACK)",
        f"{SSO}::test_no_host_that_a_caller_names_is_asked_or_sent_to",
    ),
    mutant(
        "a-provider-without-tls",
        "providers and this service are named by https",
        OPENID,
        'if not (parts.scheme == "https" or (parts.scheme == "http" and is_local(parts.hostname or ""))):',
        'if parts.scheme not in ("https", "http"):',
        f"{SSO}::test_settings_that_cannot_work_are_refused_at_the_start",
    ),
)

TENANTS_TESTS = "tests/service/test_tenants.py"
SHARES = "tests/service/test_shares.py"

TENANTS = (
    mutant(
        "a-prefix-without-its-slash",
        "a key of the tenant acme sees nothing of acme2",
        "pairmark/service/keys/grants.py",
        """prefix="" if tenant is None else f"{tenant}/")""",
        """prefix="" if tenant is None else tenant)""",
        f"{TENANTS_TESTS}::test_a_key_sees_below_its_tenant_and_nothing_beside_it",
    ),
    mutant(
        "paths-name-any-tenant",
        "what a key may not see is 404",
        "pairmark/service/api/access.py",
        "        if part in path:\n",
        "        if False:\n",
        f"{TENANTS_TESTS}::test_no_route_shows_a_tenant_anothers_names",
    ),
    mutant(
        "calibrations-by-id-are-everybodys",
        "a calibration is seen by who may see its model",
        "pairmark/service/runtime/runtime.py",
        "        if calibration is None or names.everything:\n",
        "        if True:\n",
        f"{TENANTS_TESTS}::test_no_body_reaches_anothers_names",
    ),
    mutant(
        "idempotency-keys-are-shared",
        "an Idempotency-Key belongs to keys that see the same names",
        "pairmark/service/training/submission.py",
        "    if names.everything:\n",
        "    if True:\n",
        f"{TENANTS_TESTS}::test_the_same_idempotency_key_of_two_tenants_is_two",
    ),
    mutant(
        "quotas-are-only-noted",
        "what is beyond a quota is refused",
        "pairmark/service/keys/tenants.py",
        "        over = more > remaining\n",
        "        over = False\n",
        f"{TENANTS_TESTS}::test_quotas_refuse_what_is_beyond_and_say_so",
    ),
    mutant(
        "the-audit-log-is-everybodys",
        "a tenant sees its part of the audit log",
        "pairmark/service/audit/repository.py",
        "    if tenant is not None:\n",
        "    if False:\n",
        f"{TENANTS_TESTS}::test_lists_hold_the_tenants_own_names",
    ),
    mutant(
        "jobs-first-come-first-served",
        "owners of jobs take turns",
        "pairmark/service/jobs/repository.py",
        ".order_by(under_way, turn, inner.created_at, inner.id)",
        ".order_by(inner.created_at, inner.id)",
        f"{TENANTS_TESTS}::test_owners_of_jobs_take_turns",
    ),
    mutant(
        "a-full-house-stays-full",
        "a newcomer gets a place of whoever has the most",
        "pairmark/service/shares.py",
        "            if seat.evict():\n",
        "            if False:\n",
        f"{SHARES}::test_one_owner_gets_every_seat_and_a_newcomer_one_of_them",
    ),
    mutant(
        "nobody-beyond-the-threads",
        "an owner with nothing under way does not wait for another's long work",
        "pairmark/service/shares.py",
        "(not self._under_way[owner] and total < self._most)",
        "False",
        f"{SHARES}::test_places_let_another_owner_in_while_one_fills_them",
    ),
    mutant(
        "rows-are-read-in-silence",
        "exports and reads of dataset rows are in the audit log",
        "pairmark/service/api/datasets.py",
        """    services.audit.note("dataset.read", f"dataset:{rows.dataset}", facts)\n""",
        "",
        f"{TENANTS_TESTS}::test_exports_reads_of_rows_and_refused_logins_are_in_the_audit_log",
    ),
)

JSON_ROWS = "pairmark/models/core/kernels/json_rows.py"
JSON_ROWS_TESTS = "tests/models/core/test_json_rows.py"

PARSING = (
    mutant(
        "halves-are-rounded-up",
        "decimals of a request are rounded as Python rounds them",
        JSON_ROWS,
        "    if exact and (mantissa",
        "    if False and (mantissa",
        f"{JSON_ROWS_TESTS}::test_halves_are_rounded_to_even",
    ),
    mutant(
        "a-key-twice",
        "a body in which a key stands twice is refused or read as JSON parsers read it",
        JSON_ROWS,
        "index == NOT_PLAIN or places[index, 0] >= 0 or at >=",
        "index == NOT_PLAIN or at >=",
        f"{JSON_ROWS_TESTS}::test_other_bodies_are_left_to_the_complete_parser",
    ),
    mutant(
        "ragged-rows-are-read",
        "rows of unlike lengths are refused, not cut anew",
        JSON_ROWS,
        "if at == NOT_PLAIN or (n_rows and end - filled != width):",
        "if at == NOT_PLAIN:",
        f"{JSON_ROWS_TESTS}::test_other_bodies_are_left_to_the_complete_parser",
    ),
)

SERVED_REVIEWS = "tests/service/test_reviews.py"
REVIEWS = (
    mutant(
        "a-review-looks-once",
        "a review's bound holds at every look",
        "pairmark/models/reviews/evidence.py",
        "        needed = math.log1p(-confidence) + self.log_numerator(at_most)\n",
        "        needed = 0.5 * math.log1p(-confidence) + self.log_numerator(at_most)\n",
        "tests/models/test_review_evidence.py::test_every_order_of_a_small_population_fails_rarely_enough",
    ),
    mutant(
        "strata-are-only-thought-even",
        "a total is ruled out when all its configurations are",
        "pairmark/models/reviews/kernels/evidence.py",
        "    value -= (least - total) * low\n",
        "    value -= 2.0 * (least - total + 1) * low\n",
        "tests/models/test_review_evidence.py::test_the_envelope_is_the_best_configuration",
    ),
    mutant(
        "misses-are-unseen",
        "a bound of missed matches counts what no judgement rules out",
        "pairmark/models/reviews/evidence.py",
        "    undrawn = np.array([different.sizes.sum(), 0, 0], dtype=np.int64)\n",
        "    undrawn = np.zeros(3, dtype=np.int64)\n",
        "tests/models/test_review_evidence.py::test_the_bound_of_missed_matches_holds_at_all_looks",
    ),
    mutant(
        "easy-pairs-count-first",
        "judgements count in the order of draws",
        "pairmark/service/reviews/progress.py",
        "            return list(draws[:at])\n",
        "            return [draw for draw in draws if draw.wrong is not None]\n",
        f"{SERVED_REVIEWS}::test_judgements_wait_for_pairs_drawn_before",
    ),
    mutant(
        "two-get-one-pair",
        "nobody judges a pair twice unasked",
        "pairmark/service/reviews/repository.py",
        "                or_(of.held_until.is_(None), of.held_until <= now),\n",
        "",
        f"{SERVED_REVIEWS}::test_twenty_reviewers_at_once_never_judge_a_pair_twice",
    ),
    mutant(
        "thinned-by-age",
        "what is kept of an hour is a uniform sample of what is counted",
        "pairmark/service/reviews/recorder.py",
        "[row.columns(hour.number) for row in hour.rows if row.key < chance]",
        "[row.columns(hour.number) for row in hour.rows]",
        f"{SERVED_REVIEWS}::test_hours_with_too_many_are_thinned_evenly",
    ),
    mutant(
        "a-second-opinion-counts",
        "the first judgement of a pair counts",
        "pairmark/service/reviews/repository.py",
        "first_judgement = and_(judgement.item_id == of.id, judgement.number == 1)",
        "first_judgement = and_(judgement.item_id == of.id, judgement.number >= 1)",
        f"{SERVED_REVIEWS}::test_who_repeats_or_changes_a_judgement_counts_once",
    ),
    mutant(
        "erased-is-right",
        "an erased pair that is drawn counts as wrong",
        "pairmark/service/reviews/progress.py",
        "None if number is None and not erased else not right",
        "None if number is None and not erased else (not right and not erased)",
        f"{SERVED_REVIEWS}::test_erased_names_count_as_wrong_and_are_gone",
    ),
    mutant(
        "erasure-leaves-sides",
        "an erasure takes names and sides from what is kept",
        "pairmark/service/reviews/repository.py",
        '"sides": None, "erased": True}',
        '"erased": True}',
        f"{SERVED_REVIEWS}::test_erased_names_count_as_wrong_and_are_gone",
    ),
    mutant(
        "doubt-raises-an-alarm",
        "what nobody can tell raises no alarm",
        "pairmark/service/reviews/progress.py",
        "wrong=draw.wrong and draw.certain)",
        "wrong=draw.wrong)",
        f"{SERVED_REVIEWS}::test_what_nobody_can_tell_raises_the_bound_and_no_alarm",
    ),
    mutant(
        "anything-can-be-judged",
        "only what was handed out can be judged",
        "pairmark/service/reviews/repository.py",
        "return session.scalar(select(of).where(of.id == item_id, of.review_id == review_id, of.draw.is_not(None)))",
        "return session.scalar(select(of).where(of.id == item_id))",
        f"{SERVED_REVIEWS}::test_only_what_was_handed_out_can_be_judged",
    ),
    mutant(
        "doubt-is-right",
        "what nobody can tell counts as wrong",
        "pairmark/service/reviews/progress.py",
        "None if number is None and not erased else not right",
        "None if number is None and not erased else not right and (erased or same is not None)",
        f"{SERVED_REVIEWS}::test_what_nobody_can_tell_raises_the_bound_and_no_alarm",
    ),
    mutant(
        "chosen-among-random",
        "pairs chosen by their score are never mixed with random ones",
        "pairmark/service/reviews/population.py",
        '    "false-matches": (MATCH,),\n',
        '    "false-matches": (MATCH, DOUBTFUL),\n',
        f"{SERVED_REVIEWS}::test_uncertain_pairs_are_chosen_and_never_mixed_with_random_ones",
    ),
    mutant(
        "chosen-pairs-calibrate",
        "pairs that were chosen by looking at them calibrate nothing",
        "pairmark/service/store/calibrations.py",
        "        if self._datasets.get(dataset).chosen:\n",
        "        if False:\n",
        "tests/e2e/test_reviews_served.py::"
        "test_judged_pairs_become_a_dataset_that_may_train_and_calibrates_only_if_random",
    ),
    mutant(
        "unequal-chances-calibrate",
        "judged pairs that calibrate had one chance to be drawn",
        "pairmark/service/reviews/export.py",
        "math.floor(chance * sizes[row.stratum] + 1e-9)",
        "sizes[row.stratum]",
        f"{SERVED_REVIEWS}::test_equal_chances_are_made_of_unequal_ones",
    ),
    mutant(
        "the-next-is-kept-late",
        "every decision has the same chance to be kept",
        "pairmark/service/reviews/recorder.py",
        "int(math.log(1.0 - self._uniform()) / math.log1p(-chance))",
        "1 + int(math.log(1.0 - self._uniform()) / math.log1p(-chance))",
        f"{SERVED_REVIEWS}::test_every_decision_has_the_same_chance_to_be_kept",
    ),
    mutant(
        "a-webhook-goes-anywhere",
        "webhooks are sent to hosts of the setting only",
        "pairmark/service/webhooks/webhooks.py",
        "if odd or not (",
        "if odd or not host or not (True or ",
        "tests/service/test_webhooks.py::test_other_hosts_are_refused",
    ),
    mutant(
        "a-webhook-is-led-on",
        "webhooks follow no redirect",
        "pairmark/service/webhooks/webhooks.py",
        "follow_redirects=False",
        "follow_redirects=True",
        "tests/service/test_webhooks.py::test_a_refused_message_is_tried_again_with_growing_pauses",
    ),
    mutant(
        "any-trainer-reviews",
        "a key sees reviews of models that it may train",
        "pairmark/service/api/reviews.py",
        '    check_may(http, "train", model)\n',
        "    pass\n",
        "tests/e2e/test_reviews_served.py::"
        "test_what_was_acknowledged_survives_a_kill_and_keys_open_only_their_model",
    ),
)

SECRETS = (
    mutant(
        "backups-without-the-secret",
        "a restored service draws the same thresholds",
        "pairmark/service/operations/dump.py",
        'NOT_KEPT = frozenset({"workers"',
        'NOT_KEPT = frozenset({"service_secret", "workers"',
        f"{BACKUP}::test_a_restored_place_draws_the_same_thresholds",
    ),
    mutant(
        "a-lost-secret-is-drawn-again",
        "no service draws a threshold again because its secret was lost",
        "pairmark/service/store/secret.py",
        "        stored = session.get(ServiceSecret, _ROW)\n        check_secret(session)\n",
        "        stored = session.get(ServiceSecret, _ROW)\n",
        f"{LEDGER}::test_a_lost_secret_is_never_made_again",
    ),
    mutant(
        "populations-support-nothing-too-small",
        "the smallest rate of a fixed population is one that is answered",
        "pairmark/models/calibration/finite_sample.py",
        "            0.5 / self.population\n",
        "            0.0\n",
        f"{EDGES}::test_a_population_is_promised_what_its_sample_shows",
    ),
    mutant(
        "bands-of-populations",
        "a band states the guarantee of its calibration",
        "pairmark/service/runtime/scoring.py",
        '            "guarantee": calibration.guarantee,\n',
        '            "guarantee": "finite-sample",\n',
        f"{LEDGER}::test_a_band_promises_what_its_calibration_does",
    ),
    mutant(
        "halves-look-at-scores",
        "the halves that people are split into are blind to scores",
        "pairmark/models/calibration/matching_product.py",
        "rng = np.random.default_rng([seed, 2])",
        "rng = np.random.default_rng([seed, 2, *map(int, graph.different[0])])",
        f"{BLIND}::test_the_halves_that_people_are_split_into_are_blind_to_scores",
    ),
    mutant(
        "the-best-split-answers",
        "the average over splits answers, whichever split is the best",
        "pairmark/models/calibration/matching_product.py",
        "return bool(np.logaddexp.reduce(logs) >= limit)",
        "return bool(max(logs) + math.log(len(logs)) >= limit)",
        f"{BLIND}::test_all_splits_answer_not_the_best_of_them",
    ),
    mutant(
        "pilots-answer",
        "the matchings that admit a threshold are drawn after the pilot looked at scores",
        "pairmark/models/calibration/listed_product.py",
        "return self._search(at, n, [self._seed, 4], fpr, limit, parts)",
        "return self._search(at, n, [self._seed, 3, 0], fpr, limit, parts)",
        "tests/models/test_listed_product.py::test_the_draws_that_answer_are_none_of_the_pilots",
    ),
)

FRONT = (
    mutant(
        "a-queued-job-waits-in-silence",
        "a waiting job says what it waits for",
        "pairmark/service/jobs/queue.py",
        "            if len(ahead) < n_workers:\n",
        "            if True:\n",
        "tests/service/test_queue.py::test_a_waiting_job_says_what_it_waits_for",
    ),
    mutant(
        "a-file-is-sent-before-its-columns-are-looked-at",
        "what would be refused is refused before the file is sent",
        "pairmark/service/cli/catalogue.py",
        "    _check_before_sending(name, file, reading)\n",
        "",
        "tests/service/test_cli.py::test_what_would_be_refused_is_refused_before_the_file_is_sent",
    ),
    mutant(
        "ways-out-of-a-refusal-are-left-out",
        "a refusal says the same ways out over HTTP and on the command line",
        "pairmark/service/runtime/scoring.py",
        "ways=self._ways(fpr, error, loaded) if question.fnr is None else [],",
        "ways=[],",
        "tests/e2e/test_deciding_commands.py"
        "::test_a_refusal_says_the_same_ways_out_over_http_and_on_the_command_line",
    ),
    mutant(
        "only-the-first-trouble-is-told",
        "a messy table is told all its troubles at once",
        "pairmark/service/datasets/troubles.py",
        "    return found[:_MOST]\n",
        "    return found[:1]\n",
        "tests/service/test_inspecting.py::test_a_messy_table_is_told_all_its_troubles_at_once",
    ),
    mutant(
        "contradictory-pairs-are-kept",
        "pairs that contradict others are left out where that was asked for",
        "pairmark/service/datasets/pairs.py",
        "    keep[wrong] = False\n",
        "",
        "tests/service/test_cli.py::test_an_upload_of_pairs_counts_them_and_lists_contradictions",
    ),
)

DEFAULT_RACE = (
    mutant(
        "halving-with-time-to-spare",
        "all candidates race on all folds while the budget lasts",
        "pairmark/models/auto/race.py",
        "        if not all_stay:\n            best",
        "        if racing:\n            best",
        f"{AUTO}::test_everybody_races_on_all_folds_while_the_budget_lasts_and_the_better_half_when_it_does_not",
    ),
    mutant(
        "a-rate-that-no-fold-can-show",
        "rates are shown where folds have people enough to show them",
        "pairmark/models/evaluation/validation.py",
        "fold.n_independent * np.array(at) >= SHOWN_FROM",
        "fold.n_independent * np.array(at) >= 0",
        f"{AUTO}::test_a_rate_is_shown_where_a_folds_people_can_show_it_and_without_the_optimism_of_choosing",
    ),
    mutant(
        "the-best-of-many-is-expected",
        "the winner's rate has no optimism of having been chosen",
        "pairmark/models/auto/race.py",
        "_simplest(fold_means(rates)[:, others])",
        "_simplest(fold_means(rates))",
        f"{AUTO}::test_a_rate_is_shown_where_a_folds_people_can_show_it_and_without_the_optimism_of_choosing",
    ),
    mutant(
        "unresolved-rates-judge",
        "a race judges by the rates that a fold's pairs resolve",
        "pairmark/models/evaluation/validation.py",
        "return np.where(resolved(different.size, at), tpr_at(same, different, at), np.nan)",
        "return tpr_at(same, different, at)",
        f"{AUTO}::test_few_different_pairs_judge_by_the_rates_that_they_resolve",
    ),
    mutant(
        "holes-filled-by-nobody-after-loading",
        "a model is saved with what fills missing values",
        "pairmark/models/registry.py",
        "        fitted.fill_ = fill\n",
        "        pass\n",
        "tests/models/test_missing_values.py::"
        "test_a_model_of_rows_with_holes_takes_them_and_is_saved_with_what_fills_them",
    ),
    mutant(
        "an-index-of-other-fillings",
        "an index belongs to the model that made it, fillings and all",
        "pairmark/models/core/base.py",
        "            arrays = {**arrays, FILL: self.fill_}\n",
        "            pass\n",
        "tests/models/test_missing_values.py::"
        "test_a_model_of_rows_with_holes_takes_them_and_is_saved_with_what_fills_them",
    ),
    mutant(
        "one-column-twice",
        "units come as a tuple of two columns",
        "pairmark/models/pairs/samples.py",
        "for side in units]",
        "for side in (units[0], units[0])]",
        "tests/models/test_model_selection.py::test_units_come_as_columns_frames_and_objects",
    ),
    mutant(
        "ties-count-whole",
        "score is the AUC of pairs, ties counting half",
        "pairmark/models/core/row_pairs.py",
        'for side in ("left", "right")]',
        'for side in ("right", "right")]',
        "tests/models/test_model_selection.py::test_score_is_the_auc_of_all_pairs_of_rows",
    ),
)

MUTANTS = (
    *PARSING,
    *DEFAULT_RACE,
    *DEFAULTS,
    *RESOLVED,
    *DAMAGE_KINDS,
    *SIGN_ON,
    *UNLIKELY,
    *FRONT,
    *RECORDS,
    *POPULATIONS,
    *REQUESTS,
    *IDS,
    *RESTORES,
    *IMPORTS,
    *DAMAGED_ROWS,
    *RESPONSES,
    *UPLOADS,
    *PROMISE_EDGES,
    *SUBJECTS,
    *RACE,
    *EVIDENCE,
    *VALIDITY,
    *GALLERIES,
    *DURABILITY,
    *LOADING,
    *ACCESS_AND_LEAKAGE,
    *TENANTS,
    *REVIEWS,
    *SECRETS,
)
