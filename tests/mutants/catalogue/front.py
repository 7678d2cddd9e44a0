"""What people meet first: the mutants."""

from __future__ import annotations

from tests.mutants.mutant import mutant

FRONT = (
    mutant(
        "slow-starts-are-replaced",
        "a serving process that starts slowly is left to start",
        "pairmark/service/cli/listening.py",
        "        timeout_worker_healthcheck=SILENCE_S,\n",
        "",
        "tests/e2e/test_serve.py::test_processes_that_start_slowly_are_not_replaced",
    ),
    mutant(
        "answers-have-no-example",
        "the reference shows each answer by an example",
        "pairmark/service/api/examples.py",
        """                content["examples"] = {
                    component: {"$ref": f"#/components/examples/{component}"} for component in examples
                }
""",
        "",
        "tests/service/api/test_body_examples.py::test_each_answer_in_json_has_an_example_that_fits_its_schema",
    ),
    mutant(
        "an-example-that-the-service-refuses",
        "each request is shown by an example that the service takes",
        "pairmark/service/api/document_values.py",
        '"right_unit": ["ada", "bob", "eve"], "listing": "random"}',
        '"right_unit": ["ada", "bob", "eve"], "listing": "some"}',
        "tests/service/api/test_body_examples.py::test_each_body_in_json_has_an_example_that_the_service_takes",
    ),
    mutant(
        "a-count-of-the-rows-is-a-feature",
        "an upload warns of features that number the rows",
        "pairmark/service/datasets/reader.py",
        "        dataset.warnings += _numbering_warnings(out, dataset.feature_names or [])\n",
        "        pass\n",
        "tests/service/test_inspecting.py::test_a_column_that_numbers_the_rows_is_no_feature_in_silence",
    ),
    mutant(
        "a-count-of-the-rows-is-compared",
        "a table's column that numbers the rows is their id",
        "pairmark/models/records/inference.py",
        "    if not has_id and cells.unique and set(cells.steps) == {1.0}:\n",
        "    if False:\n",
        "tests/models/records/test_schema.py::TestInference::test_a_column_that_numbers_the_rows_is_their_id",
    ),
    mutant(
        "columns-of-numbers-are-left-out-in-silence",
        "a preview says which cells keep a column from being a feature",
        "pairmark/service/datasets/inspecting.py",
        "    if not repairable:\n",
        "    if True:\n",
        "tests/service/test_inspecting.py"
        "::test_columns_that_few_cells_keep_from_being_features_are_not_left_out_in_silence",
        "tests/service/test_inspecting.py::test_decimal_commas_are_named",
    ),
    mutant(
        "a-target-out-of-reach-is-trained-in-silence",
        "a training says first what it cannot promise",
        "pairmark/service/cli/training.py",
        """        if submitted["message"]:
            output.say(submitted["message"])
""",
        "",
        "tests/service/test_cli.py::test_a_target_out_of_reach_is_said_before_the_training",
    ),
    mutant(
        "checks-load-the-learners",
        "commands that check a file do not wait for the learners to load",
        "pairmark/models/__init__.py",
        "if TYPE_CHECKING:\n",
        "if True:\n",
        "tests/service/test_quick_commands.py::test_checks_load_no_learner",
    ),
    mutant(
        "objects-in-answers-are-left-as-json",
        "the client's records have every member of an answer, objects as records too",
        "pairmark/client/results.py",
        "        return lambda value: _record_of(hint).of(value)\n",
        "        return None\n",
        "tests/wire/test_declarations.py::test_members_that_are_objects_are_records_too",
    ),
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
        "        _check_before_sending(name, file, {**options, **vars(contents)})\n",
        "",
        "tests/service/test_cli.py::test_what_would_be_refused_is_refused_before_the_file_is_sent",
    ),
    mutant(
        "ways-out-of-a-refusal-are-left-out",
        "a refusal says the same ways out over HTTP and on the command line",
        "pairmark/service/runtime/points.py",
        "ways=self._ways(fpr, error, entry) if request.fnr is None else [],",
        "ways=[],",
        "tests/e2e/test_deciding_commands.py"
        "::test_a_refusal_says_the_same_ways_out_over_http_and_on_the_command_line",
    ),
    mutant(
        "only-the-first-trouble-is-told",
        "a messy table is told all its troubles at once",
        "pairmark/service/datasets/troubles.py",
        "    return troubles[:_MOST]\n",
        "    return troubles[:1]\n",
        "tests/service/test_inspecting.py::test_a_messy_table_is_told_all_its_troubles_at_once",
    ),
    mutant(
        "the-client-fills-in-what-an-answer-lacks",
        "a member that an answer lacks is None in the client, no default of the service",
        "pairmark/client/results.py",
        "else value.get(name)\n            for name, make",
        "else value.get(name, [])\n            for name, make",
        "tests/wire/test_declarations.py"
        "::test_a_member_that_an_answer_lacks_is_none_and_no_default_of_the_service",
    ),
    mutant(
        "objects-in-answers-stay-plain",
        "members of an answer that are objects are records too",
        "pairmark/client/results.py",
        "cls._makers = {name: _maker(hint) for name, hint in members.items()}",
        "cls._makers = dict.fromkeys(members)",
        "tests/wire/test_declarations.py::test_members_that_are_objects_are_records_too",
    ),
    mutant(
        "contradictory-pairs-are-kept",
        "pairs that contradict others are left out where that was asked for",
        "pairmark/service/datasets/pairs.py",
        "    keep[wrong] = False\n",
        "",
        "tests/service/test_cli.py::test_an_upload_of_pairs_counts_them_and_lists_contradictions",
    ),
    mutant(
        "options-that-were-not-given-are-sent",
        "a command sends what was given, so that the service's defaults hold",
        "pairmark/service/cli/options.py",
        'return source is not None and source.name != "DEFAULT"',
        "return source is not None",
        "tests/wire/test_requests.py::test_a_command_gets_what_was_given_and_defaults_beside_it",
    ),
    mutant(
        "limits-of-requests-are-not-checked",
        "what lies outside the limits that a request declares is refused, and the OpenAPI document states them",
        "pairmark/wire/base.py",
        "        limited.update(\n",
        "        dict().update(\n",
        "tests/golden/test_surface.py::test_what_users_see_is_what_is_written_down",
    ),
    mutant(
        "the-client-lacks-a-member-of-a-request",
        "the client's methods take what requests hold",
        "pairmark/client/galleries.py",
        '        background: bool = False,\n        **options: Any,\n    ) -> Answer:\n        """Calibrate',
        '        background: bool = False,\n    ) -> Answer:\n        """Calibrate',
        "tests/wire/test_requests.py::test_the_client_takes_what_requests_hold",
    ),
)


MUTANTS = FRONT
