"""A default report in a real browser: how long it is, what folds, what stays in view."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from worlds import grid

import zscope as zs
from zscope.data.dataset import from_arrays

LATENTS = 10
AXES = torch.linalg.qr(torch.randn(64, LATENTS, generator=torch.Generator().manual_seed(1))).Q.T
USED = torch.tensor([1.0] * 6 + [0.0] * 4)


class TenLatents(zs.Autoencoder):
    """Decodes ten latents into 8 x 8 pictures; the last four carry nothing."""

    latents = LATENTS

    def encode(self, x, auxiliary=None):
        mean = x.flatten(1).clamp(1e-4, 1 - 1e-4).logit() @ AXES.T * USED
        return zs.Posterior(mean, (0.2 * USED + 1 - USED).expand_as(mean))

    def decode(self, z):
        return ((z * USED) @ AXES).sigmoid().reshape(-1, 1, 8, 8)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Everything that applies to a model of ten latents, on data with three factors."""
    factors = grid(6, 5, 4)
    values = torch.from_numpy((factors - factors.mean(0)) / factors.std(0)).float()
    values = torch.cat([values, values.roll(1, 0).prod(1, keepdim=True)], 1)
    pictures = (values @ AXES[:4]).sigmoid().reshape(-1, 1, 8, 8)
    data = from_arrays(pictures, factors, name="grid", factor_names=("height", "width", "tilt"))
    report = zs.assay(TenLatents(), data, quick=True)
    assert report.failed == {}
    return report.save(tmp_path_factory.mktemp("layout") / "report.html")


@pytest.fixture(scope="module")
def tab(browser):
    context = browser.new_context(offline=True)
    yield context.new_page()
    context.close()


def visit(tab, saved, width, scheme="light"):
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    tab.goto(saved.as_uri())
    tab.evaluate(
        """async () => {
            const images = [...document.images];
            images.forEach((image) => { image.loading = 'eager'; });
            await Promise.allSettled(images.map((image) => image.decode()));
        }"""
    )


def test_a_default_report_of_ten_latents_is_short_and_small(tab, saved):
    visit(tab, saved, 1400)
    assert tab.locator("article.assay").count() > 35
    assert tab.evaluate("document.documentElement.scrollHeight") < 15_000
    assert len(saved.read_bytes()) < 5_000_000


def test_every_letter_of_a_figure_is_readable(tab, saved):
    """At least 11 CSS pixels at the size at which a figure is shown; exponents may be smaller."""
    visit(tab, saved, 1400)
    sizes = tab.evaluate(
        """async () => {
            document.querySelectorAll('details').forEach((each) => { each.open = true; });
            const all = [];
            for (const image of document.querySelectorAll('.assay img')) {
                const text = atob(image.src.split(',')[1]);
                const svg = new DOMParser().parseFromString(text, 'image/svg+xml').documentElement;
                const scale = image.getBoundingClientRect().width / svg.viewBox.baseVal.width;
                document.body.append(svg);
                for (const each of svg.querySelectorAll('text'))
                    all.push([scale * parseFloat(getComputedStyle(each).fontSize), image.alt]);
                svg.remove();
            }
            return all;
        }"""
    )
    assert len(sizes) > 1000
    assert min(sizes)[0] >= 11, min(sizes)


def test_contents_stay_in_view_and_say_where_one_is(tab, saved):
    visit(tab, saved, 1400)
    tab.evaluate("document.getElementById('group-regime').scrollIntoView({behavior: 'instant'})")
    tab.wait_for_timeout(200)
    box = tab.locator(".contents nav").bounding_box()
    assert box["y"] >= 0
    assert box["x"] + box["width"] < tab.locator("main").bounding_box()["x"]
    current = tab.locator(".contents a[aria-current]")
    assert current.all_text_contents() == ["Regime"]
    assert tab.locator(".contents a[href='#variable-types']").is_visible()
    assert not tab.locator(".contents a[href='#mig']").is_visible()


def test_contents_are_folded_on_a_phone_and_close_after_a_choice(tab, saved):
    visit(tab, saved, 390)
    link = tab.locator(".contents a[href='#scores']")
    assert not link.is_visible()
    tab.locator(".contents summary").click()
    link.click()
    tab.wait_for_timeout(200)
    assert not link.is_visible()
    assert 0 <= tab.locator("#scores h2").bounding_box()["y"] < 300


def test_a_link_to_a_folded_assay_opens_it(tab, saved):
    visit(tab, saved, 1400)
    folded = tab.locator(".rest article").first
    assert not folded.is_visible()
    name = folded.get_attribute("id")
    tab.evaluate("(name) => { location.hash = name; }", name)
    tab.wait_for_timeout(200)
    assert folded.is_visible()
    assert -5 <= folded.bounding_box()["y"] < 300


def test_the_table_of_latents_folds_on_a_phone_instead_of_being_cut(tab, saved):
    visit(tab, saved, 390)
    for name in ("type", "KL, nats", "response", "best factor", "range"):
        cells = tab.locator(f".latents td[data-label='{name}']")
        assert cells.count() == LATENTS
        boxes = cells.evaluate_all("all => all.map((e) => e.getBoundingClientRect().right)")
        assert max(boxes) <= 390
    wide = "all => all.filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    assert tab.locator(".scroll:has(.fold)").evaluate_all(wide) == 0


def test_cards_use_the_whole_width(tab, saved):
    visit(tab, saved, 1400)
    right = tab.locator(".assays").first.evaluate("(e) => e.getBoundingClientRect().right")
    rows = (
        tab.locator(".assays")
        .first.locator("article")
        .evaluate_all(
            "all => all.map((e) => e.getBoundingClientRect()).map((b) => [b.top, b.right])"
        )
    )
    assert right > 1300
    for top in {top for top, _ in rows}:
        assert max(end for start, end in rows if start == top) == pytest.approx(right, abs=2)


def test_findings_have_their_numbers_beside_them(tab, saved):
    visit(tab, saved, 1400)
    for finding in tab.locator(".finding.problem, .finding.note").all():
        words, table = finding.locator(".words").bounding_box(), finding.locator("table")
        assert table.bounding_box()["x"] >= words["x"] + words["width"]
        assert table.locator("td").count() >= 1


def brightness(tab, selector):
    pixels = Image.open(io.BytesIO(tab.locator(selector).screenshot())).convert("L")
    return np.asarray(pixels, float)


def test_figures_are_dark_in_the_dark_and_pictures_of_data_keep_their_colours(tab, saved):
    visit(tab, saved, 1400)
    bars = brightness(tab, "#variable-types img >> nth=0")
    strip = brightness(tab, ".strip img >> nth=0")
    visit(tab, saved, 1400, "dark")
    assert np.median(bars) > 230
    assert np.median(brightness(tab, "#variable-types img >> nth=0")) < 60
    dark_strip = brightness(tab, ".strip img >> nth=0")
    unchanged = np.abs(dark_strip - strip) < 5  # all but the gaps between pictures
    assert unchanged.mean() > 0.8


def test_nothing_is_cut_on_paper(tab, saved):
    visit(tab, saved, 680)  # A4 without its margins
    tab.emulate_media(media="print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 680
    assert not tab.locator(".contents").is_visible()
    tab.emulate_media(media="screen")


def test_the_page_says_all_without_scripts(browser, saved):
    context = browser.new_context(offline=True, java_script_enabled=False)
    tab = context.new_page()
    tab.set_viewport_size({"width": 390, "height": 900})
    tab.goto(saved.as_uri())
    assert tab.locator(".contents a[href='#scores']").is_visible()
    summary = tab.locator("details.rest > summary").first
    summary.click()
    assert tab.locator("details.rest article").first.is_visible()
    context.close()


def test_every_assay_has_its_sentences_and_a_link_to_its_documentation(tab, saved):
    from zscope.assays import CATALOGUE
    from zscope.site import assay_page

    visit(tab, saved, 1400)
    for name in tab.locator("article.assay").evaluate_all("all => all.map((e) => e.id)"):
        article = tab.locator(f"article#{name}")
        assert article.locator(".meaning").text_content().startswith(CATALOGUE[name].meaning)
        assert article.locator("a.doc").get_attribute("href") == assay_page(name)
        if article.locator("img").count():
            assert article.locator("figcaption").text_content() == CATALOGUE[name].figure
