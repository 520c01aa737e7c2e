"""All settings are in pyproject.toml; this file is for the core as machine code.

``RUMOR_MYPYC=1 pip install .`` compiles the modules below with mypyc, for which it needs a C
compiler. They decide the same, exchange by exchange and bit for bit, in less time.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup

# Those through which each exchange passes, live, simulated and fuzzed. Not the classes of effects
# and messages: others make these, too, and from outside an attribute of a compiled class takes
# longer to set; nor rules, which are sent to processes as pickles.
COMPILED = [
    "gossip/effects/effect_log",
    "gossip/effects/ledger",
    "gossip/exchange/escrow",
    "gossip/exchange/flow_control",
    "gossip/exchange/incoming",
    "gossip/exchange/outgoing",
    "gossip/exchange/transfer",
    "gossip/membership/dialing",
    "gossip/membership/entry",
    "gossip/membership/failure_detector",
    "gossip/membership/progress",
    "gossip/membership/static",
    "gossip/membership/table",
    "gossip/protocol/anti_entropy",
    "gossip/protocol/context",
    "gossip/protocol/join",
    "gossip/protocol/leave",
    "gossip/protocol/protocol",
    "gossip/protocol/sending",
    "gossip/protocol/state",
    "gossip/protocol/validation",
    "gossip/weight",
    "sim/fuzz/invariants",
    "sim/fuzz/peers",
    "sim/fuzz/scenario/liars",
    "sim/fuzz/swarm",
    "sim/fuzz/vector",
    "sim/fuzz/weighted_sum",
    "sim/kernel/clock",
    "sim/kernel/deliveries",
    "sim/kernel/execution",
    "sim/kernel/faults/network",
    "sim/kernel/fleet",
    "sim/kernel/processes",
    "sim/kernel/program",
    "sim/kernel/worker",
    "sim/models/links",
]

IS_WANTED = os.environ.get("RUMOR_MYPYC", "") not in ("", "0")

# Nothing that is compiled knows a tensor, and reading torch takes longer than compiling.
SETTINGS = """
[mypy]
ignore_missing_imports = true
follow_imports = silent
[mypy-torch.*]
follow_imports = skip
"""

# What the types of arrays come from, beside the compiler.
NEEDED = ["mypy>=2.4", "numpy>=2.0"]


def extensions() -> list[Extension]:
    """The compiled modules, where a wheel is built and they are wanted."""
    commands = {"bdist_wheel", "editable_wheel"}.intersection(sys.argv[1:])
    if not IS_WANTED or not commands:
        # setuptools also asks what a build needs, when that is not there yet.
        return []
    if "editable_wheel" in commands:
        sys.exit("RUMOR_MYPYC: compiled modules would hide what is edited; install without -e")
    from mypyc.build import mypycify

    # A file's folders must be the names of its packages.
    root, sources = Path(__file__).parent.resolve(), Path("build/mypyc/sources")
    # A wheel packs all that an earlier build has left there, and a copied folder links to the old.
    for left in Path("build").glob("lib*"):
        shutil.rmtree(left)
    (sources / "rumor").unlink(missing_ok=True)
    sources.mkdir(parents=True, exist_ok=True)
    (sources / "rumor").symlink_to(root, target_is_directory=True)
    os.environ["MYPYPATH"] = str(sources)
    settings = sources.with_name("mypy.ini")
    settings.write_text(SETTINGS)
    options = [f"--config-file={settings}", "--explicit-package-bases"]
    files = [str(sources / "rumor" / f"{module}.py") for module in COMPILED]
    found: list[Extension] = mypycify(
        [*options, *files], target_dir="build/mypyc", debug_level="0", group_name="rumor"
    )
    return found


setup(ext_modules=extensions(), setup_requires=NEEDED if IS_WANTED else [])
