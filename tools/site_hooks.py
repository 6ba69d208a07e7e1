"""Hooks of mkdocs.yml: what the site has and `docs/` has not, and links that mean something else on a site.

Owns the pages made of files elsewhere in the repository (contributing, changelog, examples, files for monitoring) and
the pictures, which are part of the page so that they follow its palette. Does not know what the pages are about.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
SERVED_AT = "/docs/"
"""Where the console serves the site; only the page of a missing address needs it, all other links are relative."""

_LINKS = (
    (re.compile(r"\]\(docs/"), "]("),
    (re.compile(r"\]\(CONTRIBUTING\.md"), "](contributing.md"),
    (re.compile(r"\]\(\.\./CONTRIBUTING\.md"), "](contributing.md"),
    (re.compile(r"\]\(\.\./monitoring/"), "](monitoring/"),
    (re.compile(r"\]\(\.\./examples/(\w+)\.py\)"), r"](examples.md#\1)"),
    (re.compile(r"\]\(\.\./examples\)"), "](examples.md)"),
    (re.compile(r"\[([^\]]+)\]\(\.\./deploy[^)]*\)"), r"\1"),  # those files are in the repository alone
)
_PICTURE = re.compile(r'<img alt="([^"]+)" src="[^"]*pictures/([\w-]+)\.svg" ?/?>')
_STYLE = re.compile(r"<style>.*?</style>\n?", re.DOTALL)
# Source maps, and the search in languages that no page is written in.
_UNUSED = ("**/*.map", "assets/javascripts/lunr/**/*.js")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.site_url = SERVED_AT
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "contributing.md", content=_text("CONTRIBUTING.md")))
    files.append(File.generated(config, "changelog.md", content=_text("CHANGELOG.md")))
    files.append(File.generated(config, "examples.md", content=_examples()))
    for path in sorted((ROOT / "monitoring").iterdir()):
        if path.suffix in (".json", ".yaml"):
            files.append(File.generated(config, f"monitoring/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    for pattern, replacement in _LINKS:
        markdown = pattern.sub(replacement, markdown)
    return markdown


def on_page_content(content: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    return _PICTURE.sub(lambda found: _picture(Path(config.docs_dir), found[2], html.unescape(found[1])), content)


def on_post_build(*, config: MkDocsConfig) -> None:
    for pattern in _UNUSED:
        for path in Path(config.site_dir).glob(pattern):
            path.unlink()


def _picture(docs: Path, name: str, description: str) -> str:
    """The drawing without its own colours: pictures/site.css has those of both palettes."""
    drawn = (docs / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    label = html.escape(description, quote=True)
    return _STYLE.sub("", drawn).replace("<svg ", f'<svg class="picture" role="img" aria-label="{label}" ', 1)


def _examples() -> str:
    parts = ["# Examples\n\nWhole programs, which the tests run as they are.\n"]
    for path in sorted((ROOT / "examples").glob("*.py")):
        parts.append(f"\n## {path.name} {{ #{path.stem} }}\n\n```python\n{path.read_text(encoding='utf-8')}```\n")
    return "".join(parts)


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
