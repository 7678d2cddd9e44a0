"""Records of tables: the mutants."""

from __future__ import annotations

from tests.mutants.mutant import mutant

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
        "long-cells-are-cut",
        "a cell of a table is stored whole or refused",
        "pairmark/service/datasets/tabular.py",
        "longest = MAX_CELL + 1 if self._as_cells else _MAX_TEXT",
        "longest = _MAX_TEXT",
        "tests/service/test_records.py::TestDatasets::test_a_long_cell_is_stored_whole_or_refused",
    ),
    mutant(
        "other-tables-decide",
        "a decision among candidates is about the tables that its calibration is of",
        "pairmark/service/api/candidates.py",
        "    if not await asyncio.to_thread(",
        "    if False and not await asyncio.to_thread(",
        "tests/service/test_candidate_scores.py::test_a_list_that_nothing_was_drawn_from_is_scored_and_not_decided",
    ),
    mutant(
        "unknown-columns-are-dropped",
        "a column that the model does not know is named",
        "pairmark/models/records/schema.py",
        "                    if name not in self._plain_columns:\n",
        "                    if False:\n",
        f"{SCHEMA}::TestRecords::test_what_does_not_fit_is_named",
    ),
    mutant(
        "sides-are-not-alike",
        "swapped records have the same features to the last bit",
        "pairmark/models/records/kernels/strings.py",
        "    reach = max(max(n, m) // 2 - 1, 0)",
        "    reach = max(n // 2 - 1, 0)",
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
        "fit(np.asarray(job.X)[job.parts.rows])",
        "fit(np.asarray(job.X))",
        "tests/service/test_records.py::TestTraining::test_the_encoder_sees_training_rows_alone",
    ),
    mutant(
        "chosen-pairs-join-the-sample",
        "of a list with a random sample, only the sample calibrates",
        "pairmark/models/pairs/splits.py",
        "np.flatnonzero(drawn & (same == is_same))",
        "np.flatnonzero(same == is_same)",
        "tests/service/test_records.py::TestTraining::test_what_is_drawn_calibrates_a_promise_about_the_list",
    ),
    mutant(
        "a-sample-loses-its-contradictions",
        "a pair that was drawn is never left out of its sample",
        "pairmark/service/datasets/pairs.py",
        "    if pairs.population and np.asarray(pairs.drawn_from)[wrong].any():",
        "    if False:",
        "tests/service/test_records.py::TestTraining::test_a_contradiction_among_the_drawn_is_not_left_out",
    ),
    mutant(
        "a-draw-outlives-its-list",
        "pairs drawn from another list calibrate nothing",
        "pairmark/service/datasets/labelling.py",
        "        self.stale = 0 if self._is_sample() else labels.forget_draws()",
        "        self.stale = 0",
        "tests/service/test_records.py::TestLabelling::test_choosing_again_turns_draws_into_choices",
    ),
)


MUTANTS = RECORDS
