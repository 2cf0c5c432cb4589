"""Figures show the numbers they were given: arrays, texts, colours, counts of things."""

from itertools import combinations, pairwise

import matplotlib as mpl
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest
import torch
from made_runs import make_run
from worlds import identity, responding

import zscope as zs
from zscope import plots
from zscope.assays.responses.drift import drift
from zscope.assays.responses.maps import response_map
from zscope.assays.responses.paths import manifold_path
from zscope.errors import ConfigError, Undefined
from zscope.plots import theme

ZERO = torch.zeros(2, dtype=torch.float64)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def random(*shape):
    return np.random.default_rng(0).normal(size=shape)


def texts(ax):
    """All texts but those of a colour bar."""
    return [text.get_text() for text in ax.texts if text.get_text() and not text.get_gid()]


def value(text):
    return float(text.replace("\u2212", "-"))


def renders(plot):
    figure = plot if isinstance(plot, plt.Figure) else plot.get_figure(root=True)
    figure.canvas.draw()
    return figure


def is_inside(text, figure):
    box = text.get_window_extent()
    return (
        box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height
    )


class TestPathSpace:
    def test_both_paths_are_drawn_where_they_are_decoded(self):
        codes = torch.from_numpy(random(50, 3))
        result = manifold_path(identity(3), codes[0], codes[1], codes=codes, frames=21)
        ax = plots.path_space(result, codes)
        straight, path, ends = (np.column_stack(line.get_data_3d()) for line in ax.lines)
        assert straight == pytest.approx(np.linspace(*codes[:2].numpy(), 21))
        assert path == pytest.approx(result.frames.numpy())
        assert ends == pytest.approx(codes[:2].numpy())
        renders(ax)

    def test_pictures_and_flat_axes_are_refused(self):
        codes = torch.from_numpy(random(50, 2))
        flat = manifold_path(identity(2), codes[0], codes[1], codes=codes)
        with pytest.raises(ConfigError, match=r"shape \(2,\); expected three features"):
            plots.path_space(flat)
        codes = torch.from_numpy(random(50, 3))
        result = manifold_path(identity(3), codes[0], codes[1], codes=codes)
        with pytest.raises(ConfigError, match="projection='3d'"):
            plots.path_space(result, ax=plt.figure().add_subplot())


class TestHeatmap:
    def test_cells_without_a_value_are_hatched_and_not_0(self):
        ax = plots.heatmap([[0.0, None], [0.5, 1.0]], empty="not compared")
        assert texts(ax) == ["0.00", "0.50", "1.00", "hatched: not compared"]
        assert [patch.get_xy() for patch in ax.patches] == [(0.5, -0.5)]
        assert ax.images[0].get_array().mask.tolist() == [[False, True], [False, False]]
        assert not plots.heatmap(np.eye(2)).patches
        renders(ax)

    def test_long_titles_of_a_grid_are_wrapped_and_overlap_nothing(self):
        names = ["input", "encoder.trunk.1", "mean", "output"]
        panel = plots.matrices.Panel(np.eye(4), names, names, "CKA")
        down = [f"model beta-tcvae, beta {beta}, estimator weighted" for beta in (0.5, 1, 2)]
        runs = ", ".join(f"beta-vae-digits-b0.5-s{seed}-46a852e5daf0" for seed in range(4))
        x, y = f"layers of the other (pairs of {runs})", f"layers of {runs[:38]}"
        figure = renders(plots.heatmaps([[panel]] * 3, x=x, y=y, down=down, note="3 of 4 groups"))
        boxes = [text.get_window_extent() for text in figure.texts]
        assert all(is_inside(text, figure) for text in figure.texts)
        labels = [text for ax in figure.axes for text in ax.get_yticklabels() if text.get_text()]
        boxes += [label.get_window_extent() for label in labels]
        assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
        assert "model beta-tcvae,\nbeta 0.5,\nestimator weighted" in texts(figure)

    def test_shows_the_matrix_itself_with_its_numbers(self):
        matrix = np.abs(random(3, 4))
        ax = plots.heatmap(torch.tensor(matrix), rows="intervened", columns="observed")
        assert np.allclose(ax.images[0].get_array(), matrix)
        assert np.allclose([value(t) for t in texts(ax)], matrix.round(2).ravel())
        assert (ax.get_ylabel(), ax.get_xlabel()) == ("intervened", "observed")
        assert ax.images[0].get_clim() == pytest.approx((0, matrix.max()))
        renders(ax)

    def test_signed_numbers_are_centred_on_zero(self):
        matrix = random(5, 5)
        low, high = plots.heatmap(matrix).images[0].get_clim()
        assert high == -low == pytest.approx(np.abs(matrix).max())
        low, high = plots.heatmap(np.abs(matrix), diverging=True).images[0].get_clim()
        assert low == -high

    def test_zero_is_paper_white_in_both_scales(self):
        for ax in (plots.heatmap([[0.0, 1.0]]), plots.heatmap([[0.0, 1.0, -1.0]])):
            image = ax.images[0]
            assert min(image.cmap(image.norm(0.0))[:3]) > 0.95

    @pytest.mark.parametrize(
        ("latents", "numbered"), [(2, True), (16, True), (17, False), (64, False)]
    )
    def test_numbers_vanish_when_there_are_too_many(self, latents, numbered):
        ax = plots.heatmap(np.eye(latents))
        assert bool(texts(ax)) == numbered
        figure = renders(ax)
        assert max(figure.get_size_inches()) <= 8

    def test_sixty_four_labels_do_not_touch(self):
        ax = plots.heatmap(np.eye(64))
        figure = renders(ax)
        boxes = [t.get_window_extent() for t in ax.get_xticklabels()]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
        assert figure.get_size_inches()[0] > 4

    def test_marked_latents_are_bold_and_the_others_grey(self):
        ax = plots.heatmap(np.eye(4), marks=[1, 3])
        for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
            assert [t.get_fontweight() for t in labels] == ["normal", "bold", "normal", "bold"]
        assert "bold: causal" in texts(ax)

    def test_names_of_rows_and_columns_are_shown(self):
        ax = plots.heatmap(random(2, 3), rows=["scale", "shape"], columns=["a", "b", "c"])
        assert [t.get_text() for t in ax.get_yticklabels()] == ["scale", "shape"]
        assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "b", "c"]

    def test_a_limit_sets_the_darkest_colour(self):
        assert plots.heatmap([[0.5]], limit=1.0).images[0].get_clim() == (0, 1)
        ax = plots.heatmap([[-0.5, 1.0]], limit=1.0, diverging=False)
        assert ax.images[0].get_clim() == (0, 1)
        assert [text.get_text() for text in ax.texts][:2] == ["−0.50", "1.00"]

    def test_text_can_be_read_on_every_colour(self):
        ax = plots.heatmap(np.linspace(0, 1, 16).reshape(4, 4))
        for text, shade in zip(
            [t for t in ax.texts if not t.get_gid()], np.linspace(0, 1, 16), strict=True
        ):
            ground = ax.images[0].cmap(ax.images[0].norm(shade))
            assert (text.get_color() == "white") == theme.is_dark(ground)

    @pytest.mark.parametrize(
        ("matrix", "numbers", "note"),
        [
            ([[0.0, 1.0]], ["0.00", "0.25", "0.50", "0.75", "1.00"], "share"),
            ([[-2e-6, 1e-6]], ["−2", "−1", "0", "1", "2"], "share 1e−6"),
            ([[0.0, 0.0]], ["0.00", "0.25", "0.50", "0.75", "1.00"], "share"),
        ],
    )
    def test_the_bar_of_colours_says_which_value_has_which_colour(self, matrix, numbers, note):
        ax = plots.heatmap(matrix, label="share")
        image, gradient = ax.images
        *ticks, label = [text for text in ax.texts if text.get_gid()]
        assert [tick.get_text() for tick in ticks] == numbers
        assert label.get_text() == note
        assert (gradient.cmap, gradient.norm) == (image.cmap, image.norm)
        low, high = image.get_clim()
        _, right, bottom, top = gradient.get_extent()
        shades = gradient.get_array()[:, 0]
        for tick, position in zip(ticks, np.linspace(bottom, top, 5), strict=True):
            assert tick.get_position() == (pytest.approx(right, abs=0.1), pytest.approx(position))
            row = round((position - bottom) / (top - bottom) * (len(shades) - 1))
            shade = low + (high - low) * (position - bottom) / (top - bottom)
            assert shades[row] == pytest.approx(shade, abs=(high - low) / 100)
        figure = renders(ax)
        boxes = [text.get_window_extent() for text in (*ticks, label)]
        assert boxes[-1].x0 > max(box.x1 for box in boxes[:-1])
        assert all(is_inside(text, figure) for text in (*ticks, label))
        assert not plots.heatmap(matrix, bar=False).images[1:]

    def test_nan_and_wrong_names_are_refused(self):
        with pytest.raises(ConfigError, match="1 entries that are not finite"):
            plots.heatmap([[1.0, np.nan]])
        with pytest.raises(ConfigError, match="2 names for 3 rows"):
            plots.heatmap(np.eye(3), rows=["a", "b"])

    @pytest.mark.parametrize("scale", [1e-11, 1.0, 1e6])
    def test_the_numbers_of_a_bar_stand_beside_it(self, scale):
        ax = plots.heatmap(scale * random(4, 4))
        heights = [
            text.get_position()[1]
            for text in ax.texts
            if text.get_gid() == "colour bar" and not text.get_rotation()
        ]
        assert len(heights) >= 3
        assert all(0 <= height <= 1 for height in heights)


class TestGraph:
    def graph(self):
        graph = nx.DiGraph()
        graph.add_nodes_from(range(5))
        for j, k, weight in [(0, 1, 0.8), (1, 0, 0.7), (1, 2, 0.3), (3, 2, 0.5), (2, 3, 0.1)]:
            graph.add_edge(j, k, weight=weight)
        return graph

    def arrows(self, ax):
        return [p for p in ax.patches if isinstance(p, mpl.patches.FancyArrowPatch)]

    def test_every_edge_is_an_arrow_with_its_weight_and_every_node_a_circle(self):
        ax = plots.causal_graph(self.graph())
        assert len(self.arrows(ax)) == 5
        circles = [p for p in ax.patches if isinstance(p, mpl.patches.Circle)]
        assert len(circles) == 5
        values = texts(ax)
        assert {"0", "1", "2", "3", "4"} <= set(values)
        assert {"0.80", "0.70", "0.30", "0.50", "0.10"} <= set(values)
        renders(ax)

    def test_stronger_edges_are_wider(self):
        widths = [a.get_linewidth() for a in self.arrows(plots.causal_graph(self.graph()))]
        assert widths == sorted(widths)
        assert widths[-1] > 2 * widths[0]

    def test_pairs_are_similar_in_both_directions(self):
        ax = plots.causal_graph(self.graph())
        red = [a for a in self.arrows(ax) if a.get_edgecolor()[0] > a.get_edgecolor()[2]]
        assert len(red) == 2  # 0 and 1; not 2 and 3, whose ratio is 5
        assert any("red: similar" in t for t in texts(ax))
        none = plots.causal_graph(self.graph(), pairs=[])
        assert not [a for a in self.arrows(none) if a.get_edgecolor()[0] > a.get_edgecolor()[2]]

    def test_no_two_nodes_overlap(self):
        graph = nx.gnp_random_graph(24, 0.3, directed=True, seed=1)
        circles = [
            p for p in plots.causal_graph(graph).patches if isinstance(p, mpl.patches.Circle)
        ]
        spots = np.array([c.center for c in circles])
        apart = np.linalg.norm(spots[:, None] - spots[None], axis=-1) + 9 * np.eye(24)
        assert apart.min() > 2 * circles[0].radius

    def test_a_dense_graph_shows_its_strongest_edges_and_says_so(self):
        graph = nx.complete_graph(10, create_using=nx.DiGraph)
        for k, (_, _, data) in enumerate(graph.edges(data=True)):
            data["weight"] = 1 + k
        ax = plots.causal_graph(graph)
        assert len(self.arrows(ax)) == 30
        assert any("strongest 30 of 90" in t for t in texts(ax))

    def test_where_many_edges_cross_their_numbers_are_left_to_the_matrix(self):
        for nodes, shown in ((4, True), (6, False)):  # 6 and 15 edges
            graph = nx.DiGraph()
            graph.add_weighted_edges_from((j, k, 0.5) for k in range(nodes) for j in range(k))
            assert ("0.50" in texts(plots.causal_graph(graph))) is shown
            assert "0.50" in texts(plots.causal_graph(graph, numbers=True))

    def test_nodes_without_edges_stand_in_one_row(self):
        graph = nx.DiGraph()
        graph.add_nodes_from(range(6))
        circles = [
            p for p in plots.causal_graph(graph).patches if isinstance(p, mpl.patches.Circle)
        ]
        assert len({c.center[0] for c in circles}) == 6
        assert len({c.center[1] for c in circles}) == 1

    @pytest.mark.parametrize("nodes", [0, 1, 2, 3])
    def test_small_graphs_are_drawn_too(self, nodes):
        renders(plots.causal_graph(nx.complete_graph(nodes, create_using=nx.DiGraph)))

    def test_the_layout_is_the_same_every_time(self):
        one, two = (
            [t.get_position() for t in plots.causal_graph(self.graph()).texts] for _ in range(2)
        )
        assert one == two


class TestAmounts:
    def test_bars_are_as_high_as_their_values(self):
        ax = plots.bars(torch.tensor([0.5, 2.0, -1.0]), x="latent", y="KL")
        assert [bar.get_height() for bar in ax.patches] == [0.5, 2.0, -1.0]
        assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2"]
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("latent", "KL")

    def test_unmarked_bars_are_grey_and_names_are_shown(self):
        ax = plots.bars([1, 2], names=["shape", "scale"], marks=[1], errors=[0.1, 0.2], line=1.5)
        colours = [mpl.colors.to_hex(bar.get_facecolor()) for bar in ax.patches]
        assert colours[0] != colours[1] == theme.BLUE.lower()
        assert [t.get_text() for t in ax.get_xticklabels()] == ["shape", "scale"]
        renders(ax)

    def test_shares_of_a_histogram_add_up_to_one(self):
        ax = plots.histograms({"a": random(500), "b": random(50) + 2}, x="displacement", mark=1.0)
        stairs = [p for p in ax.patches if isinstance(p, mpl.patches.StepPatch)]
        assert all(p.get_data().values.sum() == pytest.approx(1) for p in stairs)
        assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b"]
        assert plots.histogram(random(100)).get_legend() is None

    def test_nothing_and_nan_are_refused(self):
        for draw in (plots.bars, plots.histogram):
            with pytest.raises(ConfigError, match="finite"):
                draw([])
            with pytest.raises(ConfigError, match="1 are not finite"):
                draw([1.0, np.nan])


class TestCurves:
    def test_lines_carry_their_values_and_their_names(self):
        ax = plots.lines({"one": [1, 2, 3], "two": [3, 2, 1.5]}, at=[1, 2, 4], x="latents", y="CDS")
        assert np.allclose(ax.lines[0].get_xydata(), [[1, 1], [2, 2], [4, 3]])
        assert texts(ax) == ["two", "one"]  # from below
        assert ax.texts[0].get_color() == ax.lines[1].get_color()

    def test_the_legend_of_many_lines_is_beside_the_axes(self):
        ax = plots.lines({f"line {k}": [k, 9 - k] for k in range(10)})
        ax.figure.canvas.draw()
        assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1

    def test_names_of_lines_that_end_together_do_not_overlap(self):
        ax = plots.lines({name: [0, 1 + k / 1000] for k, name in enumerate("abcde")})
        renders(ax)
        heights = sorted(t.get_window_extent().y0 for t in ax.texts)
        sizes = [t.get_window_extent().height for t in ax.texts]
        assert np.diff(heights).min() > 0.6 * max(sizes)

    def test_traversal_errors_have_a_panel_for_each_observed_latent_and_a_line_for_each_sample(
        self,
    ):
        values, errors = np.linspace(-2, 2, 9), random(6, 9, 5)
        figure = plots.traversal_errors(values, errors, moved=3)
        panels = [ax for ax in figure.axes if ax.get_visible()]
        assert len(panels) == 5
        for k, ax in enumerate(panels):
            (lines,) = ax.collections
            drawn = np.stack([segment[:, 1] for segment in lines.get_segments()])
            assert np.array_equal(drawn, errors[:, :, k])
            assert len(np.unique(lines.get_colors(), axis=0)) == 6
        assert "latent 3, moved" in figure.get_supxlabel()
        renders(figure)

    def test_of_many_latents_those_with_the_largest_errors_get_a_panel(self):
        values, errors = np.linspace(-2, 2, 3), 0.1 * random(2, 3, 30)
        errors[1, 1, 6:] = 5
        figure = plots.traversal_errors(values, errors, moved=0)
        panels = [ax for ax in figure.axes if ax.get_visible()]
        assert [ax.get_title("left") for ax in panels] == [f"latent {k}" for k in range(6, 30)]
        assert "24 of 30" in figure.get_supxlabel()
        renders(figure)

    def test_given_axes_show_the_latent_with_the_largest_error(self):
        values, errors = np.linspace(-2, 2, 9), 0.1 * random(4, 9, 3)
        errors[2, 4, 0] = 9
        _, ax = plt.subplots()
        assert plots.traversal_errors(values, errors, moved=2, ax=ax) is ax
        assert "latent 2" in ax.get_xlabel()
        assert "latent 0" in ax.get_ylabel()

    def test_shapes_that_do_not_fit_are_refused(self):
        with pytest.raises(ConfigError, match="expected values"):
            plots.traversal_errors(np.zeros(8), np.zeros((3, 9, 4)), moved=0)
        with pytest.raises(ConfigError, match="3 values at 2 positions"):
            plots.lines({"a": [1, 2, 3]}, at=[1, 2])

    @pytest.mark.parametrize("count", [1, 2, 5, 10])
    def test_the_words_below_panels_fit_the_figure(self, count):
        values, errors = random(count, 9), random(count, 3, 9, count)
        figure = renders(plots.traversal_panels(values, errors))
        (ax,) = figure.axes
        assert is_inside(ax.xaxis.label, figure)
        assert all(is_inside(text, figure) for text in ax.texts)


class TestPictures:
    def sheet(self, ax):
        return np.asarray(ax.images[0].get_array())

    @pytest.mark.parametrize("channels", [1, 3])
    def test_every_pixel_of_every_picture_is_there(self, channels):
        images = np.random.default_rng(0).uniform(size=(2, 3, channels, 32, 32))
        sheet = self.sheet(plots.image_grid(images))
        gap = 2
        for row in range(2):
            for column in range(3):
                top, left = row * (32 + gap), column * (32 + gap)
                values = sheet[top : top + 32, left : left + 32]
                assert np.allclose(values.transpose(2, 0, 1)[:channels], images[row, column])

    def test_bytes_and_other_ranges_are_scaled(self):
        whole = np.array([[[[0, 255]]]], dtype=np.uint8)
        assert self.sheet(plots.image_grid(whole)).max() == 1
        wide = self.sheet(plots.image_grid(np.array([[[[-3.0, 5.0]]]])))
        assert (wide.min(), wide.max()) == (0, 1)
        limited = self.sheet(plots.image_grid(np.array([[[[0.2, 0.4]]]]), limits=(0.0, 0.8)))
        assert limited.min() == pytest.approx(0.25)

    def test_vectors_become_lines(self):
        ax = plots.image_grid(random(2, 4, 20))
        strokes = ax.collections[1].get_segments()
        assert len(strokes) == 8
        assert all(len(stroke) == 20 for stroke in strokes)
        assert not ax.images

    def test_rows_and_columns_are_named_or_refused(self):
        ax = plots.image_grid(np.zeros((2, 3, 1, 8, 8)), rows=["a", "b"], columns=[1, 2, 3])
        assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
        with pytest.raises(ConfigError, match="1 names for 2"):
            plots.image_grid(np.zeros((2, 3, 1, 8, 8)), rows=["a"])
        with pytest.raises(ConfigError, match="NaN"):
            plots.image_grid(np.full((1, 1, 1, 8, 8), np.nan))

    def test_traversals_decode_one_latent_at_a_time_in_the_given_order(self):
        """The identity decoder shows the codes themselves as vectors."""
        base = torch.tensor([0.1, 0.2, 0.3])
        figure = plots.traversals(
            identity(3), base, order=[2, 0], labels=["third", "first"], extent=(-1, 1), steps=3
        )
        ax = figure.axes[0]
        strokes = np.array(ax.collections[1].get_segments())
        assert strokes.shape == (6, 3, 2)
        heights = strokes[:, :, 1].reshape(2, 3, 3)
        # Only the moved latent changes along a row, by equal steps, upwards.
        assert np.allclose(np.diff(heights[0, :, :2], axis=0), 0)
        steps = np.diff(heights[0, :, 2])
        assert np.allclose(steps, steps[0])
        assert steps[0] < 0  # the axis runs downwards
        assert [t.get_text() for t in ax.get_yticklabels()] == ["third", "first"]

    def test_traversals_are_ordered_by_divergence(self):
        figure = plots.traversals(identity(3), torch.zeros(3), kl=[0.5, 2.0, 0.01])
        names = [t.get_text() for t in figure.axes[0].get_yticklabels()]
        assert names == ["1   KL 2.00", "0   KL 0.50", "2   KL 0.01"]
        with pytest.raises(ConfigError, match="order"):
            plots.traversals(identity(3), torch.zeros(3), order=[5])

    def test_a_single_hybrid_row_has_its_originals_at_both_ends(self):
        decoded, sources = np.full((4, 1, 32, 32), 0.5), np.stack([np.zeros((1, 32, 32))] * 2)
        sources[1] = 1
        ax = plots.hybrid_grid(decoded, sources)
        sheet = self.sheet(ax)
        assert sheet[:, :32].max() == 0
        assert sheet[:, -32:].min() == 1
        assert sheet[:, 34:66].mean() == pytest.approx(0.5)
        names = [t.get_text() for t in ax.get_xticklabels()]
        assert names == ["base", "0", "1", "2", "3", "other"]

    def test_the_double_grid_shows_all_pairs_and_three_originals(self):
        ax = plots.hybrid_grid(np.zeros((4, 4, 1, 8, 8)), np.ones((3, 1, 8, 8)))
        assert len(ax.images) == 4
        assert {"base", "first", "second"} <= set(texts(ax))
        renders(ax)

    def test_hybrids_of_vectors_are_drawn(self):
        renders(plots.hybrid_grid(random(4, 20), random(2, 20)))
        renders(plots.hybrid_grid(random(4, 4, 20), random(3, 20)))


class TestMaps:
    def plane(self, **options):
        world = responding(lambda z: z + torch.stack([z[:, 0] ** 2, -3 * z[:, 1]], 1), 2)
        codes = torch.from_numpy(0.5 * random(300, 2))
        options = {
            "codes": codes,
            "extent": (-1, 1, -2, 2),
            "grid": 20,
            "decode_grid": 0,
            **options,
        }
        return response_map(world, ZERO, **options)

    def test_the_divergence_lies_with_the_first_latent_across_and_zero_white(self):
        field = self.plane()
        ax = plots.divergence_map(field)
        image = ax.images[0]
        assert np.allclose(image.get_array(), field.divergence.T)
        assert image.origin == "lower"
        assert image.get_extent() == pytest.approx([-1, 1, -2, 2])
        low, high = image.get_clim()
        assert low == -high
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("latent 0", "latent 1")
        renders(ax)

    def test_codes_are_on_top_and_coloured_by_a_factor(self):
        field = self.plane()
        ax = plots.divergence_map(field, factor=np.arange(300) % 3, names=["a", "b", "c"])
        dots = ax.collections[0]
        assert np.allclose(dots.get_offsets(), field.codes)
        assert len(np.unique(dots.get_facecolors(), axis=0)) == 3
        assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b", "c"]
        continuous = plots.divergence_map(field, factor=np.linspace(0, 1, 300))
        assert continuous.get_legend() is None
        with pytest.raises(ConfigError, match="5 factor values for 300 codes"):
            plots.divergence_map(field, factor=range(5))

    def test_what_is_unlike_data_is_hatched_and_explained(self):
        recording = zs.record(identity(2), torch.from_numpy(0.3 * random(400, 2)).float())
        options = {"dims": (0, 1), "grid": 9, "decode_grid": 0, "score_grid": 9}
        field = zs.assays.response_map(recording, extent=2, **options)
        assert 0.2 < field.unlike.double().mean() < 0.98
        for draw in (plots.divergence_map, plots.curvature_map, plots.magnitude_map):
            hatched = [c for c in draw(field).collections if any(getattr(c, "hatches", []) or [])]
            assert len(hatched) == 1
            (path,) = hatched[0].get_paths()
            rings = [mpl.path.Path(ring) for ring in path.to_polygons()]
            # Inside an odd number of rings is hatched.
            where = sum(
                ring.contains_points([[0.1, 0.1], [1.9, 1.9]]).astype(int) for ring in rings
            )
            assert (where % 2).tolist() == [0, 1]
        figure = field.plot()
        assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "unlike data"
        renders(figure)
        # Nothing is hatched where all is like data, and nothing said where it was not compared.
        near = zs.assays.response_map(recording, extent=0.1, **options)
        ax = plots.magnitude_map(near)
        assert not any(any(getattr(c, "hatches", []) or []) for c in ax.collections)
        assert self.plane().unlike is None
        assert self.plane().plot().legends == []

    def test_undefined_curvature_is_masked(self):
        field = response_map(responding(lambda z: 0 * z, 2), ZERO, extent=(-1, 1), grid=21)
        values = plots.curvature_map(field).images[0].get_array()
        assert np.array_equal(np.ma.getmaskarray(values), field.undefined.T)
        assert values.mask.sum() == 5
        everything = response_map(identity(2), ZERO, extent=(-1, 1), grid=5)
        renders(plots.curvature_map(everything))

    def test_the_whole_figure_has_two_or_three_panels(self):
        def titled(figure):
            return [ax.get_title(loc="left") for ax in figure.axes if ax.get_title(loc="left")]

        assert titled(self.plane().plot()) == ["divergence", "mean curvature"]
        figure = self.plane(decode_grid=3).plot(factor=np.zeros(300))
        assert titled(figure) == ["divergence", "mean curvature", "decoded"]
        renders(figure)
        _, ax = plt.subplots()
        assert self.plane().plot(ax=ax) is ax

    def test_decoded_tiles_are_placed_as_the_map_is(self):
        """A picture whose brightness is the second latent: bright above, dark below."""

        def decoder(z):
            return z[:, 1].reshape(-1, 1, 1, 1).expand(-1, 1, 32, 32)

        world = zs.wrap(lambda x: x[:, 0, :1, 0].repeat(1, 2), decoder, latents=2, prior=None)
        field = response_map(world, torch.zeros(2), extent=(0, 1), grid=3, decode_grid=4)
        ax = plots.decoded_map(field)
        sheet = np.asarray(ax.child_axes[0].images[0].get_array())
        assert sheet[5, 5].mean() == pytest.approx(0.875)
        assert sheet[-5, 5].mean() == pytest.approx(0.125)
        assert sheet[5, 5].mean() == sheet[5, -5].mean()
        with pytest.raises(ConfigError, match="decode_grid=12"):
            plots.decoded_map(self.plane())

    def test_sizes_and_arrows_are_drawn(self):
        field = self.plane()
        values = plots.magnitude_map(field).images[0].get_array()
        assert np.allclose(values, field.magnitude.T)
        renders(plots.divergence_map(field, arrows=True, codes=False))

    def test_drift_shows_fixed_points_and_basins(self):
        world = responding(
            lambda z: torch.cat([z[:, :1] + 0.25 * (z[:, :1] - z[:, :1] ** 3), 0.2 * z[:, 1:]], 1),
            2,
        )
        result = drift(response_map(world, ZERO, extent=(-1.5, 1.5), grid=4), grid=10)
        ax = result.plot()
        assert len(ax.collections) == len(result.fixed_points) == 2
        picture = np.asarray(ax.images[0].get_array())
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) == 2
        assert (picture[:, 0] == picture[0, 0]).all()  # left half: one basin
        assert "2 fixed points" in ax.get_title(loc="left")
        renders(ax)

    def test_drift_in_many_latents_shows_how_steps_shrink(self):
        result = drift(responding(lambda z: 0.5 * z, 4), torch.from_numpy(random(20, 4)))
        ax = result.plot()
        median = ax.lines[-1].get_ydata()
        assert median[3] / median[2] == pytest.approx(0.5, rel=0.01)
        renders(ax)
        renders(result.plot(dims=(1, 3)))


class TestPaths:
    def path(self, everywhere=False):
        world = responding(lambda z: z + torch.stack([0.3 * z[:, 1] ** 2, 0 * z[:, 1]], 1), 2)
        codes = torch.from_numpy(0.5 * random(100, 2))
        ends = torch.tensor([[-0.9, 0.5], [0.9, 0.8]], dtype=torch.float64)
        subject = world if everywhere else response_map(world, ZERO, extent=(-1, 1), grid=30)
        return manifold_path(subject, *ends, codes=codes)

    @pytest.mark.parametrize("everywhere", [False, True])
    def test_the_plane_shows_both_paths(self, everywhere):
        path = self.path(everywhere)
        ax = plots.path_plane(path)
        curves = [line.get_xydata() for line in ax.lines]
        assert any(d.shape == (101, 2) and np.allclose(d, path.points) for d in curves)
        assert any(d.shape == (101, 2) and np.allclose(d, path.straight) for d in curves)
        assert texts(ax) == ["start", "end"]
        assert bool(ax.images) != everywhere

    def test_the_figure_tells_the_costs(self):
        path = self.path()
        figure = path.plot()
        words = [
            t.get_text()
            for ax in figure.axes
            if ax.get_legend()
            for t in ax.get_legend().get_texts()
        ]
        assert f"path: cost {path.cost:.3g}" in words
        assert f"straight: cost {path.straight_cost:.3g}" in words
        renders(figure)

    def test_strips_of_pictures_run_from_start_to_end(self):
        frames = np.random.default_rng(0).uniform(size=(2, 5, 1, 32, 32))
        ax = plots.film_strip(frames, names=["path", "straight"])
        assert [t.get_text() for t in ax.get_yticklabels()] == ["path", "straight"]
        columns = [t.get_text() for t in ax.get_xticklabels()]
        assert (columns[0], columns[-1]) == ("start", "end")
        sheet = np.asarray(ax.images[0].get_array())
        assert np.allclose(sheet[34:66, :32, 0], frames[1, 0, 0])

    def test_strips_of_long_vectors_are_small_lines_and_of_short_ones_features(self):
        assert len(plots.film_strip(random(2, 5, 40)).collections[1].get_segments()) == 10
        frames = random(2, 5, 3)
        ax = plots.film_strip(frames, names=["path", "straight"])
        curves = [line.get_ydata() for line in ax.lines if len(line.get_ydata()) == 5]
        assert len(curves) == 6
        assert np.allclose(curves[0], frames[0, :, 0])


class TestPlanes:
    def test_clouds_are_named_and_thinned(self):
        ax = plots.clouds({"prior": random(9000, 3), "responses": random(50, 3)})
        sizes = [len(c.get_offsets()) for c in ax.collections]
        assert sizes == [3000, 50]
        assert [t.get_text() for t in ax.get_legend().get_texts()] == ["prior", "responses"]

    def test_arrows_point_from_codes_to_responses(self):
        start, end = random(30, 2), random(30, 2) + 1
        ax = plots.arrows(start, end)
        quiver = ax.collections[0]
        assert np.allclose(quiver.get_offsets(), start)
        assert np.allclose(np.column_stack([quiver.U, quiver.V]), end - start)
        low, high = ax.get_xlim()
        assert low < min(start[:, 0].min(), end[:, 0].min())
        assert high > max(start[:, 0].max(), end[:, 0].max())
        with pytest.raises(ConfigError, match="30 starts and 2 ends"):
            plots.arrows(start, end[:2])


class TestResponsesFigures:
    def test_one_latent_has_figures_too(self):
        """They need no plane: distributions, and a path by its cost and frames."""
        world, codes = responding(lambda z: 0.9 * z, 1), torch.tensor(random(60, 1))
        for result in (
            zs.assays.response(world, codes),
            zs.assays.structure_score(world, codes, samples=50),
        ):
            ax = result.plot()
            assert ax.get_xlabel() == "latent 0"
            renders(ax)
        path = manifold_path(world, codes[0], codes[1], codes=codes)
        assert len(renders(path.plot()).axes) == 2
        with pytest.raises(ConfigError, match="one latent, and a plane needs two"):
            plots.path_plane(path)

    def test_codes_that_run_away_leave_the_others_in_the_picture(self):
        codes = torch.tensor([[0.5, 0.5], [-0.5, 0.2], [1.5, 1.2]])
        ax = drift(responding(lambda z: z**3, 2), codes).plot()
        assert np.abs([ax.get_xlim(), ax.get_ylim()]).max() < 2
        renders(drift(responding(lambda z: 2 * z, 2), codes, trajectories=0).plot())
        renders(drift(responding(lambda z: z / 2, 3), random(5, 3), trajectories=0).plot())

    def test_eight_fixed_points_have_eight_colours(self):
        codes = torch.tensor([[k, 0.0] for k in range(8)])
        ax = drift(responding(lambda z: z, 2), codes).plot()
        colours = {tuple(point.get_edgecolor()[0]) for point in ax.collections}
        assert len(colours) == 8

    def test_long_names_of_extractors_are_not_cut_off(self):
        from zscope.assays.generation.quality import SampleQuality

        result = SampleQuality(
            {"reconstructions": 1.0, "hybrid": 2.0}, {}, {}, 0.5, "last hidden layer of dip-vae", 9
        )
        ax = result.plot()
        figure = renders(ax)
        for label in (ax.xaxis.label, ax.yaxis.label):
            box = label.get_window_extent()
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= figure.bbox.width
            assert box.y1 <= figure.bbox.height

    def test_ends_of_a_path_are_named_beside_the_lines(self):
        plane = response_map(identity(2), ZERO, grid=5, extent=(-1, 1))
        ax = plots.path_plane(manifold_path(plane, np.array([0.1, 0.0]), np.array([0.6, 0.0])))
        start, end = ax.texts
        assert (start.get_ha(), end.get_ha()) == ("right", "left")
        single = response_map(identity(2), ZERO.float(), grid=5, extent=(-1, 1))
        here = np.array([0.3, 0.7])
        ax = plots.path_plane(manifold_path(single, here, here))
        assert [text.get_ha() for text in ax.texts] == ["right", "left"]

    def test_a_latent_with_itself_is_left_blank_and_collapsed_units_are_grey(self):
        codes = torch.tensor(random(100, 3))
        assert len(texts(zs.assays.independence(codes).plot())) == 6
        world = responding(lambda z: z * torch.tensor([1.0, 0.0, 1.0]), 3)
        ax = zs.assays.interventional_consistency(world, codes).plot()
        assert [label.get_fontweight() for label in ax.get_xticklabels()] == [
            "bold",
            "normal",
            "bold",
        ]
        assert "bold: not collapsed" in texts(ax)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """mig = log2 β / 10 + seed / 100 of two models; sap falls while mig rises."""
    folder = tmp_path_factory.mktemp("runs")
    for model in ("ae", "vae"):
        for beta in (1, 4, 16):
            for seed in range(3):
                mig = np.log2(beta) / 10 + seed / 100 + (model == "vae")
                make_run(
                    folder / f"{model}-{beta}-{seed}", model=model, seed=seed,
                    options={"beta": beta},
                    scores={"mig": mig, "sap": np.exp(-mig), "irs": 1.0},
                )  # fmt: skip
    make_run(folder / "later", status="running", options={"beta": 64}, scores={"mig": 99.0})
    return zs.runs(folder)


class TestFamilies:
    def test_lines_are_means_and_bands_their_intervals(self, runs):
        ax = plots.score_lines(runs, "mig", "beta", "model")
        assert [list(line.get_xdata()) for line in ax.lines] == [[1, 4, 16]] * 2
        assert np.allclose(ax.lines[0].get_ydata(), [0.01, 0.21, 0.41])
        low = min(path.vertices[:, 1].min() for path in ax.collections[0].get_paths())
        assert low == pytest.approx(0.01 - 4.302653 * 0.01 / np.sqrt(3))
        assert texts(ax) == ["ae", "vae"]
        assert ax.get_xscale() == "log"
        assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "4", "16"]
        assert ax.get_title("left").startswith("mean over seed")
        renders(ax)

    @pytest.mark.parametrize(
        ("counts", "note"),
        [
            ((3, 3, 3), "(n = 3); shaded: 95 % interval"),
            ((2, 2, 2), "(n = 2); shaded: range of 2 runs"),
            ((3, 2, 4), "(n = 2 to 4); shaded: 95 % interval or range of 2 runs"),
            ((3, 1, 1), "(n = 1 to 3); shaded: 95 % interval (none for single runs)"),
            ((1, 2, 2), "(n = 1 to 2); shaded: range of 2 runs (none for single runs)"),
            ((1, 1, 1), None),
        ],
    )
    def test_the_note_says_what_is_shaded(self, tmp_path, counts, note):
        betas = (1, 2, 4)
        for beta, count in zip(betas, counts, strict=True):
            for seed in range(count):
                make_run(tmp_path / f"{beta}-{seed}", seed=seed + (count == 1) * beta,
                         options={"beta": beta}, scores={"mig": beta + seed / 10})  # fmt: skip
        ax = plots.score_lines(zs.runs(tmp_path), "mig", "beta")
        expected = "single runs" if note is None else f"mean over seed {note}"
        assert " ".join(ax.get_title("left").split()) == expected
        shaded = {
            float(x)
            for each in ax.collections
            for path in each.get_paths()
            for x in path.vertices[:, 0]
        }
        assert shaded == {beta for beta, n in zip(betas, counts, strict=True) if n > 1}

    def test_runs_with_the_same_settings_are_no_single_runs(self, tmp_path):
        for k in range(2):
            for beta in (1, 2):
                make_run(tmp_path / f"{beta}-{k}", options={"beta": beta}, scores={"mig": k},
                         log_every=50 + k)  # fmt: skip
        title = plots.score_lines(zs.runs(tmp_path), "mig", "beta").get_title("left")
        assert title.startswith("mean of runs with the same settings (n = 2)")

    @pytest.mark.parametrize(
        ("betas", "scale", "ticks"),
        [
            ((0.5, 1, 2), "log", ["0.5", "1", "2"]),
            ((2, 4, 6, 8, 10, 20), "log", ["2", "4", "6", "8", "10", "20"]),
            ((1, 2, 3), "linear", ["1", "2", "3"]),
            ((1, 5, 10), "linear", ["1", "5", "10"]),
            ((0, 1, 2, 50), "linear", ["0", "50"]),
        ],
    )
    def test_values_that_grow_by_factors_have_even_distances(self, tmp_path, betas, scale, ticks):
        for beta in betas:
            make_run(tmp_path / str(beta), options={"beta": beta}, scores={"mig": beta})
        ax = plots.score_lines(zs.runs(tmp_path), "mig", "beta")
        assert ax.get_xscale() == scale
        assert [tick.get_text() for tick in ax.get_xticklabels()] == ticks

    def test_correlations_say_how_many_runs_have_both_scores(self, tmp_path):
        for k in range(5):
            scores = {"mig": k, "sap": -k, **({"irs": k} if k < 4 else {})}
            make_run(tmp_path / str(k), seed=k, scores=scores)
        title = plots.rank_correlations(zs.runs(tmp_path)).get_title("left")
        assert title == "4 to 5 runs with both scores"

    def test_what_is_averaged_over_is_named(self, runs):
        assert "mean over model, seed" in plots.score_lines(runs, "mig", "beta").get_title("left")

    def test_points_have_their_rank_correlation(self, runs):
        ax = plots.score_scatter(runs, "sap", "mig", "model")
        assert sum(len(points.get_offsets()) for points in ax.collections) == 18
        assert "ρ = \u22121.00 over 18 runs" in ax.get_title("left")
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ae", "vae"]
        renders(ax)

    def test_the_legend_lies_beside_the_points(self, runs):
        ax = plots.score_scatter(runs, "sap", "mig", "model")
        ax.figure.canvas.draw()
        assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1
        assert ax.get_legend().get_window_extent().x1 <= ax.figure.bbox.x1

    def test_two_points_have_no_correlation_however_often_they_occur(self, tmp_path):
        for k in range(4):
            make_run(tmp_path / str(k), seed=k, scores={"mig": k % 2, "sap": k % 2})
        ax = plots.score_scatter(tmp_path, "sap", "mig")  # a folder will do
        assert ax.get_title("left") == "4 runs, too few or constant for a correlation"
        with pytest.raises(Undefined, match="of 2 scores, 0 vary"):
            plots.rank_correlations(tmp_path)

    def test_a_setting_with_one_value_has_bars_and_equal_runs_nothing(self, tmp_path):
        for k in range(3):
            make_run(tmp_path / str(k), seed=k, options={"beta": 1}, scores={"mig": k, "sap": 3})
        assert (
            plots.score_lines(tmp_path, "mig", "beta")
            .get_title("left")
            .endswith("(n = 3); bar: 95 % interval")
        )
        title = plots.score_lines(tmp_path, "sap", "beta").get_title("left")
        assert " ".join(title.split()) == "mean over seed (n = 3), which all have the same value"

    def test_the_matrix_of_rank_correlations(self, runs):
        ax = plots.rank_correlations(runs)
        assert np.allclose(ax.images[0].get_array(), [[1, -1], [-1, 1]])
        assert ax.images[0].get_clim() == (-1, 1)
        assert "constant or too few: irs" in ax.get_title("left")
        renders(ax)

    def test_what_cannot_be_drawn_says_so(self, runs):
        with pytest.raises(ConfigError, match="no finished runs with numbers for both"):
            plots.score_lines(runs, "mig", "model")
        with pytest.raises(ConfigError, match="no column is called 'betta'"):
            plots.score_lines(runs, "mig", "betta")
        with pytest.raises(Undefined, match="of 2 scores, 1 vary"):
            plots.rank_correlations(runs, ["mig", "irs"])
