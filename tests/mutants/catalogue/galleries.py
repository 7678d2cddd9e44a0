"""Galleries: the mutants."""

from __future__ import annotations

from tests.mutants.mutant import mutant

KEPT = "tests/service/galleries/test_gallery_thresholds.py"

RECORDS = "tests/service/galleries/test_gallery_records.py"

GALLERIES = (
    mutant(
        "common-keys-are-read-first",
        "candidates share the rarest keys with a record",
        "pairmark/models/records/neighbours.py",
        "order = np.lexsort((keys, counts))",
        "order = np.lexsort((keys, -counts))",
        "tests/models/records/test_neighbours.py::test_common_keys_are_passed_over_once_the_budget_is_spent",
    ),
    mutant(
        "erased-records-stay-candidates",
        "an erased record is found by no search",
        "pairmark/service/galleries/index/gallery_view.py",
        "indices, masks = [block.index for block, _ in blocks], [mask for _, mask in blocks]",
        "indices, masks = [block.index for block, _ in blocks], [None for _ in blocks]",
        f"{RECORDS}::test_candidates_follow_writes_and_erasures_and_another_process_sees_the_same",
    ),
    mutant(
        "recall-is-measured-past-the-end",
        "closing a service ends what its galleries do in the background",
        "pairmark/service/galleries/index/candidate_recall.py",
        "        if stop.is_set():\n            return None\n",
        "",
        f"{RECORDS}::test_closing_ends_the_measuring_of_recall_and_waits_for_it",
    ),
    mutant(
        "recall-is-of-the-item-itself",
        "the recall of candidates is that of other items of the subject",
        "pairmark/service/galleries/index/candidate_recall.py",
        "mask[other_rows].any()",
        "mask.any()",
        f"{RECORDS}::test_recall_is_measured_on_items_of_one_subject",
    ),
    mutant(
        "erased-best-items-count-on",
        "a gallery's threshold follows every erasure",
        "pairmark/service/galleries/calibration/probe_updates.py",
        'strangers & ~view.holds(records["at"])',
        'strangers & (records["at"] < 0)',
        f"{KEPT}::test_every_interleaving_scores_as_a_fresh_calibration_does",
    ),
    mutant(
        "new-items-are-not-searched",
        "a gallery's threshold follows every write",
        "pairmark/service/galleries/calibration/probe_updates.py",
        "if view.seq > self._probes.seq:",
        "if view.seq < self._probes.seq:",
        f"{KEPT}::test_every_interleaving_scores_as_a_fresh_calibration_does",
    ),
    mutant(
        "touched-subjects-keep-their-scores",
        "a threshold of whole subjects follows every write and erasure",
        "pairmark/service/galleries/calibration/probe_updates.py",
        "self.base_scores.best_owner[at] in touched",
        "self.base_scores.best_owner[at] is None",
        f"{KEPT}::test_no_probe_keeps_the_score_of_a_subject_that_changed",
    ),
    mutant(
        "uploads-on-a-full-disk-fail-inside",
        "on a full or read-only disk, writes are refused with the cause",
        "pairmark/service/galleries/erasure.py",
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
        "pairmark/service/galleries/calibration/kept_probes.py",
        'enrolled = records["own_items"] > 0',
        'enrolled = records["own_items"] < 0',
        f"{KEPT}::test_every_interleaving_scores_as_a_fresh_calibration_does",
    ),
    mutant(
        "erased-probes-stay-in-memory",
        "an erased subject is in no probe, of any process",
        "pairmark/service/galleries/calibration/thresholds.py",
        "if probes is None or probes.revision != head.revision:",
        "if probes is None:",
        f"{KEPT}::test_every_interleaving_scores_as_a_fresh_calibration_does",
        f"{KEPT}::test_an_erased_subject_is_in_no_probe",
    ),
)


MUTANTS = GALLERIES
