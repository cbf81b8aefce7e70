"""How values are shown in the tables that commands print."""


def shown(value: float | int | None) -> str:
    """Four decimals of a fraction; n/a where there was nothing to measure."""
    if value is None:
        return "n/a"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
