"""Learners and the race among them: the mutants."""

from __future__ import annotations

from tests.mutants.mutant import mutant

AUTO = "tests/models/auto/test_auto.py"
SAMPLE_RULES = "tests/models/auto/test_sample_rules.py"

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
        "        for entry in racing:\n            if not all_stay",
        "        for entry in sorted(racing, key=lambda entry: entry.seconds):\n            if not all_stay",
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
        "pairmark/service/galleries/items/metadata.py",
        "    if types <= {int, float} and all(-_LARGEST <= value <= _LARGEST for value in values):\n",
        "    if types <= {int, float}:\n",
        "tests/service/galleries/test_gallery_rows.py::test_metadata_checked_together_is_that_checked_one_by_one",
    ),
)


SUBJECTS = (
    mutant(
        "samples-are-combined-as-always",
        "similarity-auto chooses how samples of a subject are combined",
        "pairmark/models/auto/sample_rules.py",
        "best = int(rates.mean(axis=0).argmax())",
        "best = 0",
        f"{SAMPLE_RULES}::test_where_photos_of_a_sitting_are_alike_auto_is_as_good_as_the_best_way",
    ),
    mutant(
        "another-way-by-luck",
        "the learner's own way stays unless another is ahead by more than a standard error",
        "pairmark/models/auto/sample_rules.py",
        "if lead.mean() <= lead.std(ddof=1) / np.sqrt(lead.size):",
        "if lead.mean() < 0:",
        f"{SAMPLE_RULES}::test_another_way_must_be_ahead_beyond_chance",
    ),
    mutant(
        "one-way-for-all-numbers",
        "auto goes by the number of samples of a pair",
        "pairmark/models/core/base.py",
        "return self.auto_aggregation(samples)",
        "return self.auto_aggregation()",
        f"{SAMPLE_RULES}::test_auto_goes_by_the_number_of_samples",
    ),
    mutant(
        "decisions-name-another-way",
        "what training chose for a number of samples scores and decides about subjects of so many",
        "pairmark/service/api/scoring.py",
        "how = version.aggregation(how, pairs.common_samples)",
        "how = version.aggregation(how)",
        "tests/e2e/test_subjects.py::test_auto_is_what_training_chose_and_the_answer_names_it",
    ),
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
        "probes[at * draws + draw] = picks[-p:]",
        "probes[at * draws + draw] = picks[:p]",
        "tests/models/test_subject_pairs.py::test_every_two_people_meet_both_ways",
    ),
    mutant(
        "erased-samples-stay-in-templates",
        "an erased sample has no part in its subject's template",
        "pairmark/service/galleries/index/subject_search.py",
        "removed_rows = np.flatnonzero(before & ~new.alive)",
        "removed_rows = np.flatnonzero(before & ~before)",
        "tests/service/galleries/test_gallery_subjects.py",
    ),
    mutant(
        "verifications-use-the-threshold-of-pairs",
        "a verification of a whole subject has a calibration of its own",
        "pairmark/service/api/search.py",
        "return await operating_point(subjects=SubjectClass(*samples, how)), how",
        "return await operating_point(), how",
        "tests/e2e/test_subjects.py::test_verification_decides_about_the_whole_subject",
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


DEFAULT_RACE = (
    mutant(
        "compiling-costs-nothing",
        "a budget holds where kernels are still to be compiled",
        "pairmark/models/auto/race.py",
        "            if cost <= free:\n",
        "            if self._cost(entry) <= free:\n",
        f"{AUTO}::test_what_is_still_to_be_compiled_counts_as_cost_but_not_for_further_folds",
    ),
    mutant(
        "scaling-lost-in-the-file",
        "a saved pipeline scales rows as the fitted one does",
        "pairmark/models/registry.py",
        "        learner.scaling_ = scaling\n",
        "        pass\n",
        "tests/models/test_pipelines.py",
    ),
    mutant(
        "one-index-for-scaled-and-bare",
        "an index belongs to one model, its scaling included",
        "pairmark/models/core/base.py",
        '{**arrays, "scaling": np.stack(now["scaling_"])}',
        "arrays",
        "tests/models/test_pipelines.py::test_an_index_of_the_bare_model_is_another_models",
    ),
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
        "_simplest(fold_means(rates)[:, is_other])",
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
        "        learner.fill_ = fill\n",
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
    mutant(
        "few-rows-divided-within-a-value",
        "a label ranking tree's border lies between two different values",
        "pairmark/models/label_ranking/kernels/growing.py",
        "if subset > 0 and value != before:",
        "if subset > 0:",
        "tests/models/label_ranking/test_ranking_trees.py::test_breiman_takes_the_split_of_least_error",
    ),
    mutant(
        "large-targets-in-32-bits",
        "a label ranking tree's sums are exact, or taken as float64",
        "pairmark/models/label_ranking/kernels/growing.py",
        "return square < _EXACT and weight.sum() < _MASS",
        "return True",
        "tests/models/label_ranking/test_ranking_trees.py::test_whole_targets_grow_the_trees_that_others_do",
    ),
    mutant(
        "stale-kernel-cache",
        "kernels compile anew where an earlier release's cache cannot be read",
        "pairmark/models/core/compiled.py",
        "        _forget_unreadable(own._cache_file)\n",
        "",
        "tests/models/test_compiled.py::test_a_cache_of_an_earlier_release_whose_types_have_gone_is_replaced",
    ),
)


MUTANTS = (*RACE, *DEFAULT_RACE, *DEFAULTS, *SUBJECTS)
