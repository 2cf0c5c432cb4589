"""Latent maps in a real browser."""

import threading

import pytest
import torch
import torch.nn.functional as F
from conftest import QUIET, Convolutional, open_page, running, settle
from test_explorer_page import CONTRAST, NAMELESS, SET, SHOWN, picture

import zscope as zs
from zscope.explorer.session import Session
from zscope.explorer.views.channels import Channels, channels

# Of a copy: the browser warns of a canvas that is read many times.
PIXELS = """canvas => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height);
  const context = copy.getContext('2d', {willReadFrequently: true});
  context.drawImage(canvas, 0, 0);
  return Array.from(context.getImageData(0, 0, canvas.width, canvas.height).data);
}"""


def canvas_of(page, channel, which=0):
    """The map of a channel (0), or what is shown beside it (1)."""
    return page.locator(f".channel[data-channel='{channel}'] canvas").nth(which)


def place(page, channel, row, column, side=8):
    """Where on the screen a place of a map is."""
    box = canvas_of(page, channel).bounding_box()
    return (
        box["x"] + (column + 0.5) * box["width"] / side,
        box["y"] + (row + 0.5) * box["height"] / side,
    )


def shot(canvas):
    return canvas.evaluate("one => one.toDataURL()")


def decoded_pixels(session, **changes):
    """What the page must show of the decoded picture, as red, green and blue."""
    answer = channels(session, Channels(exact=True, **changes))["decoded"]
    x = torch.tensor(answer["values"]).reshape(answer["shape"])
    return (255 * x.permute(1, 2, 0)).round().int().flatten().tolist()


def shown_pixels(page):
    pixels = page.locator("canvas.decoded").evaluate(PIXELS)
    return [value for k, value in enumerate(pixels) if k % 4 < 3]


def test_a_model_of_maps_opens_on_its_channels(tab, maps_address):
    with open_page(tab, maps_address) as page:
        settle(page)
        assert page.get_by_role("tab").all_inner_texts() == ["Channels", "Codes", "Compare"]
        assert page.get_by_role("tab", selected=True).inner_text() == "Channels"
        assert "latents 4 × 8 × 8 (channels × height × width)" in page.inner_text("#about")
        assert page.locator(".channel h3").all_inner_texts() == [f"channel {k}" for k in range(4)]
        assert page.locator(".latent").count() == 0
        for link in ("#latents", "#map", "#matrix", "#graph", "#samples?source=prior"):
            page.goto(maps_address.split("?")[0] + link)
            settle(page)
            assert page.get_by_role("tab", selected=True).inner_text() == "Channels"
        page.get_by_role("tab", name="Compare").click()
        settle(page)
        assert page.locator(".reconstructions figure").count() == 3
        assert page.locator(".code-bars").count() == 0
        assert "correlation" not in page.locator("[role=tabpanel]").inner_text()


def test_dragging_in_a_map_changes_the_picture_to_the_decoded_one(tab, maps_address, maps):
    with open_page(tab, maps_address, "#channels?sample=7") as page:
        settle(page)
        assert shown_pixels(page) == decoded_pixels(maps, sample=7)
        before = [shot(canvas_of(page, k)) for k in range(4)]
        assert page.locator(".outlines .brushed").count() == 0
        page.mouse.move(*place(page, 0, 2, 3))
        page.mouse.down()
        page.mouse.move(*place(page, 0, 2, 5), steps=2)  # places between are not left out
        page.mouse.up()
        settle(page)
        brush = [0, 2, 3, 1, 2, 0, 2, 4, 1, 2, 0, 2, 5, 1, 2]
        assert page.url.endswith(f"#channels?sample=7&brush={','.join(map(str, brush))}")
        changed = decoded_pixels(maps, sample=7, brush=brush)
        assert shown_pixels(page) == changed != decoded_pixels(maps, sample=7)
        after = [shot(canvas_of(page, k)) for k in range(4)]
        assert [one == other for one, other in zip(before, after, strict=True)] == [
            False, True, True, True,
        ]  # fmt: skip
        assert page.locator(".outlines .brushed").count() == 8
        assert page.locator(".rings .within li").count() >= 2
        assert "% of the range" in page.locator(".stage").inner_text()
        page.get_by_role("button", name="Undo stroke").click()
        settle(page)
        assert shown_pixels(page) == decoded_pixels(maps, sample=7)
        assert shot(canvas_of(page, 0)) == before[0]


def test_a_patch_of_another_picture_is_pasted_where_the_map_is_clicked(tab, maps_address, maps):
    with open_page(tab, maps_address, "#channels?sample=7&size=3") as page:
        settle(page)
        page.locator(".choices label", has_text="Paste").click()
        source = page.get_by_role("spinbutton", name="from data sample")
        source.fill("30")
        source.press("Enter")
        page.mouse.click(*place(page, 2, 5, 0))
        settle(page)
        assert "paste=30,5,0,3" in page.url
        assert shown_pixels(page) == decoded_pixels(maps, sample=7, paste=[30, 5, 0, 3])


def test_a_map_is_brushed_with_the_keyboard(tab, maps_address, maps):
    with open_page(tab, maps_address, "#channels?sample=7") as page:
        settle(page)
        page.get_by_label("size of the brush").evaluate(SET, 2)
        page.get_by_label("add", exact=True).evaluate(SET, -1.5)
        canvas_of(page, 3).focus()
        for key in ("ArrowUp", "ArrowLeft", "ArrowLeft", "Enter"):
            page.keyboard.press(key)
        settle(page)
        assert "brush=3,3,2,2,-1.5" in page.url
        assert shown_pixels(page) == decoded_pixels(maps, sample=7, brush=[3, 3, 2, 2, -1.5])
        assert page.locator(".readout").inner_text().startswith("channel 3, height 3, width 2: ")


def test_sliders_and_mute_change_whole_maps(tab, maps_address, maps):
    with open_page(tab, maps_address, "#channels?sample=7") as page:
        settle(page)
        page.get_by_label("Offset of channel 2").evaluate(SET, 1.5)
        page.get_by_label("Gain of channel 0").evaluate(SET, 0.5)
        page.get_by_role("button", name="Mute channel 1").click()
        page.get_by_label("noise", exact=True).evaluate(SET, 0.3)
        page.get_by_role("button", name="Other noise").click()
        page.get_by_label("blur").evaluate(SET, 4)
        settle(page)
        changes = {
            "offset": [0, 0, 1.5, 0], "gain": [0.5, 1, 1, 1], "mute": [1], "noise": 0.3,
            "seed": 1, "keep": 0.5,
        }  # fmt: skip
        assert shown_pixels(page) == decoded_pixels(maps, sample=7, **changes)
        assert page.get_by_role("button", name="Mute channel 1", pressed=True).count() == 1
        page.get_by_role("button", name="Next sample").click()
        settle(page)
        assert shown_pixels(page) == decoded_pixels(maps, sample=8, **changes)
        page.get_by_role("button", name="Reset all").click()
        settle(page)
        assert page.url.endswith("#channels?sample=8")
        assert shown_pixels(page) == decoded_pixels(maps, sample=8)
        assert page.get_by_role("button", pressed=True).count() == 0


@pytest.fixture(scope="module")
def facts(tab, maps_address):
    with open_page(tab, maps_address, "#channels?sample=7&brush=1,2,3,2,2", "light") as page:
        settle(page)
        twin = page.locator("#json").get_attribute("href")
        facts = {
            "twin": twin,
            "answer": page.evaluate("path => fetch(path).then(reply => reply.json())", twin),
            "nameless": page.evaluate(NAMELESS),
            "light": page.evaluate(CONTRAST),
        }
        maps = shot(canvas_of(page, 1))
        page.emulate_media(color_scheme="dark")
        settle(page)
        facts["dark"] = page.evaluate(CONTRAST)
        facts["redrawn"] = shot(canvas_of(page, 1)) != maps
        for width in (360, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            facts[width] = page.evaluate("document.documentElement.scrollWidth")
    tab.set_viewport_size({"width": 1280, "height": 900})
    return facts


def test_the_channels_have_names_contrast_room_and_their_json(facts):
    assert facts["nameless"] == facts["light"] == facts["dark"] == []
    assert facts["redrawn"]
    assert facts[360] <= 360
    assert facts[1280] <= 1280
    assert facts["twin"] == "api/channels?sample=7&brush=1,2,3,2,2"
    assert facts["answer"]["rings"]["within"]


@pytest.mark.parametrize(
    "link",
    [
        "#channels?sample=3&offset=0,1.5,0,0&gain=1,1,0.5,1&mute=3,0&noise=0.4&seed=2&keep=0.5",
        "#channels?sample=3&brush=1,2,3,2,2,0,7,7,3,-1&paste=9,4,4,2&tool=paste&size=2&from=9",
        "#channels?brush=1,2,3,2,2&amount=-0.5&beside=change",
    ],
)
def test_a_link_restores_the_changes(tab, maps_address, link):
    def state(page):
        settle(page)
        inputs = page.locator("[role=tabpanel]").evaluate(
            "one => [one.innerText.replace(/hand to picture.*/, ''),"
            " ...Array.from(one.querySelectorAll('input'), i => i.type === 'radio' ? i.checked :"
            " i.value)]"
        )
        return inputs, [shot(one) for one in page.locator("[role=tabpanel] canvas:visible").all()]

    with open_page(tab, maps_address, link) as page:
        first = state(page)
        copied = page.url
    with open_page(tab, maps_address, "#" + copied.split("#")[1]) as page:
        assert state(page) == first
        assert page.url == copied
    for part in link.split("?")[1].split("&"):
        assert part in copied


def test_links_that_do_not_fit_the_model_are_said_so_or_ignored(tab, maps_address):
    tab.goto(maps_address + "#channels?brush=9,0,0,1,1")
    tab.locator("#alert").wait_for(state="visible")
    assert "brush names channel 9" in tab.locator("#alert").inner_text()
    tab.evaluate(QUIET)
    assert tab.evaluate(SHOWN) == []
    tab.get_by_role("button", name="Reset all").click()
    settle(tab)
    strange = "brush=1,2&offset=a&mute=x&keep=0&size=99&beside=constructor&noise=-1&frame=3"
    with open_page(tab, maps_address, f"#channels?{strange}") as page:
        settle(page)
        assert len(page.evaluate(SHOWN)) >= 10


class Failing(Convolutional):
    broken = threading.Event()

    def decode(self, z):
        if self.broken.is_set():
            raise RuntimeError("the decoder broke")
        return super().decode(z)


def test_after_a_model_throws_no_former_map_stays(tab, colours):
    session = Session(Failing().model(), colours, name="failing")
    with running(session) as address:
        tab.goto(address + "#channels?sample=7&brush=1,2,3,2,2")
        tab.wait_for_selector("[role=tab][aria-selected=true]")
        settle(tab)
        assert len(tab.evaluate(SHOWN)) >= 10
        Failing.broken.set()
        try:
            tab.get_by_label("Offset of channel 0").evaluate(SET, 1)
            tab.locator("#alert").wait_for(state="visible")
            tab.evaluate(QUIET)
            assert "the decoder broke" in tab.locator("#alert").inner_text()
            assert tab.evaluate(SHOWN) == []
            tab.locator("#theme").click()
            assert tab.evaluate(SHOWN) == []
        finally:
            Failing.broken.clear()
            tab.evaluate("localStorage.clear()")
        tab.get_by_label("Offset of channel 0").evaluate(SET, 0.5)
        settle(tab)
        assert len(tab.evaluate(SHOWN)) >= 10
        assert tab.locator("canvas.failed").count() == 0
        tab.goto("about:blank")
    session.close()


def test_sounds_have_strips_and_videos_a_slider_for_the_frame(tab):
    generator = torch.Generator().manual_seed(0)
    waves = torch.rand(20, 2, 64, generator=generator)
    sound = zs.wrap(
        lambda x: F.avg_pool1d(x, 4), lambda z: F.interpolate(z, scale_factor=4), prior=None
    )
    session = Session(sound, waves, name="sound")
    with running(session) as address, open_page(tab, address) as page:
        settle(page)
        assert page.locator(".decoded polyline").count() == 2
        line = page.locator(".decoded polyline").first
        before = line.get_attribute("points")
        assert page.get_by_label("frame", exact=True).is_hidden()
        box = canvas_of(page, 0).bounding_box()
        page.mouse.click(box["x"] + 5.5 * box["width"] / 16, box["y"] + box["height"] / 2)
        settle(page)
        assert "brush=0,5,1,2" in page.url
        assert line.get_attribute("points") != before
    session.close()
    video = zs.wrap(
        lambda x: F.avg_pool3d(x[:, None], 2),
        lambda z: F.interpolate(z, scale_factor=2)[:, 0],
        prior=None,
    )
    session = Session(video, torch.rand(20, 6, 8, 8, generator=generator), name="video")
    with running(session) as address, open_page(tab, address, "#channels?sample=7") as page:
        settle(page)
        assert "6 frames of 1 × 8 × 8" in page.inner_text("#about")
        before = picture(page, "canvas.decoded"), shot(canvas_of(page, 0))
        page.get_by_label("frame", exact=True).evaluate(SET, 4)
        settle(page)
        assert picture(page, "canvas.decoded") != before[0]
        assert shot(canvas_of(page, 0)) != before[1]
        page.mouse.click(*place(page, 0, 1, 3, side=4))
        settle(page)
        assert "brush=0,2,1,3,1,2" in page.url
        assert page.url.endswith("frame=4")
    session.close()


def test_of_many_channels_those_that_vary_most_are_shown_first(tab, colours):
    scales = torch.tensor([1.0 + (7 * k) % 20 for k in range(20)])[:, None, None]
    model = zs.wrap(
        lambda x: scales * F.avg_pool2d(x[:, :1], 2),
        lambda z: F.interpolate((z / scales).mean(1, keepdim=True), scale_factor=2).expand(
            -1, 3, -1, -1
        ),
        prior=None,
    )
    session = Session(model, colours, name="many")
    with running(session) as address, open_page(tab, address) as page:
        settle(page)
        order = scales.flatten().argsort(descending=True).tolist()
        names = [f"channel {k}" for k in order]
        assert page.locator(".channel h3").all_inner_texts() == names[:16]
        page.get_by_role("button", name="Show more of the 20 channels").click()
        assert page.locator(".channel h3").all_inner_texts() == names
    session.close()
