import numpy as np
import pytest
import torch
from worlds import curved, gaussian_codes, identity, ignoring, permuted, rescaled, responding

import zscope as zs
from zscope.assays import traversal_responses
from zscope.errors import ConfigError


def test_an_identity_autoencoder_makes_no_error():
    found = traversal_responses(identity(3), gaussian_codes(100, 3))
    assert found.error.abs().max() == 0


def test_the_error_is_decoded_minus_response_one_latent_at_a_time():
    world, codes, base = curved(3), gaussian_codes(100, 3), torch.tensor([0.3, -0.2, 0.5]).double()
    found = traversal_responses(world, codes, base=base, steps=7)
    for moved in range(3):
        for step in range(7):
            vector = base.clone()
            vector[moved] = found.values[moved, step]
            expected = vector - world.encoder(vector[None])[0]
            torch.testing.assert_close(found.error[moved, 0, step], expected)


def test_every_sample_of_the_aggregate_posterior_has_its_own_traversal():
    """Each is the traversal of that sample alone; they differ where latents act on each other."""
    world = curved(3)
    posterior = zs.Posterior(gaussian_codes(100, 3), torch.full((100, 3), 0.5).double())
    found = traversal_responses(world, posterior, samples=5, steps=4)
    assert found.error.shape == (3, 5, 4, 3)
    for sample in range(5):
        alone = traversal_responses(world, posterior, base=found.base[sample], steps=4)
        torch.testing.assert_close(found.error[:, sample], alone.error[:, 0])
    assert found.error.std(1).max() > 0.1
    # Draws of the posterior, not its means.
    assert torch.cdist(found.base, posterior.mean).min() > 0
    recording = zs.record(world, gaussian_codes(50, 3).float())
    assert torch.equal(traversal_responses(recording).base, recording.base_samples[:8])


def test_where_latents_act_alone_all_samples_have_one_line():
    world = responding(torch.tanh, 3)
    found = traversal_responses(world, gaussian_codes(100, 3), samples=6)
    own = torch.stack([found.error[m, :, :, m] for m in range(3)])
    assert own.std(1).max() < 1e-12
    assert own.abs().max() > 0.1


def test_the_figure_has_the_moved_latent_of_choice():
    found = traversal_responses(ignoring(3, [1]), gaussian_codes(100, 3))
    assert "latent 1, moved" in found.plot().get_supxlabel()  # the others change no error
    assert "latent 2, moved" in found.plot(latent=2).get_supxlabel()
    with pytest.raises(ConfigError, match="no latent 3"):
        found.plot(latent=3)


def test_an_ignored_latent_has_an_error_as_large_as_its_value():
    found = traversal_responses(ignoring(2, [1]), gaussian_codes(100, 2), base=torch.zeros(2))
    torch.testing.assert_close(found.error[1, 0, :, 1], found.values[1])
    assert found.error[0].abs().max() == 0
    assert found.largest.argmax() == 1


def test_mean_errors_of_moved_and_untouched_latents():
    """A latent that comes back as 0 errs by its value; one that leaks, by a tenth of the other."""
    codes = gaussian_codes(200, 2)
    ignored = traversal_responses(ignoring(2, [1]), codes, base=torch.zeros(2), range=1)
    assert ignored.untouched == 0
    assert ignored.moved == pytest.approx(float(ignored.values[1].abs().mean()) / 2)
    leak = responding(lambda z: z + 0.1 * z.flip(1), 2)
    leaking = traversal_responses(leak, codes, base=torch.zeros(2), range=1)
    assert leaking.moved == pytest.approx(0)
    assert leaking.untouched == pytest.approx(0.1 * float(leaking.values.abs().mean()))
    units = codes.std(0, correction=0)
    relative = float((0.1 * leaking.values.abs().mean(1) / units.flip(0)).mean())
    assert [m.value for m in leaking.measures()] == pytest.approx(
        [leaking.untouched, 0, relative, 0]
    )
    alone = traversal_responses(identity(1), codes[:, :1])
    assert alone.untouched is None
    assert [measure.name for measure in alone.measures()] == [
        "mean error, moved",
        "relative error, moved",
    ]


def test_the_figure_of_all_has_a_panel_for_each_pair_and_a_line_for_each_sample():
    found = traversal_responses(curved(3), gaussian_codes(100, 3), samples=12, range=1, steps=5)
    (ax,) = found.plot_all().axes
    names = ["latent 0", "latent 1", "latent 2"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == names
    assert [tick.get_text() for tick in ax.get_yticklabels()] == names
    assert ax.get_yticks().tolist() == [2.5, 1.5, 0.5]  # the first latent at the top
    assert len(ax.lines) == 12
    low, high = min(0, float(found.error.min())), max(0, float(found.error.max()))
    codes = gaussian_codes(100, 3)
    for sample, line in enumerate(ax.lines):
        parts = line.get_xydata().reshape(3, 3, 6, 2)  # a gap after the 5 steps of each panel
        assert np.isnan(parts[:, :, -1]).all()
        for moved in range(3):
            ends = codes[:, moved].min(), codes[:, moved].max()
            assert f"{ends[0]:.2g} to {ends[1]:.2g}".replace("-", "−") == ax.texts[moved].get_text()
            for observed in range(3):
                x, y = parts[moved, observed, :-1].T
                across = (found.values[moved] - ends[0]) / (ends[1] - ends[0])
                up = (found.error[moved, sample, :, observed] - low) / (high - low)
                assert x == pytest.approx(observed + 0.05 + 0.9 * across, abs=1e-6)
                assert y == pytest.approx(2 - moved + 0.05 + 0.9 * up, abs=1e-6)
    with pytest.raises(ConfigError, match="expected values of shape"):
        zs.plots.traversal_panels(found.values, found.error[0])


def test_the_range_is_that_of_the_codes():
    codes = gaussian_codes(1000, 2, scale=[1, 5])
    found = traversal_responses(identity(2), codes, range=0.5, steps=3)
    low, middle, high = found.values[1].tolist()
    assert (low, high) == pytest.approx(np.quantile(codes[:, 1], [0.25, 0.75]))
    assert middle == pytest.approx((low + high) / 2)


def test_permuting_the_latents_permutes_plots_and_lines():
    world, codes, order = curved(3), gaussian_codes(60, 3), [2, 0, 1]
    here = traversal_responses(world, codes)
    there = traversal_responses(permuted(world, order), codes[:, order])
    torch.testing.assert_close(there.error, here.error[order][..., order])
    assert there.untouched == pytest.approx(here.untouched)


def test_relative_errors_do_not_depend_on_the_units_of_a_latent():
    world, codes, units = curved(3), gaussian_codes(60, 3), torch.tensor([1.0, 10.0, 0.2]).double()
    here, there = (
        traversal_responses(w, c)
        for w, c in ((world, codes), (rescaled(world, units), codes * units))
    )
    torch.testing.assert_close(there.relative_error, here.relative_error)
    assert there.untouched != pytest.approx(here.untouched, rel=0.1)  # unlike the plain ones


def test_bad_options_are_refused():
    codes = gaussian_codes(20, 2)
    with pytest.raises(ConfigError, match="steps=1"):
        traversal_responses(identity(2), codes, steps=1)
    with pytest.raises(ConfigError, match=r"range=1\.5"):
        traversal_responses(identity(2), codes, range=1.5)
    with pytest.raises(ConfigError, match="base has 3 numbers"):
        traversal_responses(identity(2), codes, base=torch.zeros(3))
    with pytest.raises(zs.errors.InterfaceError, match="encoder gave NaN"):
        traversal_responses(responding(lambda z: z / z * torch.nan, 2), codes)
