"""The overview of the codes, its files and the help, in a real browser."""

import base64
import csv
import json
import re

import numpy as np
import pytest
import torch
from conftest import VISITED, Principal, open_page, running, settle

import zscope as zs
from zscope.explorer.embedding import principal_components
from zscope.explorer.session import Session

# The place on the page of a point with these coordinates, in the middle of a canvas with margins.
PLACE = """([x, y, window]) => {
  const box = document.querySelector('canvas.scatter').getBoundingClientRect();
  const [l, r, t, b] = [46, 10, 10, 40];
  return [box.left + l + (x - window[0]) / (window[1] - window[0]) * (box.width - l - r),
    box.top + t + (1 - (y - window[2]) / (window[3] - window[2])) * (box.height - t - b)];
}"""
WINDOW = [-4.0, 4.0, -4.0, 4.0]
LINK = "#overview?by=factor:0&window=-4,4,-4,4"


@pytest.fixture
def page(tab, address):
    with open_page(tab, address, LINK) as page:
        settle(page)
        yield page


@pytest.fixture(scope="module")
def places(pictures):
    return principal_components(pictures.codes)[0][:, :2].numpy()


def point_at(page, x, y):
    return page.evaluate(PLACE, [float(x), float(y), WINDOW])


def hover(page, places, sample):
    x, y = point_at(page, *places[sample])
    page.mouse.move(x + 30, y + 30)
    page.mouse.move(x, y, steps=3)


def alone(places):
    """The sample that is farthest from all others, within the window."""
    inside = np.flatnonzero((np.abs(places) < 3.5).all(1))
    far = np.linalg.norm(places[inside, None] - places[None], axis=2)
    far[np.arange(len(inside)), inside] = np.inf
    return int(inside[far.min(1).argmax()])


def in_polygon(places, corners):
    """By winding numbers: another rule than that of the page."""
    x, y = places.T
    turns = np.zeros(len(places))
    for a, b in zip(corners, [*corners[1:], corners[0]], strict=True):
        one = np.arctan2(a[1] - y, a[0] - x)
        other = np.arctan2(b[1] - y, b[0] - x)
        turns += (other - one + np.pi) % (2 * np.pi) - np.pi
    return np.abs(turns) > np.pi


def downloads(page, click):
    with page.expect_download() as download:
        click()
    return download.value.suggested_filename, download.value.path().read_bytes()


def test_the_observation_under_the_pointer_is_shown(page, places, pictures):
    sample = alone(places)
    hover(page, places, sample)
    page.wait_for_selector(f".card h3:has-text('Sample {sample}')")
    settle(page)
    shown = page.locator(".card canvas").first.evaluate(
        "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    )
    x = pictures.recording.data.batch([sample])[0, 0]
    assert (np.array(shown[::4]) == (255 * x).round().flatten().numpy()).all()
    text = page.locator(".card").inner_text()
    factors = pictures.recording.factors
    shape = factors.labels["shape"][int(factors.values[sample, 0])]
    assert f"row {int(pictures.recording.rows[sample])} of the data" in text
    assert f"shape {shape}" in text
    page.wait_for_selector(".card .meter strong:has-text('hole score')")
    ratio = pictures.hole_scores([sample])[0]
    assert f"hole score {float(ratio[0]):.2f}" in page.locator(".card").inner_text()
    page.mouse.move(5, 5)
    page.wait_for_selector(".card", state="hidden")


def test_a_click_keeps_the_sample_which_opens_in_latents(page, places):
    sample = alone(places)
    hover(page, places, sample)
    page.mouse.click(*point_at(page, *places[sample]))
    page.get_by_role("button", name="Open in Latents").click()
    settle(page)
    assert page.url.endswith(f"#latents?sample={sample}")


def test_a_lasso_selects_exactly_the_codes_inside(page, places, pictures):
    corners = [(-1.5, -1.2), (1.8, -0.9), (0.2, 0.1), (1.1, 1.7), (-1.9, 1.1)]
    page.locator(".choices label", has_text="select").click()
    spots = [point_at(page, *corner) for corner in corners]
    page.mouse.move(*spots[0])
    page.mouse.down()
    for spot in spots[1:]:
        page.mouse.move(*spot)
    page.mouse.up()
    settle(page)
    expected = np.flatnonzero(in_polygon(places, corners))
    assert 10 < len(expected) < 290
    assert f"{len(expected)} of 300 codes selected" in page.locator(".chosen h2").inner_text()
    rows = page.locator(".chosen tbody th").all_inner_texts()
    assert rows == [str(sample) for sample in expected[:100]]
    save = page.get_by_role("button", name="Save as CSV")
    name, content = downloads(page, save.click)
    assert name == "codes.csv"
    table = list(csv.DictReader(content.decode().splitlines()))
    assert [int(row["index"]) for row in table] == pictures.recording.rows[expected].tolist()
    codes = np.array([[row[f"code_{j}"] for j in range(6)] for row in table]).astype(np.float32)
    assert (codes == pictures.codes[expected].numpy()).all()
    page.get_by_role("button", name="Clear the selection").click()
    settle(page)
    assert page.locator(".chosen table").count() == 0


def test_colours_of_a_factor_are_in_the_legend_and_select_their_codes(page, pictures):
    words = list(pictures.recording.factors.labels["shape"])
    chips = page.locator(".overview .chip")
    assert chips.all_inner_texts() == words
    colour = chips.nth(1).locator("i").evaluate("one => getComputedStyle(one).backgroundColor")
    chips.nth(1).click()
    settle(page)
    count = int((pictures.recording.factors.values[:, 0] == 1).sum())
    assert f"{count} of 300" in page.locator(".chosen h2").inner_text()
    # Points that are not selected are faint: the full colours are those of this shape alone.
    wanted = [int(part) for part in re.findall(r"\d+", colour)[:3]]
    counts = page.locator("canvas.scatter").evaluate(
        """(canvas, colours) => {
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          return colours.map(([r, g, b]) => {
            let count = 0;
            for (let k = 0; k < data.length; k += 4)
              count += data[k] === r && data[k + 1] === g && data[k + 2] === b;
            return count;
          });
        }""",
        [wanted, [0, 114, 178]],
    )
    assert counts[0] > 5 * count
    assert counts[1] == 0


def test_many_categories_of_own_labels_have_a_colour_each(tab):
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    words = [f"cluster {k % 25:02}" for k in range(300)]
    session = Session(zs.wrap(lambda x: x, lambda z: z), x.numpy(), name="own", labels=words)
    with running(session) as address, open_page(tab, address) as page:
        settle(page)
        chips = page.locator(".overview .chip")
        assert chips.all_inner_texts() == sorted(set(words))
        colours = chips.locator("i").evaluate_all(
            "dots => dots.map(dot => getComputedStyle(dot).backgroundColor)"
        )
        assert len(set(colours)) == 25
        chips.nth(3).click()
        settle(page)
        assert "12 of 300" in page.locator(".chosen h2").inner_text()
        assert "cluster 03" in page.locator(".chosen tbody").inner_text()
    session.close()


def test_every_way_to_colour_the_codes_has_its_legend(page):
    words = {"holes": "hole score", "precise": "active latents", "latent:1": "z1",
             "spread:0": "posterior std of z0", "factor:2": "orientation", "none": ""}  # fmt: skip
    for by, word in words.items():
        page.get_by_label("Colour by").select_option(by)
        settle(page)
        legend = page.locator(".overview .legends").inner_text()
        assert word in legend
        assert (legend == "") == (by == "none")
        assert f"by={by}" in page.url


def test_codes_of_one_latent_are_stacked_and_selected(tab, sprites):
    x = sprites.batch(slice(None))
    session = Session(Principal(x, used=1, unused=0), sprites, name="one", samples=100)
    with running(session) as address, open_page(tab, address, "#overview") as page:
        settle(page)
        assert "1 latent ·" in page.locator("header").inner_text()
        assert page.get_by_label("component on the x axis").is_visible()
        assert page.get_by_label("component on the y axis").is_hidden()
        page.get_by_role("button", name="Select what is visible").click()
        settle(page)
        assert "100 of 100" in page.locator(".chosen h2").inner_text()
    session.close()


def test_the_map_is_moved_zoomed_and_reset(page):
    box = page.locator("canvas.scatter").bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def window():
        settle(page)
        found = re.search(r"window=([^&]+)", page.url)
        return found and [float(value) for value in found[1].split(",")]

    page.mouse.move(*middle)
    page.mouse.wheel(0, -300)
    zoomed = window()
    assert zoomed[1] - zoomed[0] < 8
    page.mouse.down()
    page.mouse.move(middle[0] + 100, middle[1], steps=4)
    page.mouse.up()
    moved = window()
    assert moved[0] < zoomed[0]
    assert moved[1] - moved[0] == pytest.approx(zoomed[1] - zoomed[0], rel=1e-3)
    page.mouse.dblclick(*middle)
    assert window() is None


def test_codes_are_reached_and_selected_with_the_keyboard(page, places):
    page.locator("canvas.scatter").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".card:not([hidden])")
    settle(page)
    first = page.locator(".card h3").inner_text()
    middle = int(np.linalg.norm(places, axis=1).argmin())
    assert first == f"Sample {middle}"
    page.keyboard.press("ArrowUp")
    page.wait_for_function(f"() => document.querySelector('.card h3').textContent !== '{first}'")
    settle(page)
    above = int(re.search(r"\d+", page.locator(".card h3").inner_text())[0])
    assert places[above][1] > places[middle][1]
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent") == "Open in Latents"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.className") == "scatter"
    page.keyboard.press("s")
    settle(page)
    visible = int((np.abs(places) < 4).all(1).sum())
    assert f"{visible} of 300" in page.locator(".chosen h2").inner_text()
    page.keyboard.press("Escape")
    settle(page)
    assert page.locator(".chosen table").count() == 0


def test_pictures_are_placed_on_both_maps(page):
    for link, canvas in ((LINK, "canvas.scatter"), ("#map?grid=24", "canvas.plane")):
        page.goto(page.url.split("#")[0] + link)
        settle(page)
        plain = page.locator(canvas).evaluate("c => c.toDataURL()")
        page.get_by_label("Pictures on the map").check()
        settle(page)
        assert "pictures=1" in page.url
        assert page.locator(canvas).evaluate("c => c.toDataURL()") != plain
        page.get_by_label("Pictures on the map").uncheck()
        settle(page)
        assert page.locator(canvas).evaluate("c => c.toDataURL()") == plain


VIEWS = ["Codes", "Latents", "Map", "Matrix", "Graph", "Samples", "Compare"]


def test_every_view_is_saved_as_svg_png_and_csv(tab, address, pictures):
    with open_page(tab, address) as page:
        for view in VIEWS:
            page.get_by_role("tab", name=view).click()
            settle(page)

            def save(text, page=page):
                page.locator("#export summary").click()
                return downloads(page, page.get_by_role("button", name=text).click)

            name, svg = save("Picture as SVG")
            assert name.startswith("zscope-pictures-")
            inside = page.evaluate(
                """text => {
                  const svg = new DOMParser().parseFromString(text, 'image/svg+xml');
                  return [svg.documentElement.tagName, svg.querySelectorAll('text').length,
                    svg.querySelectorAll('image, path, rect').length];
                }""",
                svg.decode(),
            )
            assert inside[0] == "svg", view
            assert inside[1] > 5, view
            assert inside[2] > 5, view
            assert b"foreignObject" not in svg
            _, png = save("Picture as PNG")
            assert png.startswith(b"\x89PNG"), view
            assert len(png) > 5000
            _, table = save("All codes as CSV" if view == "Codes" else "Data as CSV")
            rows = list(csv.reader(table.decode().splitlines()))
            assert len({len(row) for row in rows}) == 1, view
            assert len(rows) > (0 if view == "Graph" else 3), view  # no latent affects another
            if view == "Latents":
                z = page.locator(".latent[data-latent='0'] input[type=number]").input_value()
                first = next(row for row in rows if row[0] == "0")
                assert float(first[2]) == pytest.approx(float(z), abs=0.006)


def test_a_map_as_svg_has_a_mark_for_every_code(page, places):
    page.locator("#export summary").click()
    _, svg = downloads(page, page.get_by_role("button", name="Picture as SVG").click)
    inside = (np.abs(places) < 4).all(1).sum()
    assert svg.decode().count("h0") == inside
    # The dots of the legend, one for each colour: one of them has no blue, which is not no colour.
    for colour in ("rgb(0, 114, 178)", "rgb(213, 94, 0)", "rgb(0, 158, 115)"):
        assert f'fill="{colour}"' in svg.decode()


def test_the_explanation_appears_at_the_first_visit_only(browser, address):
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#help:not([hidden])")
    texts = []
    for button in ("Next", "Next", "Done"):
        page.locator("#help .story canvas").first.wait_for()
        texts.append(page.locator("#help .step").inner_text())
        page.get_by_role("button", name=button, exact=True).click()
    assert [text[:9] for text in texts] == ["1. Encode", "2. Change", "3. Encode"]
    assert re.search(r"R\(z\):\s+z\d", texts[2])
    assert page.locator("#help").is_hidden()
    page.reload()
    page.wait_for_selector("[role=tab][aria-selected=true]")
    assert page.locator("#help").is_hidden()
    # Each start of the explorer has another port, and so another storage: a cookie remembers too.
    page.evaluate("localStorage.clear()")
    page.reload()
    page.wait_for_selector("[role=tab][aria-selected=true]")
    assert page.locator("#help").is_hidden()
    context.close()


def test_the_help_opens_and_closes_with_keys_and_lists_those_of_the_view(page):
    page.locator("#tab-latents").click()
    settle(page)
    page.keyboard.press("?")
    settle(page)
    assert page.evaluate("document.activeElement.id") == "help"
    keys = page.locator("#help .keys").inner_text()
    assert "move the chosen latent" in keys
    assert "the view before" in keys
    page.keyboard.press("Escape")
    assert page.locator("#help").is_hidden()
    assert page.evaluate("document.activeElement.id") == "tab-latents"


def test_digits_choose_a_latent_and_arrows_move_it(tab, address, pictures):
    with open_page(tab, address, "#latents?sample=3") as page:
        settle(page)
        second = pictures.latents[1]["latent"]
        before = float(page.locator(f"#slider-{second}").input_value())
        page.keyboard.press("2")
        assert page.evaluate("document.activeElement.id") == f"slider-{second}"
        page.keyboard.press("ArrowRight")
        settle(page)
        assert float(page.locator(f"#slider-{second}").input_value()) > before
        page.keyboard.press("n")
        settle(page)
        assert page.get_by_role("spinbutton", name="Data sample").input_value() == "4"
        page.keyboard.press("]")
        settle(page)
        assert "#map" in page.url
        page.keyboard.press("[")
        page.keyboard.press("[")
        settle(page)
        assert "#overview" in page.url
        # In a field for numbers, digits are digits.
        page.goto(page.url.split("#")[0] + "#latents?sample=3")
        settle(page)
        page.get_by_role("spinbutton", name="Data sample").fill("12")
        page.keyboard.press("Enter")
        settle(page)
        assert "sample=12" in page.url


def test_no_view_overflows_a_phone(browser, address, maps_address):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    context.add_init_script(VISITED)
    page = context.new_page()
    for start, views in ((address, VIEWS), (maps_address, ["Channels", "Codes", "Compare"])):
        page.goto(start)
        for view in views:
            page.get_by_role("tab", name=view).click()
            page.wait_for_function(
                "() => document.getElementById('view').getAttribute('aria-busy') === 'false'"
            )
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
    page.goto(address)
    page.locator("canvas.scatter").wait_for()
    page.wait_for_function(
        "() => document.getElementById('view').getAttribute('aria-busy') === 'false'"
    )
    box = page.locator("canvas.scatter").bounding_box()
    page.keyboard.press("?")
    assert page.locator("#help").bounding_box()["width"] == pytest.approx(390, abs=2)
    page.keyboard.press("Escape")
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector(".card:not([hidden])")
    card = page.locator(".card").bounding_box()
    assert card["width"] <= 390
    assert card["y"] + card["height"] == pytest.approx(844, abs=2)  # a sheet at the bottom
    context.close()


def test_waiting_for_umap_is_said_and_ends(tab, address, pictures):
    replies = iter([False, False])

    def answer(route):
        if json.loads(route.request.post_data or "{}").get("method") != "umap":
            return route.continue_()
        points = pictures.codes[:, :2].numpy().astype("<f4")
        texts = [base64.b64encode(points[:, k].tobytes()).decode() for k in range(2)]
        content = {"method": "umap", "ready": next(replies, True), "seconds": 7.2, "shares": [],
                   "axes": [0, 1], "names": ["UMAP 1", "UMAP 2"],
                   "x": {"count": 300, "floats": texts[0]},
                   "y": {"count": 300, "floats": texts[1]}}  # fmt: skip
        return route.fulfill(json=content)

    tab.route("**/api/overview", answer)
    try:
        with open_page(tab, address) as page:
            settle(page)
            page.get_by_label("Show", exact=True).select_option("umap")
            page.wait_for_selector(".busy:has-text('Computing UMAP of 300 codes, once: 7 s')")
            page.wait_for_selector(".busy:has-text('Computing UMAP')", state="hidden")
            settle(page)
            assert "method=umap" in page.url
            assert page.get_by_label("x axis").is_hidden()
    finally:
        tab.unroute("**/api/overview")
