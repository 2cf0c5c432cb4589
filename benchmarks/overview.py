"""How long is a frame while a map of 50,000 codes is moved and zoomed? Required: a median of 50 ms.

The view Codes of the explorer in a real browser without a graphics card (Debian's chromium, or
$CHROMIUM, drawing in software), 1,400 x 900 pixels. In each frame the map is dragged a little, or
zoomed; what counts is the time from one frame to the next, with all that the browser does. Last,
all codes that are visible are selected, and counted here as well.
"""

import os
import re
import sys
import threading

import numpy as np
import torch
from explorer import CHROMIUM, FLAGS
from ratios import Agreement, Ratio, finish

import zscope as zs
from zscope.explorer.embedding import principal_components
from zscope.explorer.serving import create_server
from zscope.explorer.session import Session

POINTS = 50_000
LIMIT = 50.0

# Frames while something is done in each of them; the first ones are left out.
FRAMES = """async ([kind, count]) => {
  const canvas = document.querySelector("canvas.scatter");
  const box = canvas.getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  const at = (dx) => ({ bubbles: true, pointerId: 1, button: 0, clientX: x + dx, clientY: y });
  canvas.setPointerCapture = () => null;
  const times = [];
  if (kind === "moved") canvas.dispatchEvent(new PointerEvent("pointerdown", at(0)));
  for (let k = 0; k < count; k++) {
    if (kind === "moved")
      canvas.dispatchEvent(new PointerEvent("pointermove", at(80 * Math.sin(k / 8) + 5)));
    else canvas.dispatchEvent(new WheelEvent("wheel",
      { ...at(0), deltaY: 60 * Math.sign(Math.sin(k / 8)), cancelable: true }));
    times.push(await new Promise(requestAnimationFrame));
  }
  canvas.dispatchEvent(new PointerEvent("pointerup", at(0)));
  return times.slice(6).map((time, k) => time - times[k + 5]);
}"""


def main() -> int:
    if not os.path.exists(CHROMIUM):
        sys.exit(f"overview: no browser at {CHROMIUM}, nothing was measured (apt install chromium)")
    from playwright.sync_api import sync_playwright

    generator = torch.Generator().manual_seed(0)
    groups = torch.randint(10, (POINTS,), generator=generator)
    centres = 2 * torch.randn(10, 10, generator=generator)
    x = centres[groups] + torch.randn(POINTS, 10, generator=generator)
    data = zs.Dataset("groups", x.numpy(), groups[:, None].numpy(), factor_names=("group",))
    session = Session(zs.wrap(lambda x: x, lambda z: z), data, name="codes", samples=POINTS)
    server, listening, address = create_server(session)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.add_init_script("localStorage.setItem('zscope-explained', '1')")
        page.goto(address + "#overview?by=factor:0")
        page.wait_for_selector(".overview .chip")
        page.wait_for_timeout(500)
        frames = {kind: page.evaluate(FRAMES, [kind, 126]) for kind in ("moved", "zoomed")}
        page.locator("canvas.scatter").focus()
        for _ in range(5):
            page.keyboard.press("+")
        page.wait_for_timeout(500)  # until the address has the window
        page.keyboard.press("s")
        page.wait_for_selector(".chosen h2")
        selected = page.locator(".chosen h2").inner_text()
        window = re.search(r"window=([^&]+)", page.url)
        browser.close()
    server.should_exit = True
    thread.join(10)
    session.close()
    assert window is not None
    left, right, bottom, top = (float(value) for value in window[1].split(","))
    plane = principal_components(session.codes)[0][:, :2].numpy()
    inside = (plane > [left, bottom]).all(1) & (plane < [right, top]).all(1)
    shown = int(selected.split(" of ")[0].replace(",", ""))
    same = Agreement(
        f"{shown:,} codes selected in the last window, and counted here, share that differs",
        abs(shown - int(inside.sum())) / POINTS, 1e-3,
    )  # fmt: skip
    for kind, times in frames.items():
        print(
            f"{kind}: median {np.median(times):.1f} ms, 95 % within {np.quantile(times, 0.95):.1f}"
        )
    return finish(
        "overview",
        [
            Ratio(
                f"frame of 50,000 codes, {kind}", "starting", times, [LIMIT],
                baseline="the limit, by the clock", version="Chromium", unit="ms", at_most=1,
                agreement=same,
            )
            for kind, times in frames.items()
        ],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
