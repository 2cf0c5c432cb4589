"""The explorer in a real browser."""

import re
import threading

import pytest
import torch
from conftest import QUIET, Principal, new_tab, open_page, running, settle

import zscope as zs
from zscope.explorer.session import Session

VIEWS = ["Codes", "Latents", "Map", "Matrix", "Graph", "Samples", "Compare"]
PIXELS = """canvas => Array.from(
  canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data)"""
SET = """(one, value) => {
  one.value = value;
  for (const name of ['input', 'change']) one.dispatchEvent(new Event(name, {bubbles: true}));
}"""
STATUS = "text => new RegExp(text).test(document.getElementById('status').textContent)"

NAMELESS = """() => Array.from(document.querySelectorAll('input, select, button, a, canvas'))
  .filter(e => e.offsetParent)
  .filter(e => !(e.labels?.length || e.getAttribute('aria-label')
    || e.textContent.trim() || e.closest('button[aria-label]')))
  .map(e => e.outerHTML.slice(0, 120))"""
CONTRAST = """() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const ground = e => {
    for (; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = Array.from(e.childNodes).some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.offsetParent || e.closest('option')) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${ratio.toFixed(2)} ${e.outerHTML.slice(0, 100)}`);
  }
  return bad;
}"""


def name_of(title):
    return {"Codes": "overview"}.get(title, title.lower())


def picture(page, selector):
    """What a canvas shows, as something to compare."""
    return page.locator(selector).first.evaluate("canvas => canvas.toDataURL()")


def move(page, latent, value):
    """Drag a slider as the browser does, and wait for the picture."""
    page.evaluate("() => { document.querySelector('.decoded').dataset.latency = '' }")
    page.locator(f"#slider-{latent}").evaluate(SET, value)
    page.wait_for_function("() => document.querySelector('.decoded').dataset.latency !== ''")


@pytest.fixture(scope="module")
def tour(tab, address):
    """Facts about every view, visited by its tab, in both themes."""
    views = {}
    with open_page(tab, address, colours="light") as page:
        for name in VIEWS:
            page.get_by_role("tab", name=name).click()
            settle(page)
            twin = page.locator("#json").get_attribute("href")
            facts = {
                "url": page.url,
                "title": page.title(),
                "text": page.locator("[role=tabpanel]").inner_text().strip(),
                "twin": twin,
                "answer": page.evaluate("path => fetch(path).then(reply => reply.json())", twin),
                "nameless": page.evaluate(NAMELESS),
                "light": page.evaluate(CONTRAST),
            }
            page.emulate_media(color_scheme="dark")
            facts["dark"] = page.evaluate(CONTRAST)
            page.emulate_media(color_scheme="light")
            page.set_viewport_size({"width": 360, "height": 740})
            facts["width"] = page.evaluate("document.documentElement.scrollWidth")
            page.set_viewport_size({"width": 1280, "height": 900})
            views[name] = facts
    return views


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_opens_by_its_tab(tour, name):
    assert f"#{name_of(name)}" in tour[name]["url"]
    assert "token" not in tour[name]["url"]
    assert name in tour[name]["title"]
    assert tour[name]["text"]


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_has_its_json(tour, name):
    assert tour[name]["twin"].startswith(f"api/{name_of(name)}")
    assert "error" not in tour[name]["answer"]


@pytest.mark.parametrize("name", VIEWS)
def test_every_control_has_a_name(tour, name):
    assert tour[name]["nameless"] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", VIEWS)
def test_text_has_the_contrast_of_wcag_aa(tour, name, scheme):
    assert tour[name][scheme] == []


@pytest.mark.parametrize("name", VIEWS)
def test_no_view_is_wider_than_a_phone(tour, name):
    assert tour[name]["width"] <= 360


def test_the_colours_can_be_chosen(tab, address):
    with open_page(tab, address, colours="light") as page:
        ground = "() => getComputedStyle(document.body).backgroundColor"
        before = page.evaluate(ground)
        page.locator("#theme").click()
        dark = page.evaluate(ground)
        assert dark != before
        page.reload()
        page.wait_for_selector("[role=tab][aria-selected=true]")
        assert page.evaluate(ground) == dark


def test_moving_a_slider_changes_the_picture_to_the_decoded_one(tab, address, pictures):
    import torch

    with open_page(tab, address, "#latents?z=0,0,0,0,0,0") as page:
        settle(page)
        before = picture(page, "canvas.decoded")
        move(page, 0, 2.0)
        after = picture(page, "canvas.decoded")
        assert before != after
        z = float(page.locator("#slider-0").input_value())
        x = pictures.model.decode(torch.tensor([[z, 0, 0, 0, 0, 0]]))[0, 0]
        pixels = page.locator("canvas.decoded").evaluate(PIXELS)
        assert pixels[::4] == (255 * x).round().int().flatten().tolist()
        page.wait_for_url(f"**#latents?z={round(z, 4):g},0,0,0,0,0")
        # A latent that the decoder ignores changes nothing, and answers with 0.
        move(page, 4, -2.0)
        assert picture(page, "canvas.decoded") == after
        assert page.locator(".latent[data-latent='4'] output").inner_text() == "0.00"


def test_the_time_from_slider_to_picture_is_shown(tab, address):
    """How long it may be is for benchmarks/explorer.py: this holds on any machine."""
    with open_page(tab, address, "#latents") as page:
        settle(page)
        move(page, 0, -2)
        assert float(page.locator(".decoded").get_attribute("data-latency")) > 0
        assert re.search(r"slider to picture: \d+ ms", page.locator(".timing").inner_text())


def test_codes_are_drawn_projected_and_started_from_data(tab, address, pictures):
    with open_page(tab, address, "#latents") as page:
        settle(page)
        for source in ("Prior", "Posterior", "Hybrid", "Uniform"):
            before = picture(page, "canvas.decoded")
            page.get_by_role("button", name=source, exact=True).click()
            settle(page)
            assert picture(page, "canvas.decoded") != before
        page.get_by_role("button", name="Make self-consistent").click()
        page.wait_for_selector(".projection .strip li:nth-child(2)")
        # It is animated; screen readers are told when it ends.
        page.wait_for_function(STATUS, arg="[Cc]onverged after")
        settle(page)
        assert "moves further than" in page.locator(".meter").inner_text()
        assert "times the usual spacing away from data" in page.locator(".meter").inner_text()
        assert "on the manifold" not in page.locator("body").inner_text()
        index = page.get_by_role("spinbutton", name="Data sample")
        index.fill("17")
        index.press("Enter")
        settle(page)
        assert page.url.endswith("#latents?sample=17")
        assert page.locator("#slider-0").evaluate("one => Number(one.value)") == pytest.approx(
            float(pictures.codes[17, 0]), abs=0.02
        )
        page.get_by_role("button", name="Next sample").click()
        settle(page)
        assert page.url.endswith("#latents?sample=18")


def test_a_path_is_drawn_between_two_clicks(tab, address):
    with open_page(tab, address, "#map?first=0&second=1&grid=24&factor=0") as page:
        settle(page)
        box = page.locator("canvas.plane").bounding_box()
        before = picture(page, "canvas.plane")
        at = lambda x, y: (box["x"] + x * box["width"], box["y"] + y * box["height"])  # noqa: E731
        page.mouse.click(*at(0.35, 0.6))
        page.mouse.click(*at(0.7, 0.35))
        page.wait_for_selector(".film .strip")
        settle(page)
        assert page.locator(".film").count() == 2
        assert page.locator(".film .strip li").count() == 18
        assert picture(page, "canvas.plane") != before
        assert "a=" in page.url
        assert "b=" in page.url
        # Dragging decodes whatever lies under the hand.
        page.wait_for_selector(".side canvas.decoded")
        decoded = picture(page, ".side canvas.decoded")
        page.mouse.move(*at(0.5, 0.8))
        page.mouse.down()
        page.mouse.move(*at(0.4, 0.7), steps=4)
        page.mouse.move(*at(0.3, 0.3), steps=4)
        page.mouse.up()
        settle(page)
        assert picture(page, ".side canvas.decoded") != decoded
        page.get_by_role("button", name="Remove path").click()
        settle(page)
        assert page.locator(".film").count() == 0


def test_the_map_is_walked_with_the_keyboard(tab, address):
    with open_page(tab, address, "#map?first=0&second=1&grid=24") as page:
        settle(page)
        page.locator("canvas.plane").focus()
        for key in ("Shift+ArrowLeft", "Enter", "Shift+ArrowRight", "Shift+ArrowUp", "Enter"):
            page.keyboard.press(key)
            settle(page)
        page.wait_for_selector(".film .strip")
        page.keyboard.press("Escape")
        settle(page)
        assert page.locator(".film").count() == 0


def test_a_cell_of_the_matrix_opens_its_traversal(tab, address):
    with open_page(tab, address, "#matrix") as page:
        settle(page)
        for kind in ("Relative", "By factor", "Importance", "Invariance", "Response"):
            page.locator(".choices label", has_text=kind).click()
            settle(page)
            assert page.get_by_role("gridcell").count() >= 20
        cell = page.get_by_role("gridcell", name="replaced latent 2, observed latent 1:")
        cell.hover()
        assert "replaced 2 → latent 1" in page.locator(".readout").inner_text()
        cell.click()
        page.wait_for_selector("h3:has-text('Traversal of z2')")
        settle(page)
        assert "row=2&column=1" in page.url
        cell.focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_selector("h3:has-text('Traversal of z3')")


def test_the_graph_shows_causal_latents_and_hides_weak_edges(tab, address, pictures):
    with open_page(tab, address, "#graph") as page:
        settle(page)
        assert page.locator("svg.graph .node").count() == 4
        page.locator("svg.graph .node").first.click()
        page.wait_for_selector("h3:has-text('Traversal of z0')")
        page.get_by_label("Hide arrows weaker than").evaluate(SET, 1e6)
        settle(page)
        assert page.locator("svg.graph .edge").count() == 0
        assert "threshold=" in page.url


def test_a_sample_of_a_sheet_opens_in_latents(tab, address):
    with open_page(tab, address, "#samples?source=data&count=12&seed=3") as page:
        settle(page)
        tiles = page.locator(".sheet button")
        assert tiles.count() == 12
        assert re.match(r"\d+ % · [\d.]+ ×", page.locator(".sheet .caption").first.inner_text())
        first = picture(page, ".sheet canvas")
        tiles.first.click()
        settle(page)
        assert re.search(r"#latents\?sample=\d+$", page.url)
        assert picture(page, ".pair canvas") == first
        page.go_back()
        settle(page)
        assert tiles.count() == 12


@pytest.mark.parametrize(
    "link",
    [
        "#overview?method=latents&first=2&second=0&by=factor:2&window=-1,2,-1,1",
        "#latents?z=1.5,-0.5,0,0.25,0,0",
        "#latents?sample=23",
        "#map?first=2&second=0&grid=24&sample=4&layer=curvature&factor=2&a=-1,0.5&b=1,1",
        "#matrix?kind=conditioned&row=1&column=2",
        "#graph?threshold=0.02",
        "#samples?source=hybrid&count=24&seed=5&order=score",
        "#compare?sample=8&of=latents",
    ],
)
def test_a_link_restores_what_it_was_copied_from(tab, address, link):
    def state(page):
        settle(page)
        return (
            page.locator("[role=tabpanel]").evaluate(
                "one => [one.innerText.replace(/slider to picture.*/, ''),"
                " ...Array.from(one.querySelectorAll('input, select'), i => i.type === 'radio' ?"
                " i.checked : i.value)]"
            ),
            [
                canvas.evaluate("one => one.toDataURL()")
                for canvas in page.locator("[role=tabpanel] canvas:visible").all()
            ],
        )

    with open_page(tab, address, link) as page:
        first = state(page)
        copied = page.url
    with open_page(tab, address, "#" + copied.split("#")[1]) as page:
        assert state(page) == first
        assert page.url == copied


def test_a_link_pasted_into_an_open_page_is_followed(tab, address):
    with open_page(tab, address, "#samples?count=12") as page:
        settle(page)
        home = page.url.split("#")[0]
        page.goto(home + "#latents?z=1,0,0,0,0,0")
        settle(page)
        assert page.locator(".latent[data-latent='0'] input[type=number]").input_value() == "1.00"
        page.goto(home + "#latents?z=not,a,vector")
        settle(page)
        assert page.locator(".latent").count() == 6
        for strange in (
            "#nothing?x=1",
            "#constructor",
            "#map?layer=constructor",
            "#%00",
            "#latents",
        ):
            page.goto(home + strange)
            settle(page)
        assert page.locator(".latent").count() == 6


def test_views_and_sliders_are_reached_without_a_mouse(tab, address):
    with open_page(tab, address) as page:
        settle(page)
        page.locator("[role=tab][aria-selected=true]").focus()
        page.keyboard.press("End")
        settle(page)
        assert page.evaluate("document.activeElement.textContent") == "Compare"
        for title in ("Codes", "Latents"):
            page.keyboard.press("ArrowRight")
            settle(page)
            assert page.evaluate("document.activeElement.textContent") == title
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        before = picture(page, "canvas.decoded")
        page.locator("#slider-0").focus()
        page.keyboard.press("PageUp")
        settle(page)
        assert picture(page, "canvas.decoded") != before


def test_rows_are_shown_as_lines_and_tables(tab, rows_address):
    with open_page(tab, rows_address) as page:
        for name in VIEWS:
            page.get_by_role("tab", name=name).click()
            settle(page)
        page.get_by_role("tab", name="Latents").click()
        settle(page)
        assert page.get_by_role("button", name="Prior", exact=True).count() == 0
        cells = page.locator(".decoded table td")
        assert cells.count() == 9  # three features, decoded, data, decoded again
        line = page.locator(".decoded polyline").first
        before = line.get_attribute("points"), cells.all_inner_texts()
        move(page, 0, 1.0)
        assert (line.get_attribute("points"), cells.all_inner_texts()) != before
        page.get_by_role("tab", name="Samples").click()
        settle(page)
        assert page.locator(".sheet svg").count() == 48
        page.get_by_role("tab", name="Compare").click()
        assert "--compare" in page.locator("[role=tabpanel]").inner_text()


def test_features_of_rows_are_called_by_their_names(tab):
    x = torch.rand(50, 2, generator=torch.Generator().manual_seed(0))
    data = zs.data.from_arrays(x, feature_names=("height", "weight"))
    session = Session(zs.wrap(lambda x: x, lambda z: z), data, name="named")
    with running(session) as address, open_page(tab, address, "#latents") as page:
        settle(page)
        names = page.locator(".decoded table tbody th").all_inner_texts()
        assert names == ["height", "weight"]
    session.close()


def test_a_model_that_throws_is_said_on_the_page_which_goes_on(tab, address, pictures, caplog):
    model = pictures.model
    plain = model.decode

    def throwing(z):
        if float(z[0, 0]) > 2.5:
            raise RuntimeError("out of range")
        return plain(z)

    model.decode = throwing
    try:
        tab.goto(address + "#latents")
        tab.wait_for_selector(".latent")
        settle(tab)
        slider = tab.locator("#slider-0")
        for value, fails in ((2.9, True), (1.0, False)):
            slider.evaluate(SET, value)
            tab.locator("#alert").wait_for(state="visible" if fails else "hidden")
            if fails:
                # The traversal, requested a moment later, is answered; the message stays.
                tab.wait_for_selector("h3:has-text('Traversal of z0')")
                tab.evaluate(QUIET)
                message = tab.locator("#alert").inner_text()
                assert "raised RuntimeError: out of range" in message
                assert "Go back to a data sample" in message
    finally:
        del model.decode


# What the model made, as the page shows it; the data sample is not the model's.
SHOWN = """() => {
  const painted = canvas => canvas.getContext('2d')
    .getImageData(0, 0, canvas.width, canvas.height).data.some((value, k) => k % 4 === 3 && value);
  const panel = document.querySelector('[role=tabpanel]');
  const visible = Array.from(panel.querySelectorAll(
    'canvas, .row-plot svg, .strip li, .sheet li, [role=gridcell], svg.graph, meter, .response'))
    .filter(one => one.getClientRects().length && one.ariaLabel !== 'The data sample');
  return visible.filter(one => one.matches('canvas') ? painted(one)
    : one.matches('.response') ? /\\d/.test(one.textContent) : true)
    .map(one => `${one.tagName} ${one.className} ${one.ariaLabel}`);
}"""
INTERACTIONS = {
    "#latents?z=0,0,0,0,0,0": lambda page: page.locator("#slider-0").evaluate(SET, 1.5),
    "#latents?sample=3": lambda page: page.get_by_role("button", name="Next sample").click(),
    "#map?first=0&second=1&grid=24&a=-1,0&b=1,1": lambda page: page.get_by_label(
        "y axis"
    ).select_option("2"),
    "#matrix": lambda page: page.locator(".choices label", has_text="Invariance").click(),
    "#graph": lambda page: page.get_by_role("button", name="Default").click(),
    "#samples?count=12": lambda page: page.get_by_role("button", name="Draw again").click(),
    "#compare?of=layers": lambda page: page.get_by_role("button", name="Next sample").click(),
}


class Failing(Principal):
    """Principal components until `broken` is set, and an error from then on."""

    broken = threading.Event()  # also of the copy in the other lane

    def encode(self, x, auxiliary=None):
        if self.broken.is_set():
            raise RuntimeError("the encoder broke")
        return super().encode(x)

    def decode(self, z):
        if self.broken.is_set():
            raise RuntimeError("the decoder broke")
        return super().decode(z)


@pytest.fixture(scope="module")
def failing(sprites):
    x = sprites.batch(slice(None))
    other = Failing(x, turn=0.7, unused=0)
    session = Session(Failing(x), sprites, name="failing", samples=100, other=other)
    with running(session) as address:
        yield session, address
    session.close()


@pytest.mark.parametrize("link", INTERACTIONS)
def test_after_a_model_throws_no_former_picture_stays(tab, failing, link, monkeypatch):
    session, address = failing
    tab.goto(address + link)
    tab.wait_for_selector("[role=tab][aria-selected=true]")
    settle(tab)
    assert tab.evaluate(SHOWN)
    session._cache.clear()
    plain = session.measure  # which knows the responses by now

    def measure(name, **options):
        session.subject.copy.autoencoder.decode(session.codes)
        return plain(name, **options)

    monkeypatch.setattr(session, "measure", measure)
    Failing.broken.set()
    try:
        INTERACTIONS[link](tab)
        tab.locator("#alert").wait_for(state="visible")
        tab.evaluate(QUIET)
        assert re.search("raised RuntimeError.*: the (en|de)coder broke", tab.inner_text("#alert"))
        if "compare" in link:  # the similarity of layers was not asked for again
            assert tab.locator(".reconstructions figure").count() == 0
            tab.locator(".choices label", has_text="Latents").click()
            tab.locator(".choices label", has_text="Layers").click()
            tab.evaluate(QUIET)
        assert tab.evaluate(SHOWN) == []
        tab.locator("#theme").click()  # nor when everything is drawn again
        assert tab.evaluate(SHOWN) == []
    finally:
        Failing.broken.clear()
        tab.evaluate("localStorage.clear()")
    tab.locator("[role=tab][aria-selected=true]").click()
    settle(tab)
    assert tab.evaluate(SHOWN)
    assert tab.locator("canvas.failed").count() == 0


def test_after_a_model_of_rows_throws_no_former_line_stays(tab, rows_address, rows, monkeypatch):
    tab.goto(rows_address + "#latents")
    tab.wait_for_selector(".latent")
    settle(tab)
    assert tab.locator(".decoded svg").count() == 1

    def throw(z):
        raise RuntimeError("the decoder broke")

    monkeypatch.setattr(rows.model, "decode", throw)
    tab.locator("#slider-0").evaluate(SET, 0.5)
    tab.locator("#alert").wait_for(state="visible")
    tab.evaluate(QUIET)
    assert tab.locator(".decoded svg, .decoded table").count() == 0
    assert "No answer" in tab.locator(".decoded").inner_text()


def test_several_browsers_are_served_at_once(browser, tab, address):
    with (
        new_tab(browser) as second,
        open_page(tab, address, "#latents") as one,
        open_page(second, address, "#map?grid=24") as other,
    ):
        settle(one)
        move(one, 1, 1.0)
        settle(other)
        move(one, 1, -1.0)
        assert "#map" in other.url
        assert "#latents" in one.url


def test_a_server_that_has_gone_is_said_so(tab, rows):
    with running(rows) as address:
        tab.goto(address + "#latents")
        tab.wait_for_selector(".latent")
    tab.get_by_role("tab", name="Samples").click()
    tab.locator("#alert").wait_for(state="visible")
    assert "does not answer" in tab.locator("#alert").inner_text()
