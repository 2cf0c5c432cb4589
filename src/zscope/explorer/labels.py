"""Labels of one's own for the observations: an array, a data frame, or a file."""

from pathlib import Path
from typing import Any

import numpy as np

from zscope.data.columns import array_columns, factor_table, read_columns
from zscope.errors import DataError
from zscope.factors import Factors, factors_of
from zscope.results import counted, is_tensor

__all__ = ["labels_of"]


def labels_of(labels: Any, count: int) -> Factors:
    """Labels as columns of numbers or words, a row for each of `count` observations of the data.

    A column without a name is called "label".
    """
    name = str(labels) if isinstance(labels, str | Path) else "labels"
    if isinstance(labels, str | Path):
        columns = read_columns(labels, "factors")
    elif hasattr(labels, "columns"):
        columns = {str(each): np.asarray(labels[each]) for each in labels.columns}
    else:
        values = labels.detach().cpu().numpy() if is_tensor(labels) else np.asarray(labels)
        columns = array_columns(values, name)
    if list(columns) == ["0"]:
        columns = {"label": columns["0"]}
    table = factor_table(columns, name=name)
    if len(table.values) != count:
        raise DataError(
            f"explore: {counted(len(table.values), 'label')} for {counted(count, 'observation')}; "
            "row i of both must be the same observation. A run shows its held-out data: are the "
            "labels those of all its data? Name the data with --data."
        )
    return factors_of(
        table.values, kinds=table.kinds, names=table.names, labels=table.categories, who=name
    )
