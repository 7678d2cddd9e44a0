"""Pairs and rows of a dataset: which pairs are held out of learning, by whom, and rows as a learner takes them."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from pairmark.models.calibration.fitting import group_names
from pairmark.models.core.arrays import Int64
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.pairs.lists import ListedUnits, joined_groups, listed_units
from pairmark.models.pairs.sampling import HeldOutPairs, held_out_pairs
from pairmark.models.pairs.splits import resolve_protocol
from pairmark.models.records.schema import Records, Schema, schema_of_model
from pairmark.models.records.tables import declaration
from pairmark.models.registry import spec_for
from pairmark.schemas.jobs import ListOrigin
from pairmark.service.datasets.data import LabelledData
from pairmark.service.errors import InvalidInput


def split_codes(data: LabelledData, protocol: str) -> tuple[Int64, str]:
    """What a split keeps together, one code per row, and the resolved protocol.

    Open-set: identities, those that share a group taken together. Closed-set: groups where there are some, else
    the classes (whose rows may be separated).
    """
    assert data.y is not None
    y = np.asarray(data.y)
    resolved = resolve_protocol(protocol, len(data.identities))
    if data.groups is None:
        return y, resolved
    if resolved == "closed-set":
        return np.asarray(data.groups), resolved
    n_identities, n_groups = len(data.identities), len(data.group_names)
    _, group = joined_groups(n_identities + n_groups, y, n_identities + np.asarray(data.groups))
    return group[y].astype(np.int64), resolved


def pairs_among(
    data: LabelledData,
    rows: Int64,
    *,
    protocol: str,
    n_pairs: int,
    random_state: int,
    strangers: Int64 | None = None,
) -> HeldOutPairs:
    """Pairs among some rows of a dataset with identities.

    Rows of one group are dependent. In closed-set use one row of each group is therefore drawn to stand for it; in
    open-set use identities that share a group are one unit.

    Parameters
    ----------
    strangers : numbers of further rows, each of another person, of whom none is among the rows.

    Raises
    ------
    ValueError
        When there are too few identities among the rows.
    """
    assert data.y is not None
    if data.groups is not None and protocol == "closed-set":
        rows = _one_of_each(np.asarray(data.groups)[rows], rows, random_state)
    y = np.asarray(data.y)[rows]
    more = np.empty(0, dtype=np.int64) if strangers is None else strangers
    if more.size and protocol == "closed-set":
        raise ValueError("strangers are of none of the classes; expected open-set use")
    # Codes that nobody else has.
    others = len(data.identities) + len(data.group_names) + np.arange(more.size)
    labeled, y, rows = rows, np.concatenate([y, others]), np.concatenate([rows, more])
    if data.groups is None or protocol == "closed-set":
        pairs = held_out_pairs(y, protocol=protocol, n_pairs=n_pairs, random_state=random_state)
        same, usable = pairs.same, np.ones(len(pairs), dtype=np.bool_)
    else:
        entities = np.concatenate([split_codes(data, protocol)[0][labeled], others])
        pairs = held_out_pairs(entities, protocol=protocol, n_pairs=n_pairs, random_state=random_state)
        same = y[pairs.left] == y[pairs.right]
        # Two people of one group are neither the same nor independently different.
        usable = same | ~pairs.same
    return replace(
        pairs,
        left=rows[pairs.left][usable],
        right=rows[pairs.right][usable],
        same=same[usable],
        units=pairs.units[usable],
        n_strangers=int(more.size),
    )


def stranger_rows(
    strangers: LabelledData, labeled: LabelledData | None, field: str = "evaluation.strangers"
) -> Int64:
    """Numbers of the rows of unlabeled people: one of each label where there are some, and one of equal rows.

    Raises
    ------
    InvalidInput
        When some are rows of ``labeled``, features differ, or a list says which of them are the same people. It names
        the ``field``.
    """
    name = f"{strangers.name}:{strangers.version}"
    if strangers.pairs is not None and strangers.y is None:
        raise InvalidInput(
            f"strangers: {name} lists pairs, of which some are the same; expected rows of which each is another "
            "person, picked without looking at the others",
            field=field,
        )
    owners = np.arange(len(strangers)) if strangers.y is None else np.asarray(strangers.y)
    rows = np.sort(np.unique(owners, return_index=True)[1])
    rows = np.sort(rows[np.unique(strangers.row_hashes[rows], return_index=True)[1]])
    if labeled is None:
        return rows
    if (strangers.schema is None) != (labeled.schema is None) or (
        declaration(strangers.schema) != declaration(labeled.schema)
        if strangers.schema is not None and labeled.schema is not None
        else strangers.n_features != labeled.n_features
    ):
        raise InvalidInput(
            f"strangers: {name} has other columns than {labeled.name}:{labeled.version}; expected the same",
            field=field,
        )
    overlap = np.flatnonzero(np.isin(strangers.row_hashes[rows], labeled.row_hashes))
    if overlap.size:
        raise InvalidInput(
            f"strangers: {overlap.size} rows of {name} are rows of {labeled.name}:{labeled.version}, too (the first is "
            f"{int(rows[overlap[0]])}); expected people who are not in it: leave them out",
            field=field,
        )
    return rows


def stack_rows(first: Any, second: Any) -> Any:
    """Rows of two datasets, one after the other."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.concatenate([first, second])
    return vstack([csr_array(first), csr_array(second)], format="csr")


def groups_of_rows(data: LabelledData, column: str, n_more: int = 0) -> NDArray[np.str_]:
    """The group of each row's person, by a column of the dataset, kept or a feature; of ``n_more`` rows of others none.

    Raises
    ------
    ValueError
        When there is no such column, or a person has several values in it.
    """
    names = list(data.feature_names) if data.schema is None else [field.name for field in data.schema.fields]
    if column in data.kept:
        codes, kept_names = data.kept[column]
        groups = group_names([name or None for name in kept_names])[codes]
    elif column in names:
        values: Any = data.X[:, [names.index(column)]]
        cells = np.asarray(values.toarray() if data.is_sparse else values).ravel()
        groups = group_names([f"{cell:g}" for cell in cells] if data.schema is None else cells)
    else:
        raise ValueError(
            f"groups: there is no column {column[:100]!r}; expected one of {', '.join([*data.kept, *names][:20])}: "
            "one that is no feature is named at upload with `keep`"
        )
    assert data.y is not None
    y, number = np.asarray(data.y), np.unique(groups, return_inverse=True)[1]
    of_person = np.zeros(len(data.identities), dtype=np.int64)
    of_person[y] = number
    mixed = np.unique(y[of_person[y] != number])
    if mixed.size:
        raise ValueError(
            f"groups: {mixed.size} people have several values in {column!r} (first: "
            f"{data.identities[mixed[0]][:50]!r}); expected one for each person"
        )
    return np.concatenate([groups, np.full(n_more, "", dtype=groups.dtype)])


def listed_pairs(
    data: LabelledData,
    numbers: Int64,
    units: ListedUnits,
    *,
    n_pairs: int,
    random_state: int,
    listing: ListOrigin | None = None,
) -> HeldOutPairs:
    """Some pairs of a dataset's own list; beyond ``n_pairs`` a sample that is drawn by pairs of people, whatever they
    have, or of a population's sample by rows.

    Parameters
    ----------
    numbers : which pairs of the list; of a list with a sample, pairs of that sample.
    units : units of the whole list.
    listing : how the list came about; None: unknown, unless it is all pairs.
    """
    assert data.pairs is not None
    population = data.pairs.population
    origin = listing if listing in ("random-people", "random-rows") else None
    if numbers.size > n_pairs:
        rng = np.random.default_rng(random_state)
        order = rng.permutation(numbers.size)
        if population is None:
            if listing == "all" or (
                listing is None and units.lists_all(np.asarray(data.pairs.same), numbers)
            ):
                origin = "random-people"
            order = order[_by_turns(units.units[numbers[order]], rng)]
        numbers = np.sort(numbers[order[:n_pairs]])
    return HeldOutPairs(
        left=np.asarray(data.pairs.left)[numbers],
        right=np.asarray(data.pairs.right)[numbers],
        same=np.asarray(data.pairs.same)[numbers],
        units=units.units[numbers],
        protocol=units.protocol,
        units_assumed=units.assumed,
        listing=origin,
        population=population,
    )


def _by_turns(units: Int64, rng: np.random.Generator) -> Int64:
    """Rows in another order: a row of each two units, these at random, then a further row of those that have one."""
    edges, edge = np.unique(np.sort(units, axis=1), axis=0, return_inverse=True)
    edge = rng.permutation(len(edges))[edge.ravel()]
    by_edge = np.argsort(edge, kind="stable")
    starts = np.flatnonzero(np.diff(edge[by_edge], prepend=-1))
    turn = np.arange(len(edge)) - np.repeat(starts, np.diff(starts, append=len(edge)))
    return by_edge[np.argsort(turn, kind="stable")]


def whole_dataset(
    data: LabelledData,
    *,
    protocol: str,
    n_pairs: int,
    random_state: int,
    listing: ListOrigin | None = None,
    strangers: Int64 | None = None,
) -> HeldOutPairs:
    """Pairs of a dataset that is held out as a whole; ``listing`` as `listed_pairs` takes it, ``strangers`` as
    `pairs_among`.

    Raises
    ------
    InvalidInput
        When the dataset has neither identities nor a list of pairs, or too few of them.
    """
    try:
        if data.pairs is not None:
            units = units_of_list(data, protocol)
            # What was chosen by looking calibrates nothing.
            drawn = data.pairs.drawn_from if data.pairs.population else None
            everything = np.flatnonzero(units.usable if drawn is None else np.asarray(drawn) > 0)
            pairs = listed_pairs(
                data, everything, units, n_pairs=n_pairs, random_state=random_state, listing=listing
            )
        elif data.y is not None:
            resolved = resolve_protocol(protocol, len(data.identities))
            everything = np.arange(len(data), dtype=np.int64)
            pairs = pairs_among(
                data,
                everything,
                protocol=resolved,
                n_pairs=n_pairs,
                random_state=random_state,
                strangers=strangers,
            )
        else:
            raise InvalidInput(
                f"dataset {data.name}:{data.version} has neither a label column nor a list of pairs: upload it with "
                "one",
                field="dataset",
            )
    except ValueError as error:
        raise InvalidInput(f"dataset {data.name}:{data.version}: {error}", field="dataset") from error
    if pairs.same.all():
        raise InvalidInput(f"dataset {data.name}:{data.version} gives no pair that differs", field="dataset")
    return pairs


def units_of_list(data: LabelledData, protocol: str) -> ListedUnits:
    """Sampling units of a dataset's list of pairs: by its label or group column, or units in the list itself.

    Raises
    ------
    ValueError
        When labels, units and pairs contradict each other.
    """
    assert data.pairs is not None
    return listed_units(
        np.asarray(data.pairs.left),
        np.asarray(data.pairs.right),
        np.asarray(data.pairs.same),
        protocol=protocol,
        labels=None if data.y is None else np.asarray(data.y),
        groups=None if data.groups is None else np.asarray(data.groups),
        units=data.pairs.units,
    )


def _one_of_each(groups: Int64, rows: Int64, random_state: int) -> Int64:
    order = np.random.default_rng(random_state).permutation(rows.size)
    first = np.unique(groups[order], return_index=True)[1]
    return np.sort(rows[order[first]])


_MIB = 1024 * 1024


def taken_by(spec: LearnerSpec, X: Any, max_dense_bytes: int) -> Any:
    """The points as the learner takes them: sparse ones are made dense for a learner that needs it.

    Raises
    ------
    InvalidInput
        When the dense form would exceed the bound.
    """
    if isinstance(X, np.ndarray) or spec.accepts_sparse:
        return X
    rows, width = X.shape
    n_bytes = rows * width * 4
    if n_bytes > max_dense_bytes:
        raise InvalidInput(
            f"{spec.kind} takes dense vectors, and {rows} of {width} features need {n_bytes // _MIB} MiB, beyond the "
            f"bound of {max_dense_bytes // _MIB} MiB (PAIRMARK_MAX_DENSE_BYTES): choose a learner that takes "
            "sparse input, use fewer features or rows, or raise the bound",
            field="dataset",
        )
    return np.asarray(X.toarray(), dtype=np.float32)


def rows_for(estimator: Any, data: LabelledData, max_dense_bytes: int) -> Any:
    """The dataset's rows for a fitted learner, or `InvalidInput`: its columns are not those that the model learned."""
    spec, schema = spec_for(estimator), schema_of_model(estimator)
    if schema is None and data.schema is None:
        return taken_by(spec, data.X, max_dense_bytes)
    if data.schema is None and spec.takes_records and int(estimator.n_features_in_) == data.n_features:
        return data.X
    cells = cells_for(schema, data)
    return cells if estimator.encoder_ is None else estimator.encoder_.transform(cells)


def cells_for(schema: Schema | None, data: LabelledData) -> Any:
    """The dataset's records as a schema has them, or its vectors where there is none; else `InvalidInput`."""
    name = f"dataset {data.name}:{data.version}"
    if data.schema is None and schema is not None:
        raise InvalidInput(
            f"{name} holds vectors; the model takes records: "
            + ", ".join(column.name for column in schema.fields[:20]),
            field="dataset",
        )
    if data.schema is not None and schema is None:
        raise InvalidInput(f"{name} is a table of records; the model takes vectors", field="dataset")
    if data.schema is None or schema is None:
        return data.X
    return _align_columns(data.schema, np.asarray(data.X), schema, name)


def _align_columns(own_schema: Schema, cells: Records, schema: Schema, name: str) -> Records:
    """The wanted columns in their order."""
    there = {column.name: (place, column) for place, column in enumerate(own_schema.fields)}
    order = []
    for column in schema.fields:
        place, own_column = there.get(column.name, (-1, None))
        if own_column is None or own_column.type != column.type:
            problem = "is missing" if own_column is None else f"is of type {own_column.type}"
            raise InvalidInput(
                f"{name}: column {column.name!r} {problem}; the model takes it as {column.type}: upload it with "
                f'columns={{"{column.name}": "{column.type}"}}',
                field="dataset",
                column=column.name,
            )
        order.append(place)
    return cells[:, order]
