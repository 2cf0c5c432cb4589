"""The documentation as a website: built once, then looked at in a browser."""

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from scripts import docs_script

import zscope as zs
from zscope.assays import CATALOGUE
from zscope.files import lock
from zscope.site import SITE, assay_page

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = "/usr/bin/chromium"
build, gallery, reference = docs_script("build"), docs_script("gallery"), docs_script("reference")


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory):
    """Built once, without a network: whatever asks for a proxy gets one that is not there."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder  # of all workers
    site = folder / "docs-site"
    with lock(folder, "docs-site", wait=True):
        if not site.exists():
            closed = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https")}
            command = [sys.executable, ROOT / "docs" / "build.py", "--out", site]
            subprocess.run(command, check=True, env=os.environ | closed)
    return site


@pytest.fixture(scope="module", name="address")
def _address(site):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.names |= {values["id"]} if values.get("id") else set()
        self.found += [values[key] for key in ("href", "src") if values.get(key)]


@functools.cache
def read(page: Path) -> Links:
    links = Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


def test_every_assay_has_the_page_that_reports_link_to(site):
    for name in CATALOGUE:
        place = assay_page(name).removeprefix(SITE)
        assert (site / place / "index.html").is_file()


def test_every_link_leads_somewhere_and_nothing_is_fetched_from_elsewhere(site):
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 200
    broken = []
    for page in pages:
        base = f"/{page.relative_to(site).as_posix()}"
        for link in read(page).found:
            parts = urlsplit(urljoin(base, link))
            if parts.scheme or parts.netloc:
                assert not link.endswith((".js", ".css", ".woff2", ".png")), (base, link)
                continue
            file = site / unquote(parts.path).lstrip("/")
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file():
                broken.append((base, link))
            elif parts.fragment and file.suffix == ".html" and not link.startswith("#__"):
                names = read(file).names
                broken += [(base, link)] * (unquote(parts.fragment) not in names)
    assert not broken, broken[:10]


def test_the_navigation_has_every_page_of_the_guide_in_its_order(site, tmp_path):
    guide = tmp_path / "guide"
    guide.mkdir()
    for name in ("zoo", "start", "data", "healthy"):
        (guide / f"{name}.md").write_text("# x")
    assert build.guide_pages(tmp_path) == ["start", "healthy", "data", "zoo"]
    index = read(site / "guide" / "data" / "index.html").found
    for file in (ROOT / "docs" / "guide").glob("*.md"):
        assert file.stem == "data" or any(link.endswith(f"/{file.stem}/") for link in index)


def test_comments_on_how_blocks_are_tested_are_not_in_the_pages(site):
    for file in (ROOT / "docs" / "guide").glob("*.md"):
        assert "<!-- run" not in build.clean(file.read_text())
        assert "<!-- run" not in (site / "guide" / file.stem / "index.html").read_text()


def test_every_public_name_has_an_entry_in_the_reference(site):
    for module in ("", *reference.MODULES):
        prefix = f"zs.{module}." if module else "zs."
        names = read(site / "api" / (module or "zscope") / "index.html").names
        assert {prefix + name for name in reference.public_names(module)} <= names


def test_a_signature_says_what_the_source_says_and_wraps():
    def short(x, *, y: int = 3) -> str:
        return str((x, y))

    assert reference.signature("short", short) == "short(x, *, y: int = 3) -> str"
    lines = reference.signature("zs.train", zs.train).splitlines()
    assert lines[0] == "zs.train("
    assert "    steps: int," in lines or any(line.startswith("    steps") for line in lines)
    assert max(map(len, lines)) <= 100
    assert all(line.startswith("    ") for line in lines[1:-1])


def test_the_search_finds_assays_by_what_they_ask(site):
    entries = json.dumps(json.loads((site / "search.json").read_text(encoding="utf-8")))
    for name in ("holes", "mig", "response-matrix"):
        assert CATALOGUE[name].question in entries


@pytest.fixture(scope="module", name="browser")
def _browser():
    playwright = pytest.importorskip("playwright.sync_api")
    if not Path(CHROMIUM).exists():
        pytest.skip("needs chromium")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


SAMPLE = (
    "", "gallery/", "gallery/disentanglement/", "assays/", "assays/mig/", "assays/response-matrix/",
    "assays/intrinsic-dimension/", "assays/cka/", "models/beta-tcvae/", "flavours/", "api/",
    "api/zscope/", "api/assays/", "guide/data/", "guide/sweeps/", "commands/", "correctness/",
    "reproduction/", "decisions/0017-passes-and-pages/",
)  # fmt: skip


def test_no_page_is_wider_than_a_phone_and_no_request_fails(browser, address):
    page = browser.new_page(viewport={"width": 390, "height": 800})
    failures = []
    page.on("request", lambda each: each.url.startswith(address) or failures.append(each.url))
    page.on("response", lambda each: each.status < 400 or failures.append(each.url))
    page.on("pageerror", lambda error: failures.append(str(error)))
    wide = {}
    for place in SAMPLE:
        page.goto(address + place, wait_until="load")
        width = page.evaluate("document.scrollingElement.scrollWidth")
        if width > 390:
            wide[place] = width
    page.close()
    assert not wide
    assert not failures


def test_formulas_are_set_without_an_error_on_every_page_that_has_some(browser, address, site):
    page = browser.new_page()
    page.goto(f"{address}assays/mig/")
    assert page.locator(".katex").count() >= 1
    # The formulas of all other pages, set by the same program.
    formulas = {(name, tex) for file in site.rglob("index.html") for name, tex in formulas_of(file)}
    assert len(formulas) > 250
    errors = page.evaluate(
        """formulas => formulas.filter(([name, tex]) => {
            try { katex.renderToString(tex, {displayMode: name === "div"}); return false }
            catch (error) { return true }
        })""",
        sorted(formulas),
    )
    assert not errors
    assert page.evaluate("() => document.fonts.ready.then(() => document.fonts.size)") > 10
    page.close()


class Formulas(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if "data-tex" in values:
            self.found.append((tag, values["data-tex"]))


def formulas_of(file: Path) -> list[tuple[str, str]]:
    text = file.read_text(encoding="utf-8")
    if "data-tex" not in text:
        return []
    parser = Formulas()
    parser.feed(text)
    return parser.found


def test_dark_and_light_can_be_chosen_and_are_readable(browser, address):
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(f"{address}assays/mig/")
        ink, paper = page.evaluate(
            """() => [getComputedStyle(document.querySelector("article p")).color,
                      getComputedStyle(document.body).backgroundColor]"""
        )
        bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, paper)]
        assert (bright[0] < bright[1]) == (scheme == "light")
        context.close()


def test_the_search_works_in_the_page(browser, address):
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(address)
    page.locator("button:visible", has_text="Search").first.click()
    page.locator("input:visible").first.fill("interventional consistency")
    page.get_by_text(re.compile(r"\d+ results")).first.wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/assays/interventional-consistency/**")
    page.close()
