"""A method around another one leaves nothing of it out."""

from fedamp.methods.base import Method
from fedamp.methods.wrapped import Wrapped
from helpers import ALL, make_method


def test_everything_that_a_method_does_is_handed_on():
    done = {name for name in vars(Method) if not name.startswith("_") and name not in Method.__annotations__}
    assert done - set(vars(Wrapped)) == set()


def test_the_attributes_are_the_methods_own():
    assert {"scored", "optimizer", "lr", "anew"} <= set(Method.__annotations__)
    for method in map(make_method, ALL):
        for name in (*Method.__annotations__, "remembers"):
            assert getattr(Wrapped(method), name) == getattr(method, name), name
