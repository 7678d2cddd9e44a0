"""Is it the same person typing? Timings of a password, people never seen in training."""

# [data]
import numpy as np

rng = np.random.default_rng(0)
n_people, n_times, n_keys = 300, 8, 20
habit = rng.gamma(9.0, 0.01, size=(n_people, 1, n_keys))
timings = habit * rng.lognormal(sigma=0.25, size=(n_people, n_times, n_keys))
X, y = timings.reshape(-1, n_keys), np.repeat(np.arange(n_people), n_times)
train, held_out = y < 150, y >= 150
# [fit]
from pairmark import MetricSimilarity, Plda, SimilarityForest

models = {
    "Euclidean": MetricSimilarity(metric="euclidean"),
    "forest": SimilarityForest(n_estimators=50, random_state=0),
    "PLDA": Plda(random_state=0),
}
# [judge]
left, right = np.triu_indices(int(held_out.sum()), 1)
rows, people = X[held_out], y[held_out]
same = people[left] == people[right]
chosen = same | (rng.random(left.size) < 0.2)
left, right, same = left[chosen], right[chosen], same[chosen]
units = np.stack([people[left], people[right]], axis=1)

from pairmark import operating_point

for name, model in models.items():
    scores = model.fit(X[train], y[train]).pair_score(rows[left], rows[right])
    point = operating_point(scores, same, fpr=0.05, units=units)
    print(f"{name}: TPR {point.tpr:.2f} at FPR 0.05, {point.guarantee}, {point.n_units} people")
# [file]
with open("keystrokes.csv", "w", encoding="utf-8") as file:
    file.write("person," + ",".join(f"key{number}" for number in range(n_keys)) + "\n")
    for who, row in zip(y, X, strict=True):
        file.write(f"p{who}," + ",".join(f"{duration:.4f}" for duration in row) + "\n")
