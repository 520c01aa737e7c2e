"""Source files of the layers, in a checkout or an installed wheel."""

import pkgutil
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

__all__ = ["LAYERS", "load_script", "modules"]

LAYERS = ("gossip", "topology", "train", "sim", "cli")


def modules() -> dict[str, Path]:
    """Return the source file of every module of every layer, by the module's installed name."""
    files = {}
    for layer in LAYERS:
        name = f"rumor.{layer}"
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None, f"{name} is not installed"
        files[name] = Path(spec.origin)
        files |= _inside(name, Path(spec.origin).parent)
    return files


def _inside(package: str, folder: Path) -> dict[str, Path]:
    files = {}
    for module in pkgutil.iter_modules([str(folder)]):
        name = f"{package}.{module.name}"
        if module.ispkg:
            files[name] = folder / module.name / "__init__.py"
            files |= _inside(name, folder / module.name)
        else:
            files[name] = folder / f"{module.name}.py"
    return files


def load_script(path: Path) -> ModuleType:
    """Load a script as a module."""
    spec = spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    # Dataclasses look up their module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
