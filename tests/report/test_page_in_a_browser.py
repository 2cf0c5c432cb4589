"""The page in a real browser: opened from disk, on a screen, a phone, in the dark, on paper."""

import map_reports
import pytest
import torch
from made_runs import make_run

import zscope as zs
from zscope.data.dataset import from_arrays
from zscope.report.family import family_report


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A report with a long name, wide figures and a failing assay."""
    x = torch.rand(200, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    model = zs.wrap(
        lambda x: x.flatten(1)[:, :10], lambda z: torch.cat([z] * 4, 1)[:, :36].reshape(-1, 1, 6, 6)
    )
    names = [
        "response-matrix",
        "traversal-responses",
        "effective-rank",
        "mig",
        "predicted-variance",
    ]
    data = from_arrays(x, name="a_very_long_name_of_a_file_without_any_space_in_it" * 2)
    report = zs.assay(model, data, names=names, resamples=0)
    return report.save(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """The page of a few runs with long names."""
    folder = tmp_path_factory.mktemp("sweep")
    for beta in (1, 4):
        for seed in range(2):
            name = f"a-very-long-name-of-a-model-{'x' * 60}-b{beta}-s{seed}"
            scores = {f"score-{k}": beta + seed + k for k in range(9)}
            make_run(folder / name, options={"beta": beta}, seed=seed, scores=scores)
    return family_report(str(folder)).save(folder / "page.html")


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    """The page of latents that are maps."""
    x = map_reports.pictures(32)
    report = zs.assay(map_reports.passive(x), x, names=["diffusion"], resamples=2)
    return report.save(tmp_path_factory.mktemp("maps") / "report.html")


@pytest.fixture(scope="module")
def page(browser):
    """One tab for all tests, which open the report in it anew."""
    context = browser.new_context(offline=True)
    yield context.new_page()
    context.close()


def visit(page, saved, width=1280, scheme="light"):
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.goto(saved.as_uri())


def wait_for_the_images(page):
    """Wait for every image, also those below the fold.

    Playwright's wait_for_function evaluates its condition again by ``eval`` when it is not true at
    once, which the policy of our pages forbids; a promise needs no second evaluation.
    """
    page.evaluate(
        """async () => {
            const images = [...document.images];
            images.forEach((image) => { image.loading = 'eager'; });
            await Promise.allSettled(images.map((image) => image.decode()));
        }"""
    )


@pytest.mark.parametrize("width", [1200, 1030, 390, 320])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_opens_from_disk_without_a_request_an_error_or_a_sideways_scroll(
    page, saved, width, scheme
):
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    visit(page, saved, width, scheme)
    wait_for_the_images(page)
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate("[...document.images].every((i) => i.naturalWidth > 0)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(251, 250, 247)" if scheme == "light" else "rgb(21, 24, 27)")


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark"), (320, "light")])
def test_the_page_of_maps_opens_as_quietly(page, maps, width, scheme):
    complaints, requests = [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    visit(page, maps, width, scheme)
    wait_for_the_images(page)
    assert page.evaluate("[...document.images].every((i) => i.naturalWidth > 0)")
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_pictures_and_their_maps_line_up(page, maps):
    visit(page, maps)
    wait_for_the_images(page)
    sizes = page.locator(".maps td img").evaluate_all(
        "all => all.map((e) => [e.width, e.naturalWidth / e.naturalHeight])"
    )
    assert len(sizes) == 7  # input, reconstruction, four channels, modes
    assert len({round(width) for width, _ in sizes}) == 1
    assert len({round(ratio, 3) for _, ratio in sizes}) == 1


def test_the_lines_for_a_configuration_are_copied_or_selected(page, maps):
    visit(page, maps)
    button = page.locator("button.copy").first
    lines = page.locator("#config-all").text_content()
    assert lines.startswith('"scaling_factor": ')
    page.evaluate("() => { navigator.clipboard.writeText = async (t) => { window.copied = t; }; }")
    button.click()
    assert page.evaluate("window.copied") == lines
    assert button.text_content() == "Copied"
    page.evaluate("() => { navigator.clipboard.writeText = async () => { throw Error('no'); }; }")
    button.click()
    assert page.evaluate("getSelection().toString().trim()") == lines.strip()
    assert button.text_content().startswith("Selected")


@pytest.mark.parametrize("width", [1200, 320])
def test_the_page_of_a_sweep_opens_as_quietly(page, sweep, width):
    complaints, requests = [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", lambda request: requests.append(request.url))
    visit(page, sweep, width)
    wait_for_the_images(page)
    assert page.evaluate("[...document.images].every((i) => i.naturalWidth > 0)")
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_finding_has_room_around_its_words(page, saved):
    """A class of the table once had the name of a level, and took the margins away."""
    visit(page, saved)
    style = "all => all.map((e) => [getComputedStyle(e).paddingLeft, getComputedStyle(e).fontSize])"
    styles = page.locator(".finding").evaluate_all(style)
    levels = page.locator(".finding").evaluate_all("all => all.map((e) => e.className)")
    assert len(set(levels)) > 1
    assert len({tuple(each) for each in styles}) == 1


def test_paper_shows_what_is_folded_on_the_screen(page, saved):
    visit(page, saved)
    closed = "document.querySelectorAll('details:not([open])').length"
    before = page.evaluate(closed)
    assert before > 3
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(closed) == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(closed) == before
    assert page.pdf(format="A4", page_ranges="1")[:4] == b"%PDF"
