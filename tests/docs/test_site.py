"""The documentation as a site: it builds without a warning, loads nothing from other hosts, and every link resolves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURES = sorted((DOCS / "pictures").glob("*.svg"))
LOADING = {"audio", "embed", "iframe", "img", "link", "object", "script", "source", "video"}
TOOLS = {"examples.md", "contributing.md", "changelog.md"}  # made by tools/site_hooks.py


class Page(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.paragraphs: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.ids.update(found[name] for name in ("id", "name") if name in found)
        targets = [found[name] for name in ("href", "src", "data", "srcset", "poster") if name in found]
        if found.get("rel") != "canonical":
            (self.loaded if tag in LOADING else self.links).extend(targets)
        if tag in ("p", "pre", "code"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            self._open.remove(tag)

    def handle_data(self, data: str) -> None:
        if self._open == ["p"]:
            self.paragraphs.append(data)


class Site(NamedTuple):
    folder: Path
    pages: dict[Path, Page]
    log: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert built.returncode == 0, built.stderr
    yield Site(folder, {path: Page(path) for path in folder.rglob("*.html")}, built.stderr)


def test_there_are_no_warnings(site: Site) -> None:
    assert "WARNING" not in site.log and "ERROR" not in site.log
    assert len(site.pages) > 25


def test_nothing_is_loaded_from_another_host(site: Site) -> None:
    for path, page in site.pages.items():
        assert [target for target in page.loaded if urlsplit(target).netloc] == [], path
    for path in site.folder.rglob("*.css"):
        targets = re.findall(r"url\(([^)]*)\)|@import\s+(\S+)", path.read_text(encoding="utf-8"))
        assert [found for pair in targets for found in pair if re.match(r"[\"']?(https?:)?//", found)] == [], path


def test_no_page_needs_a_script_that_is_loaded_later(site: Site) -> None:
    """The theme's script fetches Mermaid and the state of repositories from other hosts for pages that have them."""
    for path in site.pages:
        assert not re.search(r'class="mermaid|data-md-component="source"', path.read_text(encoding="utf-8")), path


def test_links_and_anchors_resolve(site: Site) -> None:
    broken = []
    for path, page in site.pages.items():
        for link in {*page.links, *page.loaded}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            start = site.folder / parts.path.removeprefix("/docs/") if parts.path.startswith("/docs/") else None
            target = start or (path.parent / unquote(parts.path) if parts.path else path)
            target = (target / "index.html" if target.is_dir() else target).resolve()
            if not target.is_file() or (parts.fragment and target in site.pages and not has(site, target, parts)):
                broken.append(f"{path.relative_to(site.folder)}: {link}")
    assert broken == []


def has(site: Site, target: Path, parts: Any) -> bool:
    return parts.fragment == "__skip" or unquote(parts.fragment) in site.pages[target].ids


def test_lists_and_tables_are_lists_and_tables(site: Site) -> None:
    """Markdown that a repository shows as a list or table, and this renderer as text."""
    for path, page in site.pages.items():
        broken = [text for text in page.paragraphs if re.search(r"^(- |\* |\d+\. |\|)", text, re.MULTILINE)]
        assert broken == [], path


def test_every_page_is_in_the_navigation() -> None:
    text = re.sub(r"!!python\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = set(re.findall(r"[\w-]+\.md", str(yaml.safe_load(text)["nav"])))
    assert listed == {path.name for path in DOCS.glob("*.md")} | TOOLS


def test_pictures_are_described_and_follow_both_palettes(site: Site) -> None:
    styles = {
        found[0]
        for path in PICTURES
        if (found := re.findall(r"<style>(.*?)</style>", path.read_text(encoding="utf-8"), re.DOTALL))
    }
    (style,) = styles
    assert "prefers-color-scheme: dark" in style
    css = (DOCS / "pictures" / "site.css").read_text(encoding="utf-8")
    assert set(re.findall(r"#[0-9a-f]{6}", style)) == set(re.findall(r"#[0-9a-f]{6}", css)), "two sets of colours"
    page = (site.folder / "concepts" / "index.html").read_text(encoding="utf-8")
    drawings = [path for path in PICTURES if path.stem != "favicon"]
    assert len(re.findall(r'<svg class="picture" role="img" aria-label="[^"]{80,}"', page)) == len(drawings) == 6
    for path in drawings:
        text = (DOCS / "concepts.md").read_text(encoding="utf-8")
        assert f"](pictures/{path.name})" in text


def test_files_for_monitoring_are_on_the_site(site: Site) -> None:
    for path in (ROOT / "monitoring").iterdir():
        assert (site.folder / "monitoring" / path.name).read_bytes() == path.read_bytes()
