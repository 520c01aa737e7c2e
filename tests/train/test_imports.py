"""What `import rumor.train` loads beside torch and numpy."""

import subprocess
import sys
from typing import Final

# They draw, analyze or talk to a terminal; loaded, they would slow the start of every live peer.
LIBRARIES: Final = ("matplotlib", "networkx", "pandas", "rich", "scipy", "sklearn", "torchvision")

OTHER_LAYERS: Final = ("rumor.benchmarks", "rumor.cli", "rumor.sim")


def test_what_a_live_peer_does_not_need_is_not_loaded() -> None:
    unwanted = LIBRARIES + OTHER_LAYERS
    program = f"import sys, rumor.train; print(*[m for m in {unwanted} if m in sys.modules])"
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert found.stdout.split() == []
