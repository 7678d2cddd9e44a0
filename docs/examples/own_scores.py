"""A promise for scores made elsewhere: another service, a rules engine, a model of your own."""

# [scores]
import numpy as np

rng = np.random.default_rng(0)
n_people, n_samples = 700, 3
# The other system's file: a score for each pair, whether both are one person, and who is on each side.
person = np.repeat(np.arange(n_people), n_samples)
left, right = np.triu_indices(person.size, 1)
kept = (person[left] == person[right]) | (rng.random(left.size) < 0.2)
left, right = left[kept], right[kept]
same = person[left] == person[right]
easy_to_match = rng.normal(scale=0.5, size=n_people)
scores = rng.normal(size=left.size) + 4.0 * same
scores += easy_to_match[person[left]] + easy_to_match[person[right]]
units = np.stack([person[left], person[right]], axis=1)
# [decide]
from pairmark import operating_point

point = operating_point(scores, same, fpr=0.01, units=units, listing="random-people")
bound, confidence = point.fpr_upper_bound, point.confidence
print(f"match above {point.threshold:.2f}: FPR at most {bound:.4f} at {100 * confidence:.0f} % confidence")
print(f"TPR {point.tpr:.2f}, guarantee {point.guarantee}, from {point.n_units} people")
# [naive]
naive = np.quantile(scores[~same], 0.99)
print(f"the 99th percentile of the negative scores would be {naive:.2f}")
# [file]
import csv

with open("scores.csv", "w", encoding="utf-8", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["left", "right", "score", "same"])
    for at in rng.permutation(scores.size)[:20_000]:
        writer.writerow([*units[at], round(scores[at], 4), int(same[at])])
