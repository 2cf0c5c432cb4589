import pytest
import torch
from worlds import gaussian_codes, identity, ignoring, seeded

import zscope as zs
from zscope.assays import hybridisation
from zscope.errors import Undefined


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
