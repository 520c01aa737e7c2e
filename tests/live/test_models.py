"""Two peers train every kind of model or refuse it, as in docs/reference/models.md."""

from pathlib import Path

import pytest

from ..test_docs import script

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "scripts" / "models.py"

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not SCRIPT.exists(), reason="needs the docs folder"),
]


MODELS = script("models") if SCRIPT.exists() else None
KINDS = MODELS.KINDS if MODELS else ()


@pytest.mark.extended
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_two_peers_treat_each_kind_of_model_as_documented(kind: object) -> None:
    assert MODELS is not None
    lines = (ROOT / MODELS.PAGE).read_text(encoding="utf-8").splitlines()
    assert MODELS.row(kind) in lines, "run `make models`"


def test_the_models_page_lists_only_known_kinds() -> None:
    assert MODELS is not None
    text = (ROOT / MODELS.PAGE).read_text(encoding="utf-8").partition(MODELS.MARKER)[2]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(KINDS)
