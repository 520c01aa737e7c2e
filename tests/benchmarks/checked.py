"""What every result must be, whatever was measured."""

import json
import math

from rumor.benchmarks import Result

__all__ = ["checked"]

KEYS = {"name", "ours", "reference", "ratio", "unit", "note"}


def checked(result: Result) -> Result:
    """*result*, whose figures are all there and survive JSON."""
    read = json.loads(json.dumps(result.as_json()))
    assert set(read) == {"name", "title", "columns", "rows", "machine", "wall_s", "date"}
    assert len(read["columns"]) == len(KEYS)
    for row in read["rows"]:
        assert set(row) == KEYS
        assert math.isfinite(row["ratio"])
        assert row["ours"] > 0 and row["reference"] > 0
    assert "torch" in result.machine and "zmq" in result.machine
    return result
