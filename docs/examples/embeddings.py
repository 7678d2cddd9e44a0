"""From embeddings to a decision at a false positive rate of 1 %, in Python."""

# [data]
import numpy as np

rng = np.random.default_rng(0)
n_people, n_photos, n_dimensions = 1_000, 5, 32
# Some directions of an embedding tell people apart, others hold light and pose.
telling = np.linspace(1.5, 0.3, n_dimensions)
person = rng.normal(size=(n_people, 1, n_dimensions)) * telling
photos = person + 0.8 * rng.normal(size=(n_people, n_photos, n_dimensions))
X = photos.reshape(-1, n_dimensions)
y = np.repeat(np.arange(n_people), n_photos)
train, calibration, new = y < 200, (y >= 200) & (y < 900), y >= 900
# [fit]
from pairmark import MetricSimilarity, Plda

cosine = MetricSimilarity(metric="cosine").fit(X[train], y[train])
plda = Plda(random_state=0).fit(X[train], y[train])
# [pairs]


def all_pairs(people):
    """One photo of each pair of people, and every pair of photos of one person."""
    rows = np.flatnonzero(people)
    first = rows[::n_photos]
    i, j = np.triu_indices(first.size, 1)
    k, m = np.triu_indices(n_photos, 1)
    left = np.concatenate([first[i], (first[:, None] + k).ravel()])
    right = np.concatenate([first[j], (first[:, None] + m).ravel()])
    return left, right


left, right = all_pairs(calibration)
same = y[left] == y[right]
people = np.stack([y[left], y[right]], axis=1)
# [decide]
from pairmark import operating_point

points = {}
for name, model in (("cosine", cosine), ("PLDA", plda)):
    scores = model.pair_score(X[left], X[right])
    point = operating_point(scores, same, fpr=0.01, units=people)
    print(f"{name}: TPR {point.tpr:.2f} at FPR 0.01, {point.guarantee}, {point.n_units} people")
    points[name] = point
# [check]
left, right = all_pairs(new)
same = y[left] == y[right]
for name, model in (("cosine", cosine), ("PLDA", plda)):
    match = model.pair_score(X[left], X[right]) > points[name].threshold
    print(f"{name}, new people: FPR {match[~same].mean():.4f}, TPR {match[same].mean():.2f}")
# [refuse]
from pairmark import InsufficientCalibrationData

people = np.stack([y[left], y[right]], axis=1)
try:
    operating_point(plda.pair_score(X[left], X[right]), same, fpr=0.001, units=people)
except InsufficientCalibrationData as refusal:
    print("refused:", refusal)
# [file]
np.savez("embeddings.npz", X=X.astype(np.float32), y=y)
