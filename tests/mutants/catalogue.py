"""The mutants: what must not break unseen, of access and of the guarantee."""

from typing import NamedTuple

API = "pairmark/service/api"
KEYS = "pairmark/service/keys"
STORE = "pairmark/service/store"
BOUNDS = "pairmark/models/calibration"
PAIRS = "pairmark/models/pairs"


class Mutant(NamedTuple):
    """A guarantee in the docs' words, the room that keeps it, a pattern found once there, and what breaks it."""

    guarantee: str
    room: str
    pattern: str
    replacement: str
    tests: tuple[str, ...]


Row = tuple[str, str, str, str]

WATCHED: dict[str, tuple[Row, ...]] = {
    "tests/service/api/test_key_matrix.py": (
        (
            "exporting a model takes more than reading",
            API,
            r'@needs\((\s*)"train"([^@]*def export_version)\b',
            r'@needs(\1"any"\2',
        ),
        (
            "deleting a version takes admin",
            API,
            r'@needs\((\s*)"admin"([^@]*def delete_version)\b',
            r'@needs(\1"train"\2',
        ),
        (
            "galleries take the scope gallery",
            API,
            r'@needs\((\s*)"gallery"([^@]*def upsert_items)\b',
            r'@needs(\1"any"\2',
        ),
        (
            "scores take the scope score",
            API,
            r'@needs\((\s*)"score"([^@]*def similarity)\b',
            r'@needs(\1"any"\2',
        ),
        (
            "uploading takes the scope train",
            API,
            r'@needs\((\s*)"train"([^@]*def add_dataset)\b',
            r'@needs(\1"any"\2',
        ),
        ("keys take admin", API, r'@needs\((\s*)"admin"([^@]*def create_key)\b', r'@needs(\1"any"\2'),
        (
            "changes in the console's session need its token",
            API,
            r"(if from_elsewhere\(headers\)) or not hmac\.compare_digest\(.*:",
            r"\1:",
        ),
    ),
    "tests/e2e/test_edge.py": (
        (
            "heads and trailers are bounded",
            API,
            r"MAX_HEAD_BYTES: Final = 64 \* 1024\b",
            "MAX_HEAD_BYTES: Final = 1024**3",
        ),
        (
            "each query of a search is a probe",
            API,
            r"(_draw_probes\(call, name), len\(request\.queries\)\)",
            r"\1, 1)",
        ),
        (
            "without a key, pages of other sites are refused",
            API,
            "if origin is not None and origin.* != host:",
            "if False:",
        ),
        (
            "without a key, only this machine's own names are served",
            API,
            r"if not is_loopback\(host\):",
            "if False:",
        ),
        (
            "without a key, only this machine is served",
            API,
            r"client is None or not is_loopback\(client\):",
            "client is None:",
        ),
    ),
    "tests/e2e/test_team_keys.py": (
        (
            "a refusal tells a key that decides no threshold",
            "pairmark/service/runtime",
            r'"alternatives": plain\(error\.alternatives\)\} if shows_scores',
            '"alternatives": plain(error.alternatives)} if True',
        ),
        (
            "a key that decides searches at a rate, or the order tells which score is higher",
            "pairmark/service/scoring",
            r"if rate is None:\n        # The order",
            "if rate is None:\n        return False\n        # The order",
        ),
        (
            "a key that only decides sends so many pairs a minute",
            API,
            r'"decisions", limit, "pairs", count=n',
            '"decisions", 0.0, "pairs", count=n',
        ),
    ),
    "tests/service/test_keys.py": (
        (
            "a key does only what its scopes say",
            KEYS,
            r"if self\.admin or scope in self\._everything:",
            "if True:",
        ),
        ("a grant covers no more than its level", KEYS, r"and grant\.covers\(level\)", ""),
        ("a key of one resource opens no other", KEYS, r"or grant\.resource == resource", "or True"),
        (
            "a revoked key is useless",
            KEYS,
            r"_IN_ORDER\.where\(ApiKey\.revoked_at\.is_\(None\)\)",
            "_IN_ORDER",
        ),
        (
            "an expired key is useless",
            KEYS,
            r"return None if candidate\.expired else candidate",
            "return candidate",
        ),
        ("only hashes of keys are stored", KEYS, r"name=name,(\s+sha256=_sha256\(key\))", r"name=key,\1"),
        (
            "any change to a key is refused",
            KEYS,
            r"if hmac\.compare_digest\(presented, .*\) and candidate is not None:",
            "if candidate is not None:",
        ),
    ),
    "tests/e2e/test_odd_ids.py": (
        (
            "a key for items deletes no gallery",
            API,
            r'"items" if self\.needs\.of_items else "all"',
            '"items"',
        ),
    ),
    "tests/service/test_console.py": (
        (
            "a sign-in leads to pages of this service only",
            "pairmark/service/console",
            r"return path if path and re\.fullmatch\(.*$",
            'return path or "/"',
        ),
    ),
    "tests/service/test_tenants.py": (
        (
            "a key of the tenant acme sees nothing of acme2",
            KEYS,
            r'prefix="" if tenant is None else f"\{tenant\}/"',
            'prefix="" if tenant is None else tenant',
        ),
        ("what a key may not see is 404", API, "if part in path:", "if False:"),
        (
            "a calibration is seen by who may see its model",
            "pairmark/service/runtime",
            r"if names\.everything:",
            "if True:",
        ),
        (
            "an Idempotency-Key belongs to keys that see the same names",
            "pairmark/service/training",
            r"if names\.everything:",
            "if True:",
        ),
        (
            "a tenant sees its part of the audit log",
            "pairmark/service/audit",
            "if tenant is not None:",
            "if False:",
        ),
        (
            "short requests of other owners come between those of one",
            "pairmark/service/scheduling.py",
            r"if begun < BEGUN_AT_ONCE:",
            "if True:",
        ),
    ),
    "tests/service/test_webhooks.py": (
        (
            "webhooks are sent to hosts of the setting only",
            "pairmark/service/webhooks",
            r"if odd or not \(",
            "if odd or not host or not (True or ",
        ),
        (
            "webhooks follow no redirect",
            "pairmark/service/webhooks",
            "follow_redirects=False",
            "follow_redirects=True",
        ),
    ),
    "tests/e2e/test_reviews_served.py": (
        ("a key sees reviews of models that it may train", API, r'check_may\(http, "train", model\)', "pass"),
        (
            "pairs that were chosen by looking at them calibrate nothing",
            STORE,
            r"if self\.datasets\.get\(main\)\.chosen:",
            "if False:",
        ),
    ),
    "tests/service/test_db.py": (
        (
            "deleted cells are overwritten in SQLite's file",
            "pairmark/service/db.py",
            "secure_delete=ON",
            "secure_delete=OFF",
        ),
    ),
    "tests/service/test_operations.py": (
        (
            "a restore revokes the keys of the backup unless they are kept",
            "pairmark/service/operations.py",
            'if keys == "drop":',
            "if False:",
        ),
    ),
    "tests/service/test_transfer.py": (
        (
            "a calibration that came unsigned guarantees nothing",
            STORE,
            r"calibration = calibration\.without_guarantee\(\)",
            "pass",
        ),
        (
            "where an import key is set, a file without a signature is refused",
            STORE,
            r"if signature is None:(?=\n\s+raise)",
            "if signature is None:\n        return False\n    if False:",
        ),
        (
            "an import is refused unless every file is as it was exported",
            STORE,
            r" != export\.files\[entry\]:",
            " is None:",
        ),
    ),
    "tests/models/test_states.py": (
        (
            "loading checks the sha256 of every array",
            "pairmark/models/core",
            r"if .*sha256.* != .*:(?=\n\s+raise)",
            "if False:",
        ),
    ),
    "tests/service/runtime/test_catalogue.py": (
        (
            "once a key exists every request needs one",
            KEYS,
            r"(exists\(\)\.select_from\(ApiKey\))",
            r"\1.where(ApiKey.revoked_at.is_(None))",
        ),
        (
            "names that were begun to be read before a change answer nobody after it",
            "pairmark/service/runtime",
            r"if self\._began_at <= self\._changed_at:",
            "if False:",
        ),
        (
            "match is score > threshold, strictly",
            "pairmark/service/scoring",
            r"\(scored\.scores > upper\)",
            "(scored.scores >= upper)",
        ),
        (
            "no client by itself takes the others' guarantee away",
            "pairmark/service/runtime",
            r"if self\.clients\.count\(client\) >",
            "if False and self.clients.count(client) >",
        ),
    ),
    "tests/models/calibration/test_cells.py": (
        (
            "pairs that lack columns are decided by calibration pairs without them",
            BOUNDS,
            r"records\.scored_without\(columns, scorer\)",
            "records.scored_without(np.zeros_like(columns), scorer)",
        ),
        (
            "calibration pairs that lack just these columns have a say",
            BOUNDS,
            r"PartialCalibration\(whole, natural\)",
            "PartialCalibration(whole, None)",
        ),
        (
            "a pair is rounded up to a choice that leaves out all that it lacks",
            BOUNDS,
            r"np\.all\(ways \| ~columns, axis=\(2, 3\)\)",
            "np.any(ways | ~columns, axis=(2, 3))",
        ),
        (
            "a pair is rounded up to the choice that costs least",
            BOUNDS,
            r"np\.argsort\(-self\.tprs, ",
            "np.argsort(self.tprs, ",
        ),
        (
            "groups are held to the rate without columns, too",
            BOUNDS,
            r"units, groups=calibration\.groups_of\(units\), ",
            "units, ",
        ),
        (
            "the threshold is the greatest of all groups",
            BOUNDS,
            r"max\(threshold, within\[0\]\)",
            "threshold",
        ),
        (
            "groups share the chance of failure",
            BOUNDS,
            r"level = 1 - \(1 - confidence\) / \(n \+ 1\)",
            "level = confidence",
        ),
    ),
    "tests/models/calibration/test_inputs.py": (
        (
            "an embedder that collapses is told by how its rows lie towards each other",
            "pairmark/models/calibration/inputs.py",
            r"share = \(near < self\._nearest\)",
            "share = (near < 0)",
        ),
        (
            "of a person's rows few count",
            "pairmark/models/calibration/inputs.py",
            r"bool\(self\._window\.count\(person\) <= share\)",
            "True",
        ),
        (
            "a row outside any range is unlike",
            "pairmark/models/calibration",
            r"if not ranges\[0, k\] <= seen",
            "if not seen",
        ),
    ),
    "tests/service/test_label_roles.py": (
        (
            "each row of a stranger is another person",
            "pairmark/service/datasets/held_out.py",
            r"len\(data\.group_names\) \+ np\.arange\(more\.size\)",
            "len(data.group_names) + np.arange(more.size) // 2",
        ),
        (
            "strangers did not train",
            "pairmark/service/store",
            r'self\.refuse_overlap\(row, name, others, "open-set"\)',
            "pass",
        ),
        (
            "no learner sees a column that is kept for groups",
            "pairmark/service/datasets/tabular.py",
            r" - \{\*used, \*kept\.values\(\)\}",
            " - {*used}",
        ),
        (
            "few labels that nobody said to be classes are asked about",
            "pairmark/service/datasets",
            '("open-set" if n_labels >= OPEN_SET_FROM else) None',
            r'\1 "closed-set"',
        ),
        (
            "a guarantee about few people holds for new ones",
            "pairmark/service/datasets",
            r'\{"identity": "open-set"',
            '{"identity": "closed-set"',
        ),
    ),
    "tests/models/test_bounds.py": (
        ("no threshold is one rank too low", BOUNDS, r"return n - 1 - bisect_left", "return n - bisect_left"),
        (
            "a bound of independent rows is Clopper and Pearson's",
            BOUNDS,
            r"order_upper\(rank, self\.n, confidence\)",
            "order_upper(max(rank - 1, 0), self.n, confidence)",
        ),
        (
            "a sample of a population is bounded for every number of negative pairs in it",
            BOUNDS,
            r"math\.floor\(p \* population\) \+ 2",
            "math.floor(p * n) + 2",
        ),
    ),
    "tests/models/test_operating_points.py": (
        (
            "what the calibration data cannot support is refused, never extrapolated",
            BOUNDS,
            r"key=test\) if test\(0\) else None",
            "key=test)",
        ),
        (
            "a guarantee for candidates is the band's at its share",
            BOUNDS,
            r"return 1 / \(number \* \(number \+ 1\)\)",
            "return 1.0",
        ),
        (
            "people with many samples do not decide the rate",
            PAIRS,
            r"share = weight / \(rows\[edge\] \* max",
            "share = weight / (1 * max",
        ),
    ),
    "tests/models/test_promise_edges.py": (
        (
            "names play no part in a threshold",
            "pairmark/models/core/inputs.py",
            r"order = np\.argsort\(first\)(?=\n    return np)",
            "order = np.arange(first.size)",
        ),
        (
            "complete parts of a list are cells only where Pairmark drew them",
            BOUNDS,
            r'None: "unknown",',
            'None: "drawn",',
        ),
        (
            "pairs of samples that were drawn promise nothing of people",
            BOUNDS,
            r'"random-rows": "random-rows",\n        \}\n        return',
            "}\n        return",
        ),
        (
            "nothing is guaranteed where nobody says whom pairs are of",
            BOUNDS,
            r'return "independent" if self\.independent else "unnamed"',
            'return "independent"',
        ),
        (
            "the smallest rate of a fixed population is one that is answered",
            BOUNDS,
            r"0\.5 / self\.population",
            "0.0",
        ),
        (
            "under a simultaneous guarantee all false negative rates hold at once",
            BOUNDS,
            r"if simultaneous:(?=\n\s+sure)",
            "if False:",
        ),
    ),
    "tests/models/test_matching_product.py": (
        (
            "which matchings of a list are averaged is blind to scores",
            BOUNDS,
            r"by_unit = np\.lexsort\(\(others, (edges\.T\.ravel\(\))\)\)",
            r'by_unit = np.argsort(\1, kind="stable")',
        ),
        (
            "which row stands for a person is blind to scores",
            PAIRS,
            r"np\.argsort\(same\.row\)\[",
            "np.arange(len(same))[",
        ),
        (
            "the product bound counts the pairs of a matching",
            "pairmark/models/calibration/finite_sample.py",
            r"self\.n \* (math\.log1p\(-shrink \* fpr\)), shrink\)",
            r"1.05 * self.n * \1, shrink)",
        ),
        (
            "which finite-sample bound answers depends on sizes alone",
            BOUNDS,
            r"\(graph\.row_at\.size \+ graph\.same\.shape\[0\]\)",
            "graph.row_at.size",
        ),
        (
            "the average over splits answers, whichever split is the best",
            "pairmark/models/calibration/finite_sample.py",
            r"np\.logaddexp\.reduce\(logs\)( >= limit\)\n\n        return admits)",
            r"max(logs) + math.log(len(logs))\1",
        ),
    ),
    "tests/models/test_splits.py": (
        (
            "pairs that share a person are not counted as independent",
            PAIRS,
            r"n_edges // \(largest \+ 1\)",
            "n_edges // largest",
        ),
        (
            "few pairs of a list cross between folds",
            "pairmark/models/pairs/lists.py",
            r"block = list_blocks\(units\[usable\], n_units\)",
            "block = np.arange(n_units)",
        ),
        (
            "a fold's model learns from nobody whom it scores",
            "pairmark/models/pairs/lists.py",
            r"\(self\.fold\[units\] != number\)\.all",
            "(self.fold[units] != number).any",
        ),
        (
            "nobody who was trained on calibrates",
            PAIRS,
            r"(parts = \[np\.flatnonzero\(part_of == part\) for part in range\(3\)\]\n)",
            r"\1    parts[1] = np.flatnonzero(part_of <= 1)\n",
        ),
        (
            "no sampling unit is in two parts of an explicit list of pairs",
            PAIRS,
            r"is_uncrossed = usable & \(.*\)\n",
            "is_uncrossed = usable\n",
        ),
    ),
    "tests/models/test_review_evidence.py": (
        (
            "a review's bound holds at every look",
            "pairmark/models/reviews",
            r"math\.log1p\(-confidence\) \+ self\.log_numerator\(at_most\)",
            "0.5 * math.log1p(-confidence) + self.log_numerator(at_most)",
        ),
    ),
    "tests/service/test_trainer.py": (
        (
            "a job learns from its training part alone",
            "pairmark/service/training",
            r"estimator\.fit\(job\.X\[rows\], np\.asarray\(job\.data\.y\)\[rows\], \*\*",
            "estimator.fit(job.X, np.asarray(job.data.y), **",
        ),
    ),
    "tests/service/test_store.py": (
        (
            "calibrating on rows that were trained on is refused",
            STORE,
            r"if overlap\.rows:(?=\n\s+raise)",
            "if False:",
        ),
        (
            "the ledger gives a number once",
            STORE,
            r"number=\(session\.scalar\(last\) or 0\) \+ 1",
            "number=1",
        ),
    ),
    "tests/service/test_links.py": (
        (
            "words that chance brings link nothing",
            "pairmark/models/linking",
            r"links\.is_link\[links\.score < least\] = False",
            "pass",
        ),
        (
            "no table that is read is written over by its links",
            "pairmark/service/cli",
            r"if path\.resolve\(\) in taken:",
            "if False:",
        ),
        (
            "standard output of a command is one JSON document",
            "pairmark/service/links",
            r'connection\.execute\("SET enable_progress_bar = false"\)',
            "pass",
        ),
        (
            "rows that are twice in a table of few columns are duplicates",
            "pairmark/models/linking",
            r"max\(u\[3\], equal\[0\]\)",
            "u[3]",
        ),
    ),
    "tests/service/test_links_served.py": (
        (
            "one thing is said of the share of false links",
            "pairmark/schemas",
            "return value is None",
            "return False",
        ),
    ),
    "tests/service/test_link_tables.py": (
        (
            "rows that repeat the header are no records",
            "pairmark/service/links",
            r"= NULL WHERE \{is_header\}",
            "= NULL WHERE false",
        ),
    ),
    "tests/models/test_search.py": (
        (
            "a search leaves what its caller wrote to a mapped gallery",
            "pairmark/models/core",
            r'if array is not None and mode == "r":',
            "if array is not None:",
        ),
        (
            "a search in codes leaves nothing out",
            "pairmark/models/core",
            r"form\.slack \+ residual \+",
            "form.slack +",
        ),
        (
            "queries whose sums of codes could overflow score every row",
            "pairmark/models/core",
            r"if not norms\[i\] \* longest_code < _HUGE",
            "if False",
        ),
    ),
    "tests/service/api/test_routes.py": (
        (
            "shared buckets of rates use every set",
            "pairmark/service",
            r"\(mark >> 1\) % SETS",
            "mark % SETS",
        ),
    ),
    "tests/models/records/test_record_models.py": (
        (
            "a model from a folder has its columns in the order given",
            "pairmark/models/core",
            r"json\.dumps\(manifest, indent=1, allow_nan=False\)",
            "json.dumps(manifest, indent=1, allow_nan=False, sort_keys=True)",
        ),
    ),
    "tests/service/galleries/test_gallery_views.py": (
        (
            "a full gallery takes rows that replace others",
            "pairmark/service/galleries",
            r"n -= len\(repository\.seqs_of\(session, state\.id, rows\.ids\)\)",
            "pass",
        ),
    ),
    "tests/models/linking/test_link_classes.py": (
        (
            "an initial is the person, and no relative",
            "pairmark/models/linking",
            r"column\.role not in PERSON for column in columns",
            "True for column in columns",
        ),
        (
            "twins are two people",
            "pairmark/models/linking",
            r'if kind\.name == "twins" and \(',
            'if kind.name == "twins" or (',
        ),
        (
            "names in each other's columns are close",
            "pairmark/models/linking",
            r"\*\(\[\(names\[0\], names\[1\], True\)\] if is_one_of_each else \[\]\),",
            "",
        ),
    ),
    "tests/service/api/test_bodies.py": (
        (
            "long bodies of one owner are read one at a time",
            "pairmark/service",
            r"self\.reading = OwnerTurns\(1\)",
            "self.reading = OwnerTurns(2)",
        ),
    ),
    "tests/e2e/test_scoring.py": (
        (
            "scores made elsewhere set no threshold for vectors",
            "pairmark/service/runtime",
            r"if served is not None and owner != served",
            "if served is not None and owner is not None and owner != served",
        ),
    ),
}
"""By the file of tests that must notice: a guarantee in the docs' words, its room, a pattern, the break."""
MUTANTS = tuple(Mutant(*row, (tests,)) for tests, rows in WATCHED.items() for row in rows)
