"""One sweep over rows sorted by score, for one set of row weights, in a compiled loop."""

from __future__ import annotations

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.core.compiled import kernel


@kernel
def sweep(
    weight: Float64,
    is_same: Bool,
    ends: Int64,
    targets: Float64,
    record: Int64,
    summary: Float64,
    curve: Float64,
) -> None:
    """AUC, EER and TPR at FPR targets, and both rates after given numbers of rows.

    Parameters
    ----------
    weight, is_same : (n,) rows, best score first.
    ends : (k,) ascending numbers of rows at which a group of equal scores ends.
    targets : (T,) ascending.
    record : (G,) ascending numbers of rows (0, n or the end of a group).
    summary : (2 + T,) written: area under the broken line, equal error rate on it, largest TPR within each
        target.
    curve : (2, G) written: FPR and TPR.
    """
    all_fp = 0.0
    all_tp = 0.0
    for row in range(weight.size):
        if is_same[row]:
            all_tp += weight[row]
        else:
            all_fp += weight[row]
    fp = 0.0
    tp = 0.0
    last_f = 0.0
    last_t = 0.0
    area = 0.0
    equal = -1.0
    target = 0
    n_records = 0
    row = 0
    while n_records < record.size and record[n_records] == 0:
        curve[0, n_records] = 0.0
        curve[1, n_records] = 0.0
        n_records += 1
    for k in range(ends.size):
        # Equal scores move together: no threshold tells them apart.
        while row < ends[k]:
            if is_same[row]:
                tp += weight[row]
            else:
                fp += weight[row]
            row += 1
        f = min(fp / all_fp, 1.0)
        t = min(tp / all_tp, 1.0)
        # A trapezium: pairs of equal score count half.
        area += (f - last_f) * 0.5 * (t + last_t)
        # FPR and FNR = 1 - TPR cross where f + t = 1: interpolated on the line from the last point.
        if equal < 0.0 and f + t >= 1.0:
            before = 1.0 - last_f - last_t
            share = before / (before + f + t - 1.0)
            equal = last_f + share * (f - last_f)
        # This group is over the target, so the last one's TPR is the largest within it.
        while target < targets.size and f > targets[target]:
            summary[2 + target] = last_t
            target += 1
        while n_records < record.size and record[n_records] == row:
            curve[0, n_records] = f
            curve[1, n_records] = t
            n_records += 1
        last_f = f
        last_t = t
    while target < targets.size:
        summary[2 + target] = last_t
        target += 1
    summary[0] = area
    summary[1] = max(equal, 0.0)
