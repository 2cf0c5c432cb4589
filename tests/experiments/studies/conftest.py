"""Real pictures for studies that need them."""

import pytest

from zscope.data.fetching import fetch


@pytest.fixture(scope="session")
def pictures(real_data, tmp_path_factory):
    """Real pictures in a folder of their own."""
    root = tmp_path_factory.mktemp("data")
    for name in ("mnist", "fashion-mnist"):
        fetch(name, root=root, from_dir=real_data)
    return root
