# SPDX-License-Identifier: MIT
"""README, the pages in docs and the manual pages: their size, their links, their form."""

import re
import shutil
import subprocess

import pytest

from conftest import ROOT
from pages import PAGES, README

LINKING = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "tests" / "README.md", ROOT / "tests" / "bench" / "README.md"]
MANUALS = sorted((ROOT / "scripts" / "man").glob("*.[157]"))


def links(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(page):
    """As the forges make them of headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_the_readme_is_short():
    text = README.read_text()
    assert len(text.splitlines()) <= 150 and len(text.split()) <= 1200
    assert max(map(len, text.splitlines())) <= 120


def test_the_readme_leads_to_every_page():
    missing = {page.name for page in (ROOT / "docs").glob("*.md")} - {link.partition("#")[0].removeprefix("docs/") for link in links(README)}
    assert not missing


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in links(page):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", MANUALS, ids=lambda page: page.name)
def test_a_manual_page_is_well_formed(page):
    if not shutil.which("mandoc"):
        pytest.skip("mandoc is not installed (scripts/setup.sh knows it)")
    done = subprocess.run(["mandoc", "-Tlint", page], stdout=subprocess.PIPE, text=True, check=False)
    assert not done.stdout, done.stdout
