"""What is stored, loaded, restored and damaged: the mutants."""

from __future__ import annotations

from tests.mutants.catalogue.places import BACKUP, POWER
from tests.mutants.mutant import Edit, Mutant, mutant

QUEUE = "tests/service/test_queue.py"

DURABILITY = (
    mutant(
        "a-late-connection-stays-open",
        "a connection in use when its database is closed is closed when it is returned",
        "pairmark/service/db.py",
        "            record.close()",
        "            pass",
        "tests/service/test_db.py::test_a_connection_in_use_at_the_close_is_closed_when_returned",
    ),
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
        "pairmark/service/galleries/index/blocks.py",
        "                fsync_path(file)\n",
        "                pass\n",
        f"{POWER}::test_a_kept_gallery_block_is_there_whole_after_a_power_cut",
    ),
    mutant(
        "block-rename-not-flushed",
        "a gallery's block is whole or absent after a power cut",
        "pairmark/service/galleries/index/blocks.py",
        "            part.rename(path)\n            fsync_path(self.path)\n",
        "            part.rename(path)\n",
        f"{POWER}::test_a_kept_gallery_block_is_there_whole_after_a_power_cut",
    ),
    mutant(
        "block-removal-not-flushed",
        "what was erased does not come back with a power cut",
        "pairmark/service/galleries/index/blocks.py",
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
        "exits-near-the-limit-are-tried-again",
        "a job that reaches its memory limit is not tried again",
        "pairmark/service/jobs/worker.py",
        "child.returncode not in (0, FENCED)",
        "child.returncode < 0",
        "tests/service/test_worker.py::test_a_process_that_exits_near_its_limit_ran_out_of_memory",
    ),
    mutant(
        "stuck-near-the-limit",
        "a job that is stuck at its memory limit ends",
        "pairmark/service/jobs/worker.py",
        "idle.seconds(child.pid) > _STUCK_S",
        "idle.seconds(child.pid) < 0.0",
        "tests/service/test_worker.py::test_a_process_that_is_stuck_near_its_limit_ran_out_of_memory",
    ),
    mutant(
        "working-near-the-limit-taken-for-stuck",
        "a job near its memory limit may work for as long as it takes",
        "pairmark/service/jobs/limits.py",
        "if ticks != self._ticks:",
        "if self._ticks < 0:",
        "tests/service/test_worker.py::test_a_process_that_is_stuck_near_its_limit_ran_out_of_memory",
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
        "sorted(candidates - named_blobs(session, candidates))",
        "sorted(candidates)",
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
        "if in_columns or stored_shape != shape or stored.str != dtype or stored.kind not in _KINDS_OF_DTYPE:",
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
        "below=None if marker.below is None else size_of_record(marker.below),",
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
                old=" or stored.kind not in _KINDS_OF_DTYPE:",
                new=":",
            ),
            Edit(
                file="pairmark/models/core/artefact.py",
                old="if file.stat().st_size != start + stored.itemsize * math.prod(shape):",
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
        "if not _ODD <= fpr <= 1 - _ODD:",
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
        'is_signed and calibration.summary.get("imported") != "unsigned"',
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
        "pairmark/service/galleries/items/item_forms.py",
        "isinstance(body, bytes) and len(body) == size for body in bodies]",
        "True for body in bodies]",
        f"{DAMAGE}::test_one_damaged_item_leaves_the_others_searchable",
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
        "pairmark/service/galleries/items/item_forms.py",
        "        finite = np.isfinite(vectors).all(axis=1)\n",
        "        finite = np.ones(len(vectors), dtype=bool)\n",
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
        "pairmark/service/galleries/calibration/thresholds.py",
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
        "entry.calibration.origin, entry.imported)",
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


MUTANTS = (*DURABILITY, *LOADING, *RESTORES, *IMPORTS, *DAMAGED_ROWS, *DAMAGE_KINDS, *UNLIKELY)
