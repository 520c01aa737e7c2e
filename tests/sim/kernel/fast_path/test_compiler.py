"""Compiled functions are cached on disk if possible."""

from typing import Any

from rumor.sim.kernel.fast_path.compiler import compiled_once, is_kept


def test_without_a_cache_folder_a_function_is_compiled_each_time() -> None:
    names: dict[str, Any] = {}
    exec("def more(n):\n    return n + 1", names)  # has no file, so numba keeps nothing
    more = compiled_once(())(names["more"])
    assert not is_kept(more)
    assert more(1) == 2 and is_kept(more)
