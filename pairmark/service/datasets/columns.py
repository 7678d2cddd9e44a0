"""Column names, made distinct, and the roles that a request gives them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.datasets.writer import MAX_NAME, name_list
from pairmark.service.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Column numbers by role; `features` is every column without another role, `texts` those of a field of `Block`,
    `index` the unnamed index of a data frame."""

    names: list[str]
    features: list[int]
    texts: dict[str, int]
    ranking: list[int]
    index: set[int]
    warnings: list[str]


class Columns:
    """A header's columns.

    Parameters
    ----------
    header : names as the file has them. Repeated ones become ``name``, ``name.1``, ... and empty ones
        ``unnamed.N`` (N from 0), so that every column can be spoken of.
    index : names of columns that are the index of a data frame, no features unless they are named.
    """

    def __init__(self, header: list[str], index: Collection[str] = ()) -> None:
        self._index = index
        self.titles = [name.strip() for name in header]
        self.warnings: list[str] = []
        names_in_use = {name for name in self.titles if name}
        occurrences: Counter[str] = Counter()
        self.names: list[str] = []
        for number, name in enumerate(self.titles):
            if len(name) > MAX_NAME or "\x00" in name:
                raise InvalidInput(
                    f"the name of column {number + 1} is not plain text of at most {MAX_NAME} characters"
                )
            if not name:
                self.names.append(_free(f"unnamed.{number}", names_in_use))
                continue
            self.names.append(
                name if not occurrences[name] else _free(f"{name}.{occurrences[name]}", names_in_use)
            )
            occurrences[name] += 1
        # Names in a request are many, too.
        self._by_title: defaultdict[str, list[int]] = defaultdict(list)
        for number, name in enumerate(self.titles):
            self._by_title[name].append(number)
        self._by_name = {name: [number] for number, name in enumerate(self.names)}
        self.repeated = {name for name, count in occurrences.items() if count > 1}
        if self.repeated:
            self.warnings.append(
                f"column names repeat, so later ones were numbered (as in {sorted(self.repeated)[0]!r} -> "
                f"{sorted(self.repeated)[0] + '.1'!r}): {name_list(sorted(self.repeated))}"
            )

    def roles(self, request: DatasetRequest) -> Roles:
        """The columns by role; `InvalidInput` when a named one is not there, is ambiguous, or has two roles."""
        texts = {
            f"{role}s": self._single(name, request.label_role if role == "label" else role)
            for role in ("label", "group", "time", "id")
            if (name := getattr(request, role)) is not None
        }
        ranking = [self._single(name, "ranking") for name in request.ranking]
        excluded = {number for name in dict.fromkeys(request.exclude) for number in self._all(name)}
        role_columns = [*texts.values(), *ranking]
        # A group or an id may well be the label too; a ranking is only a ranking.
        uses = Counter(role_columns)
        for number in ranking:
            if uses[number] > 1:
                raise InvalidInput(
                    f"column {self.names[number]!r} has two roles, ranking among them", field="ranking"
                )
        for number in role_columns:
            if number in excluded:
                raise InvalidInput(
                    f"column {self.names[number]!r} is both used and excluded", field="exclude"
                )
        of_frame = set(self._index) - (request.columns or {}).keys()
        index = {n for n, title in enumerate(self.titles) if title in of_frame} - {*excluded, *role_columns}
        excluded |= index
        features = [n for n in range(len(self.names)) if n not in excluded and n not in role_columns]
        warnings = list(self.warnings)
        if index:
            warnings.append(
                f"left out, as the index of the data frame: {name_list([self.names[n] for n in sorted(index)])}"
            )
        nameless = [self.names[n] for n in features if not self.titles[n]]
        if nameless:
            warnings.append(
                f"columns without a name are used as features: {name_list(nameless)}; exclude them if they number rows"
            )
        return Roles(
            names=self.names,
            features=features,
            texts=texts,
            ranking=ranking,
            index=index,
            warnings=warnings,
        )

    def _single(self, name: str, field: str) -> int:
        numbers = self._all(name, field)
        if len(numbers) > 1:
            raise InvalidInput(
                f"{field} {name!r} names {len(numbers)} columns (the name repeats); rename them in the file, or "
                f"name one of {name_list([self.names[number] for number in numbers])}",
                field=field,
            )
        return numbers[0]

    def _all(self, name: str, field: str = "exclude") -> list[int]:
        title = name.strip()
        numbers = self._by_title.get(title) or self._by_name.get(title)
        if not numbers:
            folded = title.casefold()
            meant = [f"; did you mean {each!r}?" for each in self.names if each.casefold() == folded]
            raise InvalidInput(
                f"{field}: there is no column {name[:100]!r}; the file has {name_list(self.names)}{''.join(meant[:1])}",
                field=field,
            )
        return numbers


def _free(name: str, names_in_use: set[str]) -> str:
    free, number = name, 1
    while free in names_in_use:
        free, number = f"{name}.{number}", number + 1
    names_in_use.add(free)
    return free
