"""How values are shown in the tables that commands print."""

import statistics
from collections.abc import Mapping, Sequence


def shown(value: float | int | None) -> str:
    """Four decimals of a fraction; n/a where there was nothing to measure."""
    if value is None:
        return "n/a"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def comparison(runs: Mapping[str, Mapping[str, Sequence[float | None]]]) -> str:
    """One line for each metric of each variant.

    Args:
        runs: variant -> metric -> its value for each seed.

    Returns:
        Lines with the mean, the standard deviation over the seeds if there are several,
        and all values; n/a where one of them is unknown.
    """
    lines = [f"{'':32}{'':20}{'mean':>10}{'deviation':>11}  values"]
    for metric in next(iter(runs.values())):
        for name, metrics in runs.items():
            values = metrics[metric]
            known = None not in values
            mean = shown(statistics.fmean(values) if known else None)
            several = known and len(values) > 1
            deviation = shown(statistics.stdev(values)) if several else ""
            each = " ".join(map(shown, values))
            lines.append(f"{metric:32}{name:20}{mean:>10}{deviation:>11}  {each}")
    return "\n".join(lines)
