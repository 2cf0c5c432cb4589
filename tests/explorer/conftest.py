"""Sessions to explore: pictures with a VAE made by hand, and rows with an autoencoder."""

import asyncio
import threading
from contextlib import contextmanager

import httpx
import pytest
import torch
import torch.nn.functional as F

import zscope as zs
from zscope.explorer.app import create_app
from zscope.explorer.serving import create_server
from zscope.explorer.session import Session

TOKEN = "a-token-for-tests"
# The explanation is for the first visit; addresses such as about:blank have no storage.
VISITED = "try { localStorage.setItem('zscope-explained', '1'); } catch {}"
# Counts what the page has put off, by timer or to the next frame, before its scripts run.
COUNT = """
window.putOff = new Set();
window.plainTimeout = window.setTimeout;
window.setTimeout = (call, delay) => {
  const id = plainTimeout(() => { putOff.delete(id); call(); }, delay);
  putOff.add(id);
  return id;
};
const { clearTimeout, requestAnimationFrame } = window;
window.clearTimeout = id => { putOff.delete(id); clearTimeout(id); };
window.requestAnimationFrame = call => {
  const id = {};
  putOff.add(id);
  return requestAnimationFrame(time => { putOff.delete(id); call(time); });
};
"""
# Resolves when for a moment no request has been pending and nothing has been put off.
QUIET = """() => new Promise(resolve => {
  let last = performance.now();
  const check = () => {
    const busy = document.getElementById('view').getAttribute('aria-busy') === 'true';
    if (busy || putOff.size) last = performance.now();
    if (performance.now() - last > 40) resolve(); else plainTimeout(check, 5);
  };
  check();
})"""


class Principal(zs.Autoencoder):
    """Principal components of some data as a VAE: `unused` latents are noise to it."""

    def __init__(self, x, *, used=4, unused=2, turn=0.0, limits=(0.0, 1.0)):
        super().__init__()
        self.latents, self.shape, self.used, self.limits = used + unused, x.shape[1:], used, limits
        flat = x.flatten(1).double()
        self.register_buffer("mean", flat.mean(0).float())
        _, sizes, directions = torch.linalg.svd(flat - flat.mean(0), full_matrices=False)
        scales = sizes[:used] / len(flat) ** 0.5
        basis = (directions[:used] * scales[:, None]).float()
        turning = torch.eye(used)
        turning[:2, :2] = torch.tensor(
            [[torch.cos(torch.tensor(turn)), -torch.sin(torch.tensor(turn))],
             [torch.sin(torch.tensor(turn)), torch.cos(torch.tensor(turn))]]
        )[:used, :used]  # fmt: skip
        self.weight = torch.nn.Parameter(turning @ basis)

    def encode(self, x, auxiliary=None):
        codes = (x.flatten(1) - self.mean) @ torch.linalg.pinv(self.weight)
        unused = self.latents - self.used
        mean = torch.cat([codes, torch.zeros(len(x), unused)], 1)
        std = torch.cat([torch.full_like(codes, 0.2), torch.ones(len(x), unused)], 1)
        return zs.Posterior(mean, std)

    def decode(self, z):
        x = self.mean + z[:, : self.used] @ self.weight
        return x.clamp(*self.limits).reshape(len(z), *self.shape)


class Flat(Principal):
    """The same without a spread and without a prior."""

    prior = None

    def encode(self, x, auxiliary=None):
        return zs.Posterior(super().encode(x).mean)


class Convolutional(torch.nn.Module):
    """3 x 16 x 16 pictures to 4 x 8 x 8 Gaussian latents, and back, by weights made by hand."""

    def __init__(self, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        down, up = (0.4 * torch.randn(*shape, generator=generator)
                    for shape in ((4, 3, 3, 3), (3, 4, 3, 3)))  # fmt: skip
        self.down, self.up = torch.nn.Parameter(down), torch.nn.Parameter(up)

    def encode(self, x):
        mean = F.conv2d(F.avg_pool2d(x, 2), self.down, padding=1)
        scales = torch.tensor([1.0, 3.0, 0.2, 1.0])[:, None, None]
        mean = scales * mean + torch.tensor([0.0, 5.0, 0.0, -1.0])[:, None, None]
        return mean, (0.1 * scales).log().mul(2).expand_as(mean)

    def decode(self, z):
        return F.conv2d(F.interpolate(z.tanh(), scale_factor=2), self.up, padding=1).sigmoid()

    def model(self):
        return zs.wrap(self.encode, self.decode)


@pytest.fixture(scope="session")
def colours():
    """60 smooth pictures in colours."""
    noise = torch.rand(60, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    return F.interpolate(noise, size=(16, 16), mode="bilinear")


@pytest.fixture(scope="session")
def maps(colours):
    other = Convolutional(seed=1).model()
    session = Session(
        Convolutional().model(), colours, name="maps", other=other, other_name="other"
    )
    yield session
    session.close()


@pytest.fixture(scope="session")
def sprites(tmp_path_factory):
    root = tmp_path_factory.mktemp("sprites")
    options = {"scale": 2, "orientation": 3, "position_x": 6, "position_y": 6}
    return zs.data.load("sprites", resolution=32, root=root, **options)


@pytest.fixture(scope="session")
def pictures(sprites):
    x = sprites.batch(slice(None))
    session = Session(
        Principal(x),
        sprites,
        name="pictures",
        samples=300,
        other=Principal(x, turn=0.7, unused=0),
        other_name="turned",
    )
    yield session
    session.close()


@pytest.fixture(scope="session")
def rows():
    helix = zs.data.load("helix", samples=300)
    x = helix.batch(slice(None))
    session = Session(Flat(x, used=2, unused=0, limits=(-1.0, 1.0)), helix, name="rows")
    yield session
    session.close()


class Client:
    """A program with the token; `ask` expects an answer, `error` an error of this status."""

    def __init__(self, session, *, token=TOKEN, **limits):
        limits = {"rate": 1e6, "burst": 1e6} | limits
        self.app = create_app(session, token=TOKEN, **limits)
        self.headers = {} if token is None else {"authorization": f"Bearer {token}"}

    def connect(self):
        """A connection for several requests at once."""
        transport = httpx.ASGITransport(app=self.app)
        return httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8000", headers=self.headers
        )

    def request(self, method, path, **options):
        async def send():
            async with self.connect() as connection:
                return await connection.request(method, path, **options)

        return asyncio.run(send())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, **options):
        return self.request("POST", path, **options)

    def ask(self, name, **parameters):
        reply = self.post(f"/api/{name}", json=parameters)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def error(self, status, name, **parameters):
        reply = self.post(f"/api/{name}", json=parameters)
        assert reply.status_code == status, reply.text
        return reply.json()["error"]["message"]


@pytest.fixture(scope="session")
def client(pictures):
    return Client(pictures)


@pytest.fixture(scope="session")
def rows_client(rows):
    return Client(rows)


@pytest.fixture(scope="session")
def maps_client(maps):
    return Client(maps)


@contextmanager
def running(session):
    server, listening, address = create_server(session)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()


@pytest.fixture(scope="module")
def address(pictures):
    with running(pictures) as address:
        yield address


@pytest.fixture(scope="module")
def rows_address(rows):
    with running(rows) as address:
        yield address


@pytest.fixture(scope="module")
def maps_address(maps):
    with running(maps) as address:
        yield address


@contextmanager
def new_tab(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    context.add_init_script(VISITED)
    context.add_init_script(COUNT)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def tab(browser):
    """One for all tests of a file: a page starts anew in it, and sooner than in a new one."""
    with new_tab(browser) as tab:
        yield tab


@contextmanager
def open_page(tab, address, hash="", colours="light"):
    """A page that must write nothing to the console and send requests to the server only."""
    messages, requests = [], []
    listeners = {
        "console": lambda message: messages.append(f"{message.type}: {message.text}"),
        "pageerror": lambda error: messages.append(str(error)),
        "request": lambda request: requests.append(request.url),
    }
    for event, listener in listeners.items():
        tab.on(event, listener)
    try:
        tab.emulate_media(color_scheme=colours)
        tab.goto(address + hash)
        tab.wait_for_selector("[role=tab][aria-selected=true]")
        yield tab
    finally:
        tab.evaluate("localStorage.clear()")
        tab.goto("about:blank")
        for event, listener in listeners.items():
            tab.remove_listener(event, listener)
    assert messages == []
    home = address.split("?")[0]
    elsewhere = [url for url in requests if not url.startswith((home, "data:"))]
    assert elsewhere in ([], ["about:blank"])


def settle(page):
    """Wait until no request is pending, and expect no error message."""
    page.evaluate(QUIET)
    assert not page.locator("#alert").is_visible(), page.locator("#alert").inner_text()
