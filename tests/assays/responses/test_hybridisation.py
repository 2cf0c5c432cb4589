import pytest
import torch
from worlds import gaussian_codes, identity, ignoring, seeded

import zscope as zs
from zscope.assays import hybridisation
from zscope.errors import ConfigError, Undefined


def three():
    return torch.tensor([[0.0, 0, 0], [1, 2, 3], [10, 20, 30]])


def test_each_unit_of_the_alternative_enters_the_base_in_turn():
    found = hybridisation(identity(3), three()[:2])
    assert found.codes.tolist() == [[1, 0, 0], [0, 2, 0], [0, 0, 3]]
    assert torch.equal(found.decoded, found.codes)
    assert torch.equal(found.decoded_sources, three()[:2])
    assert found.change.tolist() == pytest.approx([(v * v / 3) ** 0.5 for v in (1, 2, 3)])
    assert not found.double


def test_the_double_form_takes_one_unit_of_each_alternative():
    found = hybridisation(identity(3), three(), double=True)
    assert found.codes[0, 1].tolist() == [1, 20, 0]
    assert found.codes[1, 0].tolist() == [10, 2, 0]
    assert found.codes[2, 2].tolist() == [0, 0, 3]  # the first alternative alone
    assert found.decoded.shape == (3, 3, 3)
    assert found.double


def test_groups_enter_as_wholes():
    found = hybridisation(identity(3), three()[:2], groups=[[0, 2], [1]])
    assert found.codes.tolist() == [[1, 0, 3], [0, 2, 0]]


def test_with_several_alternatives_a_row_shows_what_one_part_can_change():
    codes = torch.cat([three(), torch.tensor([[5.0, 6, 7]])])
    codes = torch.cat([codes, 100 + torch.arange(4.0)[:, None]], 1)  # four latents
    found = hybridisation(identity(4), codes, alternatives=3, parts=2)
    assert found.groups == [[0, 1], [2, 3]]
    assert found.codes.shape == (2, 3, 4)
    assert found.codes[0, 1].tolist() == [10, 20, 0, 100]
    assert found.codes[1, 2].tolist() == [0, 0, 7, 103]
    assert found.unit_change[0] == pytest.approx(float((found.change[0] ** 2).mean() ** 0.5))
    assert "double" not in found.to_dict()
    ax = found.plot()
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names == ["", "latents 0, 1", "latents 2, 3"]


def test_two_alternatives_are_not_the_double_form():
    found = hybridisation(identity(3), three(), alternatives=2, groups=[[0, 2], [1]])
    assert found.codes.tolist() == [[[1, 0, 3], [10, 0, 30]], [[0, 2, 0], [0, 20, 0]]]
    assert not found.double
    pictures = torch.rand(2, 2, 1, 8, 8, generator=seeded(0))
    ax = zs.plots.segment_grid(pictures, pictures[0, [0, 1, 1]])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["base", "1", "2"]
    with pytest.raises(ConfigError, match="2 sources for hybrids with 2 alternatives"):
        zs.plots.segment_grid(pictures, pictures[0])


def test_the_variables_of_the_model_are_units_by_name():
    world = identity(3)
    assert hybridisation(world, three()[:2], groups="model").groups == [[0], [1], [2]]
    world.groups = [[0, 1], [2]]
    assert hybridisation(world, three()[:2], groups="model").groups == world.groups


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": 2}, "parts=2 of 3 latents; expected a number that divides"),
        ({"parts": 3, "groups": [[0], [1], [2]]}, "and groups; expected"),
        ({"double": True, "alternatives": 2}, "the double form has two alternatives"),
    ],
)
def test_units_that_cannot_be_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        hybridisation(identity(3), three(), **options)


def test_a_unit_that_the_decoder_ignores_changes_nothing():
    found = hybridisation(ignoring(3, [1]), gaussian_codes(2, 3))
    assert found.change[1] == 0
    assert found.change[0] > 0


def test_of_many_codes_some_are_drawn():
    codes = gaussian_codes(50, 2)
    first, again = hybridisation(identity(2), codes), hybridisation(identity(2), codes)
    assert torch.equal(first.sources, again.sources)
    other = hybridisation(identity(2), codes, generator=seeded(3))
    assert not torch.equal(first.sources, other.sources)
    rows = {tuple(row) for row in codes.tolist()}
    assert {tuple(row) for row in first.sources.tolist()} <= rows


def test_pictures_keep_their_shape_and_stay_out_of_the_json():
    pictures = zs.wrap(
        lambda x: x[:, 0, 0, :2], lambda z: z.repeat(1, 8).reshape(-1, 1, 4, 4), latents=2
    )
    found = hybridisation(pictures, gaussian_codes(3, 2).float(), double=True)
    assert found.decoded.shape == (2, 2, 1, 4, 4)
    assert "decoded" not in found.to_dict()
    assert found.to_dict()["sources"][0] == found.sources[0].tolist()


def test_too_few_codes_are_refused():
    with pytest.raises(Undefined, match=r"2 code\(s\); 3 are needed"):
        hybridisation(identity(3), three()[:2], double=True)


def with_block(**options):
    model = zs.models.build("ae", shape=(6,), latents=3, block="causal", **options)
    # An untrained block hardly passes anything on: make its edges felt.
    for function in model.block.functions:
        for parameter in function.parameters():
            parameter.data.mul_(3)
    return model.eval()


@pytest.mark.parametrize("double", [False, True])
def test_on_causes_a_unit_is_set_and_what_follows_changes(double):
    model, codes = with_block(), gaussian_codes(3 if double else 2, 3).float()
    found = hybridisation(model, codes, double=double, on="causes")
    grid = found.codes.diagonal().T if double else found.codes
    with torch.no_grad():
        base, alternative = model.causes(codes[:1])[0], model.causes(codes)[1]
        for unit in range(3):
            assert torch.equal(grid[unit, :unit], base[:unit])  # what comes before stays
            assert grid[unit, unit] == alternative[unit]
            if unit < 2:  # what follows is worked out anew from the new cause
                assert (grid[unit, unit + 1 :] != base[unit + 1 :]).all()
        torch.testing.assert_close(found.decoded_sources, model.decode(codes))
    assert found.on == "causes"


def test_several_alternatives_of_causes_are_those_of_each_alone():
    model, codes = with_block(), gaussian_codes(3, 3).float()
    found = hybridisation(model, codes, alternatives=2, on="causes")
    for k in (1, 2):
        alone = hybridisation(model, codes[[0, k]], on="causes")
        torch.testing.assert_close(found.codes[:, k - 1], alone.codes)
        torch.testing.assert_close(found.decoded[:, k - 1], alone.decoded)


def test_two_causes_of_two_alternatives_are_both_set():
    model, codes = with_block(), gaussian_codes(3, 3).float()
    found = hybridisation(model, codes, double=True, on="causes")
    with torch.no_grad():
        causes = model.causes(codes)
    assert found.codes[0, 2, 0] == causes[1, 0]
    assert found.codes[0, 2, 2] == causes[2, 2]


def test_a_unit_of_several_causes_is_set_as_a_whole():
    model, codes = with_block(unit=4), gaussian_codes(2, 3).float()
    found = hybridisation(model, codes, on="causes")
    with torch.no_grad():
        causes = model.causes(codes)
    assert found.codes.shape == (3, 12)
    assert torch.equal(found.codes[1, 4:8], causes[1, 4:8])


def test_causes_need_a_causal_block():
    with pytest.raises(Undefined, match=r"no causal block.*on='causes'"):
        hybridisation(identity(3), three()[:2], on="causes")


def test_of_many_units_the_figure_shows_those_with_the_largest_change():
    codes = torch.zeros(2, 100)
    codes[1] = torch.arange(100.0)
    ax = hybridisation(identity(100), codes).plot()
    names = [label.get_text() for label in ax.get_xticklabels()]
    assert names == ["base", *map(str, range(88, 100)), "other"]
    assert ax.get_xlabel() == "latent from the other (12 of 100, the largest changes)"
