"""The checker behind the shape annotations: an int may stand for a float, as in the language."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
