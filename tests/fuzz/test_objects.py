"""Random programs of Python's objects: compiled, they do what eager does, in eager's order.

`make fuzz` runs more of them, with a seed of its own that it prints.
"""

import pytest

from tests.fuzz.objects import Program, Programs
from tests.fuzz.training import disagreements, mismatch


def test_programs():
    wrong = disagreements(Programs(0), 8, "eager")
    assert not wrong, wrong


def test_aot_eager():
    wrong = disagreements(Programs(1), 4, "aot_eager")
    assert not wrong, wrong


@pytest.mark.slow
def test_inductor():
    wrong = disagreements(Programs(2), 4, "inductor")
    assert not wrong, wrong


# name -> statements of f, steps.
FOUND = {
    "attributes of a scripted function": (
        "y = scripted(x, 2.0)\nlog.append(scripted.name)\nkept.append(scripted)",
        "run(T(3, 4))\nlog.append(kept[0] is scripted)",
    ),
    "a class that a script does not ask": (
        "y = scripted(x, 2.0)",
        "run(T(3, 4).as_subclass(Noted))\nrun(T(3, 4).as_subclass(Negated))\nrun(T(3, 4))",
    ),
    "a mode that a script does not ask": ("with listed:\n    y = scripted(x, 2.0)", "run(T(3, 4))"),
    "a quantised tensor of a class": (
        "y = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)\ny = y.dequantize() * 2",
        "run(T(3, 4).as_subclass(Noted))\nrun(T(3, 4))",
    ),
    "unpacking an object that has a length and no items": (
        "y = x * 1\ntry: a1, b1 = watching\nexcept TypeError as error: log.append(str(error))",
        "class Long: __len__ = lambda self: 2\nwatching = Long()\nrun(T(3, 4))",
    ),
    "an object that the frames behind a kept traceback had": (
        "gone = Gone('l7')\nif watched:\n    try: raise KeyError('l4')\n"
        "    except KeyError as error: kept_error = error\ny = [x * 1, x.detach()]",
        "run(T(3, 4))\nrun(T(3, 4))",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name):
    body, steps = FOUND[name]
    program = Program("function", [], body.splitlines(), "y", steps.splitlines())
    told = mismatch(program, "eager")
    assert told is None, told
