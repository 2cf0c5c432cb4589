"""How long does it take from moving a slider to the picture on the screen? Required: under 100 ms.

A convolutional VAE at 64 x 64, with the page in a real browser (Debian's chromium, or
$CHROMIUM). The page measures with performance.now, from the event of the slider until after the
frame that shows the new picture: first for one move at a time; then for one move in each frame,
as when a slider is dragged; then for single moves while the server computes a fine map.
"""

import json
import os
import sys
import threading

import torch
from ratios import Ratio, agreement, finish

import zscope as zs
from zscope.explorer.serving import create_server
from zscope.explorer.session import Session

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
LIMIT = 100.0

MOVE = """async ([moves, pause]) => {
  const slider = document.querySelector(".latent input[type=range]");
  const picture = document.querySelector("canvas.decoded");
  const latencies = [];
  new MutationObserver(() => latencies.push(Number(picture.dataset.latency)))
    .observe(picture, { attributes: true, attributeFilter: ["data-latency"] });
  for (let k = 0; k < moves; k++) {
    const before = latencies.length;
    slider.value = 0.1 * ((k * 7) % 40) - 2;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    if (pause) while (latencies.length === before) await new Promise((go) => setTimeout(go, 1));
    else await new Promise(requestAnimationFrame);
  }
  await new Promise((go) => setTimeout(go, 300));
  return latencies;
}"""

PIXELS = """() => {
  const picture = document.querySelector("canvas.decoded");
  const data = picture.getContext("2d").getImageData(0, 0, picture.width, picture.height).data;
  return Array.from(data).filter((_, place) => place % 4 === 0);
}"""


def main() -> int:
    if not os.path.exists(CHROMIUM):
        sys.exit(f"explorer: no browser at {CHROMIUM}, nothing was measured (apt install chromium)")
    from playwright.sync_api import sync_playwright

    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    data = zs.data.load(
        "sprites", resolution=64, scale=2, orientation=4, position_x=8, position_y=8
    )
    model = zs.models.build("vae", shape=data.shape, latents=10, backbone="locatello", seed=0)
    session = Session(model.eval(), data, name="benchmark", samples=1000)
    server, listening, address = create_server(session)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.goto(address + "#latents")
        page.wait_for_selector("canvas.decoded")
        page.wait_for_timeout(1000)
        page.evaluate(MOVE, [5, True])
        single = page.evaluate(MOVE, [60, True])
        dragged = page.evaluate(MOVE, [120, False])
        page.evaluate("() => { fetch('/api/map?grid=128') }")
        page.wait_for_timeout(300)
        busy = page.evaluate(MOVE, [60, True])
        with page.expect_response("**/api/latents") as answer:
            page.evaluate(MOVE, [1, True])
        z = torch.tensor(json.loads(answer.value.request.post_data)["z"])
        shown = page.evaluate(PIXELS)
        browser.close()
    with torch.no_grad():
        decoded = model.decode(z[None])[0, 0].flatten()
    same = agreement(
        "pixels of the last picture on the page with those decoded here, of 255",
        shown, 255 * decoded, 1.0,
    )  # fmt: skip
    kinds = {"single moves": single, "dragging": dragged, "while a map is drawn": busy}
    server.should_exit = True
    thread.join(10)
    session.close()
    late = {name: [t for t in times if t > LIMIT] for name, times in kinds.items()}
    for name, times in kinds.items():
        print(f"{name}: {len(late[name])} of {len(times)} pictures later than {LIMIT:g} ms")
    return finish(
        "explorer",
        [
            Ratio(
                f"slider to picture, {name}", "starting", times, [LIMIT],
                baseline="the limit, by the clock", version="Chromium", unit="ms",
                at_most=None if name == "while a map is drawn" else 1, agreement=same,
            )
            for name, times in kinds.items()
        ],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
