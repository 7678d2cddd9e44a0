"""Model cards: a version in sentences, made from what is known of it."""

from __future__ import annotations

from typing import Any

from pairmark.models.calibration.promises import askable
from pairmark.schemas.evidence import Evidence
from pairmark.schemas.models import ModelCard, PromisedRate, VersionOut

_USES = {
    "similarity": "scoring how alike two inputs are",
    "match": "deciding whether two inputs are the same at a false positive rate of your choice",
    "search": "searching a gallery for the most similar items",
    "embed": "turning inputs into vectors",
    "classify": "naming the class of an input",
    "rank-labels": "ordering labels for an input",
}


def model_card(version: VersionOut, promises: list[PromisedRate], evidence: Evidence | None) -> ModelCard:
    """The sections of Mitchell et al. (2019), as far as the store knows them; nothing is invented."""
    lineage, facts = version.lineage, version.facts
    details = [
        f"{version.model}, version {version.version}: {version.title or version.kind}.",
        f"Registered {version.created_at}, by job {lineage.job}, code {lineage.code_version}."
        if lineage.job
        else f"Registered {version.created_at}, code {lineage.code_version}.",
        f"It takes vectors of {version.n_features} features.",
        f"The artefact's sha256 is {lineage.artefact_sha256}.",
    ]
    uses = [_USES[name] for name in version.capabilities if name in _USES]
    intended = [f"Made for {_enumeration(uses)}."] if uses else []
    intended.append(
        "It knows what its training data show: use it for people and recordings of the same kind, and measure it again "
        "where they differ."
    )
    return ModelCard(
        details=details,
        intended_use=intended,
        training_data=_training(version),
        evaluation_data=_evaluation(facts, version.metrics),
        factors=_factors(version.metrics),
        limits=_limits(version, promises, evidence),
    )


def _training(version: VersionOut) -> list[str]:
    lineage, parts = version.lineage, version.facts.get("parts") or {}
    sentences = []
    if lineage.dataset is None:
        sentences.append("Where its training data came from is not known here.")
    else:
        sentences.append(f"Dataset {lineage.dataset}, sha256 {lineage.dataset_sha256}.")
    sizes = [f"{count:,} {name.replace('_', ' ')}" for name, count in parts.items() if isinstance(count, int)]
    if sizes:
        sentences.append(f"Its parts: {_enumeration(sizes)}.")
    return sentences


def _evaluation(facts: dict[str, Any], metrics: dict[str, Any]) -> list[str]:
    protocol = metrics.get("protocol") or facts.get("protocol")
    sentences = []
    if protocol == "open-set":
        sentences.append("Open-set: nobody in the calibration and test parts was seen in training.")
    elif protocol == "closed-set":
        sentences.append("Closed-set: the classes of the held-out parts are those of training.")
    if "n_units" in metrics and "n_negative_pairs" in metrics:
        sentences.append(
            f"The test part: {metrics['n_units']:,} independent units, {metrics['n_negative_pairs']:,} different and "
            f"{metrics['n_same_pairs']:,} same pairs."
        )
    elif "n_rows" in metrics:
        sentences.append(f"The test part: {metrics['n_rows']:,} rows.")
    return sentences


def _factors(metrics: dict[str, Any]) -> list[str]:
    groups = metrics.get("groups")
    if not isinstance(groups, dict):
        return [
            "Rates by group of people were not measured: train with a dataset that has a group column and "
            "groups set to compare to know them."
        ]
    sentences = ["Rates by group of people were measured; see the section on groups."]
    return sentences + [f"Warning: {warning}." for warning in groups.get("warnings", [])]


def _limits(version: VersionOut, promises: list[PromisedRate], evidence: Evidence | None) -> list[str]:
    doubts = (version.facts.get("suspects") or {}).get("text")
    sentences = [doubts] if doubts else []
    if "match" in version.capabilities:
        if not promises:
            sentences.append("It has no calibration of its own, so it promises no false positive rate.")
        refused = [promise for promise in promises if promise.refused is not None]
        if refused:
            worst = refused[0]
            smallest = worst.smallest_fpr
            rates = "no rate at all" if smallest is None else f"rates from {askable(smallest):g} up"
            sentences.append(f"Its calibration supports {rates} at confidence {worst.confidence or 0.95:g}.")
        population = version.promise and version.promise.population
        whom = f"new samples of {population}" if population else "new people"
        sentences.append(
            f"A promised rate holds for {whom} drawn like those of the calibration data. It does not cover other "
            f"{'classes' if population else 'populations'}, other sensors, attacks, or wrong labels."
        )
        sentences.append("Intervals of the rates on this page are asymptotic, unless they say otherwise.")
    if evidence is not None:
        sentences += [f"Not measured: {reason}." for reason in evidence.left_out.values()]
        if evidence.likelihood_ratios:
            low, high = evidence.likelihood_ratios[0].limits
            sentences.append(
                f"Log likelihood ratios stay between {low:.3g} and {high:.3g}, since the numbers of pairs show no "
                "stronger evidence. They promise no error rate."
            )
    if version.promise is None and "match" in version.capabilities and not promises:
        sentences.append("What it could promise is not known.")
    return list(dict.fromkeys(sentences))


def _enumeration(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
