"""The report of latents that are maps: the card, the page and the JSON, by channel throughout."""

import json
import re
from html.parser import HTMLParser

import map_reports as worlds
import map_worlds
import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.text import Text as Words
from typer.testing import CliRunner

import zscope as zs
from zscope.cli import app
from zscope.errors import InterfaceError
from zscope.report.card import TITLE
from zscope.report.findings import Check
from zscope.report.maps import GAINS, OFFSETS, SHOWN
from zscope.results import Result

CHANNELS = 4
SINGLE = re.compile(r"\b[Ll]atents? \d|\bsingle latents?\b(?! \w+ would)|\d latents\b")
"""Words about single latents."""


class Text(HTMLParser):
    """The words that a page shows."""

    def __init__(self, text):
        super().__init__()
        self.words, self.hidden, self.definition = [], 0, 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self.hidden:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def x():
    return worlds.pictures(64)


@pytest.fixture(scope="module")
def report(x):
    return zs.assay(worlds.passive(x), x, resamples=20)


@pytest.fixture(scope="module")
def saved(report, tmp_path_factory):
    path = report.save(tmp_path_factory.mktemp("maps") / "report.html")
    return path.read_text(), json.loads(path.with_suffix(".json").read_text())


def test_the_card_has_every_check_and_the_lines_for_the_configuration(report):
    card = report.card
    assert [each.level for each in card.checks] == sorted(
        (each.level for each in card.checks), key=["problem", "note", "healthy"].index
    )
    assert {each.rule for each in card.checks} >= {
        "dead channel", "scale off", "channels unequal", "one channel dominates", "heavy tails",
        "posterior without noise", "rough spectrum", "not equivariant", "fragile decoder",
        "not local",
    }  # fmt: skip
    assert card.counts["problem"] == 1
    assert str(card.checks[0]).startswith("Channel 0 of 4 carries nothing: lower the KL weight")
    statistics = report.results["latent-statistics"]
    assert card.config == statistics.paste()
    assert card.channel_config == statistics.paste(channels=True)
    assert not card.missing


def test_the_card_comes_first_and_no_finding_is_printed_twice(report):
    lines = str(report).splitlines()
    assert lines[0].startswith(f"{TITLE}  1 problem, ")
    assert "Channel 0 of 4 carries nothing" in lines[1]
    assert sum("carries nothing" in line for line in lines) == 1
    assert any('"scaling_factor": ' in line for line in lines)
    table = next(k for k, line in enumerate(lines) if line.startswith("latent-statistics"))
    assert next(k for k, line in enumerate(lines) if "Reconstructions" in line) < table
    assert not SINGLE.search(str(report))
    assert TITLE in report._repr_html_()


@pytest.mark.parametrize("figure", ["nonlinear-eigenfaces", "all"])
def test_figures_speak_of_channels_too(report, figure):
    results = report.results if figure == "all" else {figure: report.results[figure]}
    words = []
    for result in results.values():
        if type(result).plot is not Result.plot:
            axes = result.plot()
            drawn = axes if hasattr(axes, "savefig") else axes.get_figure()
            drawn.canvas.draw()
            words += [each.get_text() for each in drawn.findobj(Words)]
            plt.close("all")
    assert sum("channel" in word for word in words) >= (4 if figure != "all" else 20)
    assert not [word for word in words if re.search(r"\b[Ll]atents? \d", word)]


def test_findings_are_those_of_the_card_that_are_not_healthy_and_the_others(report):
    told = [each for each in report.findings if isinstance(each, Check)]
    assert told == [each for each in report.card.checks if each.level != "healthy"]
    assert [each.rule for each in report.other_findings] == [
        each.rule for each in report.findings if not isinstance(each, Check)
    ]


def test_the_json_has_the_card_the_channels_and_the_place_maps_but_no_codes(report, saved):
    _, numbers = saved
    card = numbers["card"]
    assert card["title"] == TITLE
    assert card["counts"] == dict(report.card.counts)
    assert card["config"].startswith('"scaling_factor": ')
    first = card["checks"][0]
    assert (first["rule"], first["level"], first["value"]) == ("dead channel", "problem", 1.0)
    rows = numbers["channels"]
    assert sorted(row["channel"] for row in rows) == [0, 1, 2, 3]
    assert rows[-1]["channel"] == 0
    assert rows[-1]["dead"] is True
    assert {"type", "mean", "std", "kl", "gain", "importance", "excess"} <= rows[0].keys()
    assert numbers["latents"] == []
    mean_map = torch.tensor(numbers["assays"]["latent-statistics"]["result"]["mean_map"])
    assert mean_map.shape == (4, 8, 8)
    assert "maps" in numbers
    assert "maps" not in report.to_dict(pictures=False)

    def rows_of_codes(value):
        if isinstance(value, dict):
            return any(map(rows_of_codes, value.values()))
        if isinstance(value, list) and value and isinstance(value[0], list):
            return len(value[0]) == 4 * 8 * 8 or rows_of_codes(value[0])
        return False

    assert not rows_of_codes(numbers)


def test_the_page_opens_with_the_card(report, saved):
    text = Text(saved[0]).text
    start = text.index(f"{TITLE} 1 problem")
    assert text.index("Channel 0 of 4 carries nothing") > start
    assert text.index("Findings No") if "Findings No" in text else text.index("Channels The most")
    for check in report.card.checks:
        assert check.text in text
        assert f"Checked: {check.checked}" in text
    for line in report.card.config.splitlines():
        assert line in text
    assert saved[0].count('class="copy"') == 2


def test_nothing_on_the_page_speaks_of_single_latents(saved):
    text = Text(saved[0]).text
    for part in re.findall(r"Definition .*?zs\.assays\.\w+", text):  # general, as in the docs
        text = text.replace(part, "")
    assert [text[m.start() - 40 : m.end() + 40] for m in SINGLE.finditer(text)] == []
    assert 'id="latents"' not in saved[0]
    assert "latents of 4 × 8 × 8 (channels × height × width)" in text


def test_the_page_loads_nothing_and_describes_every_picture(saved):
    sources = re.findall(r'src="([^"]{0,20})', saved[0])
    assert len(sources) > 20
    assert all(each.startswith("data:image/") for each in sources)
    assert 'alt=""' not in saved[0]
    rows = [f"Channel {k} of 8 pictures" for k in range(CHANNELS)]
    for words in ("Input of 8 pictures", "Reconstruction of 8 pictures", *rows):
        assert f'alt="{words}"' in saved[0]


def test_pictures_are_as_stated(report):
    maps = report.maps
    assert [row["name"] for row in maps["examples"][:2]] == ["input", "reconstruction"]
    names = [f"channel {row['channel']}" for row in report.channels]
    assert [row["name"] for row in maps["examples"][2:-1]] == names
    assert maps["rest"] is None
    assert set(maps["strips"]) == set(range(CHANNELS))
    assert {row["name"] for row in maps["turned"]} >= {"flip horizontally", "turn by 90°"}
    # The decoder ignores channel 0, and pictures are rows of the same picture.
    strips = maps["strips"][0]
    assert len({strips["removed"], maps["strips"][1]["removed"]}) == 2


class Counted:
    """Counts the pictures that a model encodes and decodes."""

    def __init__(self):
        self.encoded = self.decoded = 0

    def model(self, data):
        def encoder(x):
            self.encoded += len(x)
            z = worlds.encode(x)
            return torch.cat([z, z[:, :1] + z[:, 1:2]], 1)

        def decoder(z):
            self.decoded += len(z)
            return worlds.decode(z[:, :3])

        model = worlds.declare(zs.wrap(encoder, decoder, prior=None), data)
        self.encoded = self.decoded = 0
        return model


def count(side, names=("diffusion",)):
    data, counted = worlds.pictures(40, side), Counted()
    model = counted.model(data)
    report = zs.assay(model, data, names=names, resamples=2)
    assert not report.failed
    return counted.encoded, counted.decoded


def test_the_passes_do_not_depend_on_the_size_of_the_maps():
    assert count(8) == count(16)


def test_the_pictures_of_the_page_take_few_passes():
    data, counted = worlds.pictures(40), Counted()
    recording = zs.record(counted.model(data), data)
    results = {"equivariance": zs.assays.equivariance(recording)}
    before = counted.encoded, counted.decoded
    from zscope.report.maps import map_pictures

    shown = map_pictures(recording, results, range(CHANNELS))
    assert counted.encoded == before[0]
    strips = CHANNELS * (len(OFFSETS) - 1 + len(GAINS) - 1 + 1)
    assert counted.decoded - before[1] == strips + 2 * len(shown["turned"])


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Latents of 24 x 64 x 64: more channels than are shown, and maps as noisy as they can be."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(24, 3, 128, 128, generator=generator)
    mixture = torch.randn(24, 12, generator=generator)
    back = torch.linalg.pinv(mixture)
    model = zs.wrap(
        lambda x: torch.einsum("jk,nkyx->njyx", mixture, torch.pixel_unshuffle(x, 2)),
        lambda z: torch.pixel_shuffle(torch.einsum("jk,nkyx->njyx", back, z), 2),
        prior=None,
    )
    report = zs.assay(model, x, names=["diffusion"], resamples=2)
    assert not report.failed
    return report, report.save(tmp_path_factory.mktemp("large") / "report.html")


def test_many_channels_and_large_maps_fit_a_page(large):
    report, path = large
    text = path.read_text()
    assert len(text.encode()) < 5_000_000
    assert "8 less important channels" in Text(text).text
    assert len(report.maps["strips"]) == SHOWN
    assert len(report.maps["rest"]["channels"]) == 24 - SHOWN
    assert path.with_suffix(".json").stat().st_size < 10_000_000


def test_sound_and_video_have_pages_too(tmp_path):
    generator = torch.Generator().manual_seed(0)
    sound = torch.randn(16, 1, 64, generator=generator)
    video = torch.rand(16, 1, 8, 16, 16, generator=generator)
    pool = {
        3: (lambda x: torch.nn.functional.avg_pool1d(x, 4), lambda z: z.repeat_interleave(4, 2)),
        5: (
            lambda x: torch.nn.functional.avg_pool3d(x, (1, 2, 2)),
            lambda z: z.repeat_interleave(2, 3).repeat_interleave(2, 4),
        ),
    }
    both = [(data, zs.wrap(*pool[data.ndim], prior=None)) for data in (sound, video)]
    # Rows of numbers are sound without an axis for its one channel.
    rows = sound[:, 0]
    pooled = zs.wrap(
        lambda x: pool[3][0](x[:, None]), lambda z: pool[3][1](z)[:, 0], prior=None, example=rows
    )
    attended = map_worlds.tokens()
    for data, model in [*both, (rows, pooled), (rows, attended)]:
        report = zs.assay(model, data, names=["diffusion"], resamples=2)
        assert not report.failed, report.failed
        assert report.card.checks
        text = report.save(tmp_path / "report.html").read_text()
        assert TITLE in text
        assert "Channel 0 of 8 pictures" in text
        assert "half the size" in {row["name"] for row in report.maps["turned"]}


def test_rows_of_numbers_are_drawn_as_sound_of_one_channel():
    """The same pictures, byte for byte, with and without an axis for the channel."""
    sound = torch.randn(16, 1, 64, generator=torch.Generator().manual_seed(0))
    deep = map_worlds.sound_pooling()
    flat = zs.wrap(lambda x: deep.encoder(x[:, None]), lambda z: deep.decoder(z)[:, 0], prior=None)
    maps = [
        zs.assay(model, data, names=["equivariance"]).maps
        for model, data in ((deep, sound), (flat, sound[:, 0]))
    ]
    assert maps[0] == maps[1]


def test_other_assays_of_maps_alone_have_no_card(x, tmp_path):
    report = zs.assay(worlds.healthy(x), x, names=["effective-rank"])
    assert report.card is None
    assert TITLE not in str(report)
    assert "card" not in report.to_dict()
    text = report.save(tmp_path / "report.html").read_text()
    assert 'id="ready"' not in text
    assert 'id="channels"' in text


def test_what_could_not_be_measured_is_on_the_card():
    x = worlds.pictures(40, side=2)  # too small for a spectrum
    report = zs.assay(worlds.healthy(x), x, names=["diffusion"], resamples=2)
    assert "latent-spectrum" in report.card.missing
    reason = report.missing["latent-spectrum"]
    assert f"  missing  latent-spectrum: {reason}" in str(report.card).splitlines()


def test_one_reason_for_many_assays_is_one_line():
    x = worlds.pictures(40)
    report = zs.assay(zs.wrap(worlds.encode, lambda z: z), x, names=["diffusion"], resamples=2)
    lines = [line for line in str(report.card).splitlines() if line.startswith("  missing")]
    assert len(lines) == 1
    assert lines[0].startswith("  missing  latent-spectrum, equivariance, noise-robustness, ")
    assert "the decoder returned observations of shape (3, 8, 8)" in lines[0].lower()


@pytest.mark.parametrize(("side", "fits"), [(34, 32), (30, 28)])
def test_pictures_whose_sides_the_stride_does_not_divide_should_be_cropped(side, fits):
    x = torch.nn.functional.interpolate(worlds.pictures(40), size=side)
    model = zs.wrap(worlds.encode, worlds.decode, prior=None)
    with pytest.raises(InterfaceError, match=f"crop or resize the data to 3 x {fits} x {fits}"):
        zs.assays.response_matrix(zs.record(model, x))
    others = lambda z: worlds.decode(worlds.decode(z)), lambda z: worlds.decode(z)[:, :, ::2, ::2]
    for other in others:  # a decoder that does not belong to the encoder
        model = zs.wrap(worlds.encode, other, prior=None)
        with pytest.raises(InterfaceError, match="in a small function around the decoder"):
            zs.assays.response_matrix(zs.record(model, x))


def test_a_report_of_too_few_pictures_says_so_and_still_lists_the_channels(tmp_path):
    x = worlds.pictures(40)
    report = zs.assay(worlds.passive(x), x[:3])
    assert "3 pictures were encoded, and at least 8" in report.missing["variable-types"]
    assert not report.failed
    assert sorted(row["channel"] for row in report.channels) == list(range(CHANNELS))
    assert all("type" not in row for row in report.channels)
    assert "at least 8 are needed" in report.save(tmp_path / "report.html").read_text()


def test_codes_that_are_maps_without_a_model_have_a_card_of_what_is_known():
    maps = worlds.encode(worlds.pictures(40))
    recording = zs.Recording.from_arrays(maps, layout=zs.Layout(3, (8, 8)))
    report = zs.assay(recording, names=["latent-statistics", "latent-spectrum"])
    assert report.maps is None
    assert {each.rule for each in report.card.checks} >= {"scale off", "heavy tails"}


def test_vectors_have_neither_card_nor_channels(tmp_path):
    codes = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    report = zs.assay(zs.Recording.from_arrays(codes), names=["effective-rank"])
    assert (report.card, report.channels, report.maps) == (None, [], None)
    numbers = report.to_dict()
    assert not {"card", "channels", "maps"} & numbers.keys()
    assert not [each for each in numbers["rules"] if "channel" in each["name"]]
    text = report.save(tmp_path / "report.html").read_text()
    assert 'id="latents"' in text
    assert 'id="channels"' not in text
    assert "copy" not in text.partition("<script>")[2]


# The commands


MODEL = """
import torch.nn.functional as F
import zscope as zs

def load():
    model = zs.wrap(
        lambda x: F.avg_pool2d(x, 4), lambda z: F.interpolate(z, scale_factor=4), prior=None
    )
    model.latent_scaling = zs.layout.LatentScaling(0.18215)
    return model
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model and a folder of pictures."""
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    (tmp_path / "pooling.py").write_text(
        MODEL.replace("zs.layout.", "").replace(
            "import zscope as zs", "import zscope as zs\nfrom zscope.layout import LatentScaling"
        )
    )
    (tmp_path / "pictures").mkdir()
    x = (worlds.pictures(24) / 8 + 0.5).clamp(0, 1)
    for k, each in enumerate(x):
        pixels = (255 * each).round().byte().permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{k:02}.png")
    return tmp_path


def run(*words):
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_assay_command_prints_the_card_and_its_json_carries_it(folder):
    words = ("assay", "pooling.py:load", "diffusion", "--data", "pictures/")
    lines = run(*words).splitlines()
    assert lines[0].startswith(TITLE)
    assert lines[1].startswith("  problem  With scaling_factor 0.18215 these latents have std ")
    card = json.loads(run(*words, "--json"))["card"]
    assert card["checks"][0]["rule"] == "scale off"
    assert card["config"].startswith('"scaling_factor"')


def test_the_report_command_prints_the_card_and_writes_it(folder):
    words = ("report", "pooling.py:load", "diffusion", "--data", "pictures/", "-o", "page.html")
    assert run(*words).startswith(TITLE)
    assert f"{TITLE}</h2>" in (folder / "page.html").read_text()
    card = json.loads(run(*words, "--json"))["card"]
    assert card["checks"][0]["level"] == "problem"
    assert json.loads((folder / "page.json").read_text())["card"] == card
