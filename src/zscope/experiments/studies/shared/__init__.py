"""What several studies measure, tabulate or draw alike."""

__all__: list[str] = []
