"""What no text of the repository says: wrong package name, registry hosts, machines' paths, people's names."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent

# Test inputs quote the world as it is; what they may say is checked where they are made.
QUOTED = (PurePosixPath("tests/cases"),)

# Each pattern is written so that it does not match its own line.
FORBIDDEN: dict[str, re.Pattern[str]] = {
    # The name belongs to an unrelated project on the public index.
    "install command of another project": re.compile(
        r"(?:pip3?|uv|pipx)\s+(?:tool\s+)?(?:install|add)\s+(?:-\S+\s+)*[\"']?patch[k]it(?![\w-])(?!/)"
    ),
    "registry host": re.compile(
        r"(?:py[p]i\.(?:org|python)|pythonhoste[d]\.|npmj[s]\.|deb\.debia[n]|archive\.ubunt[u])", re.IGNORECASE
    ),
    "path of a machine": re.compile(r"(?<![\w.$}])/(?:hom[e]|roo[t]|User[s]|wor[k]|tm[p]/v)/\w"),
    "mail address": re.compile(
        r"<[\w.+-]+@(?!(?:[\w-]+\.)*(?:example\.(?:com|org|net)|example|invalid)>)[\w-]+\.[\w.-]+>"
    ),
    "signature of a person": re.compile(
        r"^(?:Co-authored|Signed-off|Reviewed|Acked)-by: [A-Z]\w+ [A-Z]\w+", re.MULTILINE
    ),
    "TODO without a version or an issue": re.compile(
        r"(?:#|//|/\*)\s*(?:TODO|FIXME|XXX)\b(?!\((?:#\d+|v?\d+\.\d+[\d.]*)\))"
    ),
}


def _tracked() -> list[PurePosixPath]:
    """Return the repository's files; those of the directory when it is no repository (an unpacked sdist)."""
    listing = subprocess.run(
        ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0 and (CHECKOUT / ".git").exists():
        names = [name.decode() for name in listing.stdout.split(b"\0") if name]
    else:
        hidden = re.compile(r"(^|/)(\.(?!ci/|gitignore|clang-format)|__pycache__)")
        found = (path.relative_to(CHECKOUT).as_posix() for path in CHECKOUT.rglob("*") if path.is_file())
        names = [name for name in found if not hidden.search(name)]
    return sorted(PurePosixPath(name) for name in names if (CHECKOUT / name).is_file())


def _texts() -> list[tuple[PurePosixPath, str]]:
    texts = []
    for path in _tracked():
        content = (CHECKOUT / path).read_bytes()
        if b"\0" not in content and not any(path.is_relative_to(quoted) for quoted in QUOTED):
            texts.append((path, content.decode("utf-8", "replace")))
    return texts


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_text_has(what: str) -> None:
    pattern = FORBIDDEN[what]
    found = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group().strip()}"
        for path, text in _texts()
        for match in pattern.finditer(text)
    ]
    assert not found, f"{what}:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("install command of another project", "run pip install patch" + "kit"),
        ("install command of another project", "pip install -U 'patch" + "kit==1'"),
        ("registry host", "https://py" + "pi.org/simple"),
        ("path of a machine", "see /hom" + "e/someone/tree"),
        ("mail address", "From: Some One <some.one@corp.test" + ">"),
        ("signature of a person", "Signed-off-by: Some" + " One"),
        ("TODO without a version or an issue", "#" + " TODO: later"),
    ],
)
def test_the_rule_finds_what_it_forbids(what: str, text: str) -> None:
    assert FORBIDDEN[what].search(text)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("install command of another project", "pip install patchkit-engines"),
        ("install command of another project", "pip install ./patchkit/dist/x.whl"),
        ("path of a machine", "/usr/local/lib/python3.12/dist-packages/vllm"),
        ("mail address", "From: patchkit <patchkit@example.invalid>"),
        ("TODO without a version or an issue", "# TODO(0.2): drop"),
    ],
)
def test_the_rule_lets_pass_what_is_meant(what: str, text: str) -> None:
    assert not FORBIDDEN[what].search(text)


def test_changelog_has_an_unreleased_section() -> None:
    assert "\n## [Unreleased]\n" in (CHECKOUT / "CHANGELOG.md").read_text()


def test_links_between_documents_lead_somewhere() -> None:
    link = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
    links = [(path, target) for path, text in _texts() if path.suffix == ".md" for target in link.findall(text)]
    broken = [f"{path}: {target}" for path, target in links if not (CHECKOUT / path.parent / target).exists()]
    assert links
    assert not broken


def test_every_document_is_linked_from_the_readme() -> None:
    readme = (CHECKOUT / "README.md").read_text()
    pages = sorted(path.name for path in (CHECKOUT / "docs").glob("*.md"))
    assert pages
    assert [page for page in pages if f"docs/{page}" not in readme] == []


@pytest.mark.parametrize(
    "script", [path for path, _ in _texts() if path.suffix == ".sh" or path == PurePosixPath(".ci/run")], ids=str
)
def test_shell_script_parses(script: PurePosixPath) -> None:
    subprocess.run(["bash", "-n", str(CHECKOUT / script)], check=True)
