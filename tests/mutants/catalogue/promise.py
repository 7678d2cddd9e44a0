"""Promises about rates and evidence: the mutants."""

from __future__ import annotations

from tests.mutants.catalogue.places import BACKUP
from tests.mutants.mutant import Edit, Mutant, mutant

BOUNDS = "tests/models/test_bounds.py"
POINTS = "tests/models/test_operating_points.py"
SPLITS = "tests/models/test_splits.py"
BLIND = "tests/models/test_score_blindness.py"
EDGES = "tests/models/test_promise_edges.py"
LEDGER = "tests/service/test_ledger.py"
TRAINER = "tests/service/test_trainer.py"

VALIDITY = (
    mutant(
        "jobs-grow-on-one-thread",
        "a job that names no number of threads uses every core",
        "pairmark/service/training/trainer.py",
        'parallel_config(backend="threading", n_jobs=threads)',
        "parallel_config(n_jobs=threads)",
        f"{TRAINER}::test_what_prefers_threads_gets_them_in_a_job",
    ),
    mutant(
        "renamed-rows-are-new-people",
        "people under other names are counted by their rows",
        "pairmark/service/store/calibrations.py",
        "people=(*digests_of(people, secret), *digests_of_rows(data, rows, secret)),",
        "people=digests_of(people, secret),",
        f"{LEDGER}::test_who_is_given_another_name_is_recognised",
    ),
    mutant(
        "renamed-scores-are-new-people",
        "people under other names are counted by the list of their scores",
        "pairmark/service/store/calibrations.py",
        "            digests += digest_of_scores(*listed, secret)",
        "            pass",
        f"{LEDGER}::test_who_is_given_another_name_is_recognised",
    ),
    mutant(
        "types-of-units-draw-anew",
        "the type of units moves no threshold",
        "pairmark/models/pairs/samples.py",
        '    if names.dtype.kind in "iuf":',
        "    if False:",
        f"{EDGES}::test_the_type_of_names_is_no_seed",
    ),
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
        "a-lucky-number-serves-more-than-asked",
        "no random number serves a rate that its own pairs exceed",
        "pairmark/models/calibration/finite_sample.py",
        "(min(at, self._last_within(fpr)), fpr)",
        "(at, fpr)",
        "tests/models/test_promise_edges.py::test_no_random_number_serves_a_rate_above_what_was_asked",
    ),
    mutant(
        "bound-at-a-threshold-that-was-not-admitted",
        "a group's bound is of the served threshold",
        "pairmark/models/calibration/finite_sample.py",
        "if choice is None or choice[0] < at:",
        "if choice is None:",
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
        "(total + 1.0) * factor",
        "max(total, 1.0 if self.n == 1 else 0.0) * factor",
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
                old="        strata = np.zeros_like(codes)\n",
                new="        strata = codes\n",
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
        "is_uncrossed = usable & (sides[:, 0] == sides[:, 1])",
        "is_uncrossed = usable",
        f"{SPLITS}::test_units_of_listed_pairs_are_people_where_something_says_who_they_are",
    ),
    mutant(
        "jobs-fit-on-everybody",
        "a job learns from its training part alone",
        "pairmark/service/training/fitting.py",
        "estimator.fit(job.X[parts.rows], np.asarray(job.data.y)[parts.rows], **options)",
        "estimator.fit(job.X, np.asarray(job.data.y), **options)",
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
        "pairmark/service/runtime/points.py",
        "= scores > self.threshold",
        "= scores >= self.threshold",
        "tests/service/runtime/test_served_point.py",
    ),
    mutant(
        "match-at-the-threshold-of-few",
        "match is score > threshold, strictly (single pairs)",
        "pairmark/service/runtime/points.py",
        "[score > threshold for score in scores]",
        "[score >= threshold for score in scores]",
        "tests/service/runtime/test_served_point.py",
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


PROMISE_EDGES = (
    mutant(
        "a-fixed-uniform",
        "the random number of a threshold is uniform and independent of scores",
        "pairmark/models/calibration/calibration_seed.py",
        "uniform=((first >> 11) + 0.5) * HALVES",
        "uniform=0.5",
        f"{EDGES}::test_the_random_number_is_the_peoples_own",
    ),
    mutant(
        "uniform-by-rows",
        "the random number of a threshold depends on who the people are, not on rows",
        "pairmark/models/calibration/calibration_seed.py",
        "for name in sorted(encoded):",
        "for name in sorted(encoded, key=id):",
        f"{EDGES}::test_the_random_number_is_the_peoples_own",
    ),
    mutant(
        "names-that-join",
        "two sets of people never share a random number",
        "pairmark/models/calibration/calibration_seed.py",
        'digest.update(len(name).to_bytes(8, "big") + name)',
        "digest.update(name)",
        f"{EDGES}::test_the_random_number_is_the_peoples_own",
    ),
    mutant(
        "uniform-by-scores",
        "versions on the same people share one random number, whatever their scores are",
        "pairmark/models/calibration/calibration.py",
        "CalibrationSeed.of_people(sample.names)",
        "CalibrationSeed.of_people(sample.names, sample.different.scores[:1].tobytes())",
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
        "    if conflicts.size:\n",
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
        "pairmark/service/training/storing.py",
        "                **class_count(job.data, calibration.protocol),\n",
        "",
        f"{LABEL_ROLES}::test_a_closed_set_promise_names_its_population",
    ),
    mutant(
        "training-gives-way-first",
        "the test part shrinks before the training part does",
        "pairmark/service/datasets/promises.py",
        "    n_test = max(smallest_test, min(n_test, units - n_calibration - n_training))\n",
        "",
        f"{FEW}::test_the_test_part_gives_way_before_training_does",
    ),
    mutant(
        "half-is-the-most-that-calibrates",
        "a rate that some split supports is supported where it was named",
        "pairmark/service/datasets/promises.py",
        "    if round(usual_share * units) >= n_calibration or units - n_calibration - smallest_test < fewest:\n",
        "    if True:\n",
        f"{FEW}::test_a_named_rate_is_supported_if_any_split_supports_it",
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
        "        row = session.get(ServiceSecret, _ROW)\n        check_secret(session)\n",
        "        row = session.get(ServiceSecret, _ROW)\n",
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
        "pairmark/service/runtime/points.py",
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


MUTANTS = (*VALIDITY, *EVIDENCE, *PROMISE_EDGES, *POPULATIONS, *SECRETS)
