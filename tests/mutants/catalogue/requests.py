"""What a request may reach and cost: the mutants."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, mutant

CONFINED = "tests/service/test_confined.py"
CRAFTED = "tests/e2e/test_crafted_uploads.py"
ENDLESS = "tests/e2e/test_endless_requests.py"
LIMITS = "tests/e2e/test_limits.py"
HEADS = "tests/e2e/test_http_heads.py"
CONNECTIONS = "pairmark/service/api/connections.py"
SHARED = "tests/service/api/test_shared_connections.py"

REQUESTS = (
    mutant(
        "one-process-takes-all-connections",
        "connections that a client opens at once are shared among the processes",
        CONNECTIONS,
        "time.sleep(YIELD_S)",
        "time.sleep(0 * YIELD_S)",
        f"{SHARED}::test_one_of_several_processes_yields_after_each_of_its_first_connections",
    ),
    mutant(
        "processes-yield-for-ever",
        "a process waits for others a bounded part of its time",
        CONNECTIONS,
        "self._yields -= 1",
        "self._yields -= 0",
        f"{SHARED}::test_one_of_several_processes_yields_after_each_of_its_first_connections",
    ),
    mutant(
        "heads-wait-for-a-body",
        "an answer without a body goes out",
        CONNECTIONS,
        "self._call_soon(self.flush)",
        "self._call_soon(self.is_closing)",
        f"{ENDLESS}::test_an_answer_without_a_body_is_not_waited_for",
    ),
    mutant(
        "closing-forgets-a-head",
        "an answer without a body goes out before its connection ends",
        CONNECTIONS,
        """        self.flush()
        connection = self._connection""",
        "        connection = self._connection",
        f"{ENDLESS}::test_an_answer_without_a_body_is_not_waited_for",
    ),
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
        "if self.n_bytes > MAX_HEAD_BYTES:",
        "if self.n_bytes < 0:",
        f"{ENDLESS}::test_what_never_ends_is_refused_in_words",
    ),
    mutant(
        "what-follows-a-body-is-one-piece",
        "what comes at once is looked at in slices, but for bodies of declared length",
        CONNECTIONS,
        "size = max(SLICE_BYTES, self._missing())",
        "size = len(unparsed)",
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
        "if self.n_bytes > LINGER_BYTES:",
        "if self.n_bytes < 0:",
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
        "    if not limits and not shares:",
        "    if limits or not shares:",
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
        "pairmark/service/galleries/items/rows.py",
        "    if _RELATIVE.search(text):",
        "    if not text:",
        REFUSED_IDS,
    ),
    mutant(
        "ids-checked-together-are-paths",
        "an id with a segment `..` is refused among plain ones",
        "pairmark/service/galleries/items/rows.py",
        'and not ("." in joined and',
        'and not ("." not in joined and',
        f"{ROWS}::test_rows_checked_together_are_those_checked_one_by_one",
    ),
    mutant(
        "backslashes-are-no-separators",
        "a segment ends at a backslash too",
        "pairmark/service/galleries/items/rows.py",
        r"(?:^|[/\\])\.\.?(?:[/\\]|$)",
        r"(?:^|/)\.\.?(?:/|$)",
        REFUSED_IDS,
    ),
    mutant(
        "ids-hold-c1-controls",
        "control characters beyond ASCII are refused",
        "pairmark/service/names.py",
        r"\x7f-\x9f",
        r"\x7f",
        REFUSED_IDS,
    ),
    mutant(
        "ids-turn-text-round",
        "characters that set the direction of text are refused",
        "pairmark/service/names.py",
        r"\u202a-\u202e",
        r"\u202a",
        REFUSED_IDS,
    ),
    mutant(
        "ids-are-bounded-in-characters",
        "an id has at most 512 bytes",
        "pairmark/service/galleries/items/rows.py",
        "if not 0 < size <= MAX_ID_BYTES:",
        "if not 0 < len(text) <= MAX_ID_BYTES:",
        REFUSED_IDS,
    ),
    mutant(
        "ids-are-measured-before-nfc",
        "the bound is of the text that is stored",
        "pairmark/service/galleries/items/rows.py",
        '        text = normalize("NFC", text)\n        size = len(text.encode())',
        '        text = normalize("NFC", text)',
        REFUSED_IDS,
        STORED_IDS,
    ),
    mutant(
        "ids-are-stored-as-they-come",
        "text is stored in NFC",
        "pairmark/service/galleries/items/rows.py",
        '        text = normalize("NFC", text)',
        "        pass",
        STORED_IDS,
    ),
    mutant(
        "older-spellings-are-not-looked-for",
        "items from before NFC are read, replaced and erased by any spelling of their id",
        "pairmark/service/galleries/items/rows.py",
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
        "pairmark/client/encoding.py",
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
        "            if self._has_left():\n",
        "            if False:\n",
        f"{CONFINED}::test_reading_ends_when_nobody_waits_for_it",
        f"{CRAFTED}::test_reading_stops_when_its_client_leaves",
    ),
    mutant(
        "client-that-leaves-is-not-seen",
        "reading an upload ends when its client leaves",
        "pairmark/service/api/leaving.py",
        "            pass\n        leaving.set()\n",
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
        "        if size > limits.unpacked_bytes:\n",
        "        if size > 10 * limits.unpacked_bytes:\n",
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
        "        if table_bytes > self._limits.stored_bytes:\n",
        "        if table_bytes > 10 * self._limits.stored_bytes:\n",
        f"{CRAFTED}::test_a_packed_file_is_refused_by_what_it_becomes",
    ),
    mutant(
        "whole-texts-leave-duckdb",
        "texts of a table are cut before they become Python's",
        "pairmark/service/datasets/tabular.py",
        'return f"left(CAST({cell} AS VARCHAR), {longest})"',
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
        "pairmark/service/galleries/items/imports.py",
        'return f"left(CAST({_quoted(name)} AS VARCHAR), {longest + 1})"',
        'return f"CAST({_quoted(name)} AS VARCHAR)"',
        f"{CONFINED}::test_rows_of_a_gallery_are_bounded_before_they_are_python_s",
    ),
    mutant(
        "whole-lists-leave-duckdb",
        "vectors of another width are not read by a bulk import",
        "pairmark/service/galleries/items/imports.py",
        'f"CASE WHEN len({cell}) = {dimension} THEN CAST({cell} AS FLOAT[]) END"',
        'f"CAST({cell} AS FLOAT[])"',
        f"{CONFINED}::test_rows_of_a_gallery_are_bounded_before_they_are_python_s",
    ),
    mutant(
        "whole-facts-leave-duckdb",
        "lists in metadata of a bulk import are refused before they become Python's",
        "pairmark/service/galleries/items/imports.py",
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

ITEMS_KEY = f"{ODD_IDS}::test_a_key_for_items_deletes_no_gallery_whoever_resolves_its_addresses"

RESOLVED = (
    mutant(
        "a-slash-at-the-end-is-nothing",
        "an address with a slash at its end, as a resolved `..` leaves it, is another address",
        "pairmark/service/api/routing.py",
        "        route_match = self._exact.get((method, path))\n",
        '        path = path.rstrip("/") or path\n        route_match = self._exact.get((method, path))\n',
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
        "eight-digits-beyond-the-body",
        "nothing behind a body is taken for part of it",
        JSON_ROWS,
        "    while at + 8 <= n:",
        "    while at <= n:",
        f"{JSON_ROWS_TESTS}::test_nothing_behind_a_body_is_read",
    ),
    mutant(
        "a-key-twice",
        "a body in which a key stands twice is refused or read as JSON parsers read it",
        JSON_ROWS,
        "index == NOT_PLAIN or places[index, 0] >= 0 or _byte",
        "index == NOT_PLAIN or _byte",
        f"{JSON_ROWS_TESTS}::test_other_bodies_are_left_to_the_complete_parser",
    ),
    mutant(
        "ragged-rows-are-read",
        "rows of unlike lengths are refused, not cut anew",
        JSON_ROWS,
        "if at == NOT_PLAIN or (n_rows and end - start != width):",
        "if at == NOT_PLAIN:",
        f"{JSON_ROWS_TESTS}::test_other_bodies_are_left_to_the_complete_parser",
    ),
)


MUTANTS = (*REQUESTS, *PARSING, *IDS, *RESOLVED, *RESPONSES, *UPLOADS)
