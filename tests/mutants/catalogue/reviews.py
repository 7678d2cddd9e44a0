"""Reviews: the mutants."""

from __future__ import annotations

from tests.mutants.mutant import mutant

SERVED_REVIEWS = "tests/service/test_reviews.py"

REVIEWS = (
    mutant(
        "any-number-of-parts",
        "the breakdown of a review is bounded",
        "pairmark/service/reviews/progress.py",
        "key))[:MAX_PARTS]",
        "key))",
        "tests/service/test_reviews.py::test_a_breakdown_has_the_parts_that_were_judged_most",
    ),
    mutant(
        "a-review-looks-once",
        "a review's bound holds at every look",
        "pairmark/models/reviews/evidence.py",
        "        log_limit = math.log1p(-confidence) + self.log_numerator(at_most)\n",
        "        log_limit = 0.5 * math.log1p(-confidence) + self.log_numerator(at_most)\n",
        "tests/models/test_review_evidence.py::test_every_order_of_a_small_population_fails_rarely_enough",
    ),
    mutant(
        "strata-are-only-thought-even",
        "a total is ruled out when all its configurations are",
        "pairmark/models/reviews/kernels/evidence.py",
        "    value -= (min_wrong - total) * low\n",
        "    value -= 2.0 * (min_wrong - total + 1) * low\n",
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
        "                or_(items.held_until.is_(None), items.held_until <= now),\n",
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
        "first_judgement = and_(judgement.item_id == items.id, judgement.number == 1)",
        "first_judgement = and_(judgement.item_id == items.id, judgement.number >= 1)",
        f"{SERVED_REVIEWS}::test_who_repeats_or_changes_a_judgement_counts_once",
    ),
    mutant(
        "erased-is-right",
        "an erased pair that is drawn counts as wrong",
        "pairmark/service/reviews/progress.py",
        "None if number is None and not is_erased else not right",
        "None if number is None and not is_erased else (not right and not is_erased)",
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
        "select(items).where(items.id == item_id, items.review_id == review_id, items.draw.is_not(None))",
        "select(items).where(items.id == item_id)",
        f"{SERVED_REVIEWS}::test_only_what_was_handed_out_can_be_judged",
    ),
    mutant(
        "doubt-is-right",
        "what nobody can tell counts as wrong",
        "pairmark/service/reviews/progress.py",
        "None if number is None and not is_erased else not right",
        "None if number is None and not is_erased else not right and (is_erased or same is not None)",
        f"{SERVED_REVIEWS}::test_what_nobody_can_tell_raises_the_bound_and_no_alarm",
    ),
    mutant(
        "chosen-among-random",
        "pairs chosen by their score are never mixed with random ones",
        "pairmark/service/reviews/population.py",
        '    "false-matches": (DecisionCode.MATCH,),\n',
        '    "false-matches": (DecisionCode.MATCH, DecisionCode.REVIEW),\n',
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


MUTANTS = REVIEWS
