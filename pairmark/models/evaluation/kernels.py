"""One pass over sorted pairs, for figures that are drawn hundreds of times."""

import numpy as np

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.core.compiled import kernel


@kernel
def measure_pairs(
    weight: Float64,
    is_same: Bool,
    ends: Int64,
    targets: Float64,
    record: Int64,
    figures: Float64,
    rates: Float64,
) -> None:
    """AUC, EER and TPR at each target, into ``figures`` (2 + n_targets,), and FPR and TPR after ``record`` rows, into
    ``rates`` (2, n_record).

    Parameters
    ----------
    weight, is_same : (n,) of each row, best score first; both kinds have weight.
    ends : number of rows up to the end of each group of equal scores, which no threshold tells apart.
    targets : ascending. record : ascending numbers of rows.
    """
    total = np.zeros(2)
    for row in range(weight.size):
        total[np.int64(is_same[row])] += weight[row]
    mass = np.zeros(2)
    figures[:] = 0.0
    area, fpr, tpr, row, noted, is_crossed = 0.0, 0.0, 0.0, 0, 0, False
    for end in ends:
        while noted < record.size and record[noted] < end:
            rates[0, noted], rates[1, noted] = fpr, tpr
            noted += 1
        while row < end:
            mass[np.int64(is_same[row])] += weight[row]
            row += 1
        new_fpr, new_tpr = min(mass[0] / total[0], 1.0), min(mass[1] / total[1], 1.0)
        # Of what lies above the curve, so that perfect separation is 1 to the last bit.
        area += (new_fpr - fpr) * (2.0 - new_tpr - tpr)
        if not is_crossed and new_fpr + new_tpr >= 1.0:
            # FPR and FNR = 1 - TPR cross where their sum reaches 1: interpolated on the line from the last point.
            before, after = fpr + tpr - 1.0, new_fpr + new_tpr - 1.0
            figures[1] = fpr - before / (after - before) * (new_fpr - fpr)
            is_crossed = True
        fpr, tpr = new_fpr, new_tpr
        for number in range(targets.size - 1, -1, -1):
            if fpr > targets[number]:
                break
            figures[2 + number] = tpr
    rates[0, noted:], rates[1, noted:] = fpr, tpr
    figures[0] = 1.0 - 0.5 * area
