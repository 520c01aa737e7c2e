"""Make README.md and pyproject.toml ready for PyPI, which knows nothing of the repository's files.

    python .ci/release.py https://HOST/OWNER/REPOSITORY v0.1.0

Relative links and pictures of README.md become those of the repository at that tag, and
placeholders in pyproject.toml become the project's addresses. Both files are changed in place: run
it in a checkout that is thrown away. It fails where the tag is not the version.
"""

import re
import sys
import tomllib
from pathlib import Path

__all__ = ["absolute", "main", "with_urls"]

_PLACEHOLDER = "https://rumor.invalid"


def absolute(text: str, url: str, tag: str) -> str:
    """The text of a page at the root, with absolute links."""

    def replace(match: re.Match[str]) -> str:
        shown, target = match[1], match[2]
        if "://" in target or target.startswith("#"):
            return match[0]
        return f"{shown}({url}/{'raw' if shown.startswith('!') else 'blob'}/{tag}/{target})"

    return re.sub(r"(!?\[[^]]*\])\(([^)\s]+)\)", replace, text)


def with_urls(text: str, url: str, tag: str) -> str:
    """A pyproject.toml with the addresses of the project.

    Raises:
        ValueError: The tag is not that of the version, or there are addresses already.
    """
    project = tomllib.loads(text)["project"]
    if tag != f"v{project['version']}":
        raise ValueError(f"the tag is {tag}, and the version {project['version']}")
    if _PLACEHOLDER not in text:
        raise ValueError("pyproject.toml has addresses already")
    return text.replace(_PLACEHOLDER, url).replace("/blob/TAG/", f"/blob/{tag}/")


def main(root: Path, url: str, tag: str) -> None:
    """Change both files of a repository."""
    url = url.rstrip("/")
    for name, change in (("pyproject.toml", with_urls), ("README.md", absolute)):
        path = root / name
        path.write_text(change(path.read_text(encoding="utf-8"), url, tag), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(Path(__file__).parents[1], *sys.argv[1:])
    except ValueError as error:
        sys.exit(f"release.py: {error}")
