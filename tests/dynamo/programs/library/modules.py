"""Modules of the standard library: what is folded, what is asked at each call, what breaks.

The programs are lines of a table (see library_support.py); what stands above it is theirs, too.
"""

# ruff: noqa: F401, RUF012, B008, SIM, UP, PYI

import abc
import array
import ast
import base64
import calendar
import cmath
import collections
import contextlib
import contextvars
import copy
import datetime
import decimal
import fractions
import functools
import hashlib
import importlib
import inspect
import itertools
import json
import logging
import math
import numbers
import operator
import os
import pathlib
import pickle
import pprint
import random
import re
import secrets
import statistics
import string
import struct
import sys
import textwrap
import threading
import time
import traceback
import types
import typing
import uuid
import zlib

import torch

from tests.dynamo.library_support import raised

R = random.Random(5)
log = logging.getLogger("lib.test")
log.setLevel(logging.WARNING)
log.propagate = False


class H(logging.Handler):
    def emit(self, r):
        out.append((r.levelname, r.getMessage()))


out = []
log.addHandler(H())
CV = contextvars.ContextVar("CV", default=3)
TL = threading.local()
TL.v = 5
os.environ["LIBT"] = "1"
PAT = re.compile(r"(?P<w>\w+)-(\d+)")
calls = []

TABLE = r"""
random.random()
random.randint(1, 10), random.uniform(0, 1)
random.choice([1, 2, 3]), random.gauss(0, 1)
time.sleep(0) # graphs 2
os.environ["LIBT"], os.environ.get("LIBT"), os.getenv("LIBT2", "d"), "LIBT" in os.environ
os.path.join("a", "b"), os.path.basename("/x/y.z"), os.path.splitext("a.b"), os.sep,
    os.path.dirname("/x/y"), os.linesep
sys.version_info >= (3, 8), sys.maxsize, sys.byteorder, sys.platform, sys.version_info[0],
    sys.getrecursionlimit() > 10, sys.float_info.max, sys.intern("ab"), sys.getsizeof is None,
    sys.modules["math"] is math, sys.argv is sys.argv
importlib.import_module("os.path").sep, importlib.import_module(".path", "os") is os.path
raised(lambda: importlib.import_module("no_such_module")) # graphs -
raised(lambda: importlib.import_module(".path")) # graphs -
log.debug("x"), out
log.debug("x %s", x), log.info("y"), log.isEnabledFor(10), log.level, log.name,
    log.getEffectiveLevel()
logging.getLogger("lib.test").debug("x")
logging.debug("x")
PAT.match("ab-12").group(1), PAT.search("zz ab-12").groups(), PAT.sub("q", "ab-1 cd-2"),
    PAT.findall("a-1 b-2"), PAT.match("x"), bool(PAT.match("a-1")), PAT.pattern, PAT.groups,
    PAT.flags, PAT.groupindex["w"]
m = PAT.match("ab-12"); m["w"], m[2], m.group("w", 2), m.groupdict(), m.span(), m.start(1),
    m.end(), m.lastindex, m.string, m.re is PAT, m.expand(r"\2"), m.regs
[m.group() for m in PAT.finditer("a-1 b-2")], PAT.split("x a-1 y"),
    re.compile("a+").fullmatch("aa") is not None, re.sub("a", lambda m: m.group().upper(),
    "banana"), re.subn("a", "b", "aa"), PAT.sub(lambda m: m[2], "a-1")
re.match("(a)(b)?", "a").groups(), re.split(r"\s+", "a b  c"), re.findall("a|b", "cab"),
    re.escape("a.b"), re.search("b", "abc").span(), re.IGNORECASE, re.match("A", "a",
    re.I) is not None, re.compile("a", re.I | re.M).flags, repr(re.compile("a")),
    re.fullmatch("a", "b"), [m.start() for m in re.finditer("a", "aa")], re.purge is None
raised(lambda: re.compile("(")), raised(lambda: PAT.match(3)), raised(lambda: re.match("a",
    "a").group(5)), raised(lambda: re.sub("a", 3, "a"))
json.dumps({"a": [1, 2.5, None, True]}), json.dumps({"b": 1, "a": 2}, sort_keys=True, indent=1),
    json.loads('{"k": [1, {"z": null}]}'), json.dumps("é"), json.dumps([1], separators=(",",
    ":")), json.loads("[1.5, true]"), json.dumps((1, 2)), raised(lambda: json.loads("{")),
    json.dumps({1: 2})
(lambda **k: (pickle.dumps(k), {pickle.dumps(k): y}))(a=1, b="c", d=None), pickle.dumps([1.5, 1.5])
s = "ab"; pickle.dumps([s, s])  # graphs 2
json.dumps({"n": x.shape[0], "s": list(x.shape)})
string.Template("$a and ${b}").substitute(a=1, b="z"), string.ascii_lowercase[:3],
    string.capwords("a b"), string.digits, string.Formatter().format("{0} {a}", 1, a=2),
    string.Template("$q").safe_substitute()
textwrap.dedent("  a\n  b"), textwrap.fill("a b c", 3), textwrap.indent("a\nb", "> "),
    textwrap.wrap("a b", 1), textwrap.shorten("a b c d", 5)
f = fractions.Fraction(1, 3); f + 1, float(f), f.numerator, f == fractions.Fraction(2, 6),
    str(f), f * 3 == 1
statistics.mean([1, 2, 3]), statistics.median([1, 5, 3]), statistics.stdev([1, 2, 3]),
    statistics.mode([1, 1, 2]), statistics.fmean([1.5, 2]), statistics.pstdev([1, 2]),
    statistics.variance([1, 2, 4])
cmath.sqrt(-1), cmath.phase(1j), cmath.exp(0), cmath.polar(1j), cmath.isclose(1, 1), cmath.pi,
    cmath.rect(1, 0)
math.sqrt(4), math.pi, math.prod([1, 2, 3]), math.isclose(0.1 + 0.2, 0.3), math.fsum([0.1] * 10),
    math.gcd(12, 18), math.hypot(3, 4), math.factorial(5), math.comb(5, 2), math.perm(5, 2),
    math.floor(2.5), math.ceil(2.1), math.trunc(-2.5), math.log(8, 2), math.log2(8),
    math.log10(100), math.log1p(0), math.exp(0), math.expm1(0), math.pow(2, 3), math.fmod(7, 3),
    math.modf(2.5), math.frexp(8), math.ldexp(0.5, 4), math.copysign(1, -0.0),
    math.isnan(math.nan), math.isinf(math.inf), math.isfinite(1), math.degrees(math.pi),
    math.radians(180), math.sin(0), math.cos(0), math.tan(0), math.asin(0), math.acos(1),
    math.atan(0), math.atan2(1, 1), math.sinh(0), math.cosh(0), math.tanh(0), math.erf(0),
    math.erfc(0), math.gamma(5), math.lgamma(5), math.isqrt(10), math.lcm(4, 6), math.dist([0,
    0], [3, 4]), math.e, math.tau, math.remainder(7, 3), math.ulp(1.0), math.nextafter(1, 2),
    math.fabs(-1), math.cbrt(8), math.exp2(3), math.acosh(1), math.asinh(0), math.atanh(0),
    math.dist((1,), (2,))
raised(lambda: math.sqrt(-1)), raised(lambda: math.log(0)), raised(lambda: math.factorial(-1)),
    raised(lambda: math.gcd(1.5)), raised(lambda: math.sqrt("a")),
    raised(lambda: math.isqrt(-1)), raised(lambda: math.comb(1, -1)),
    raised(lambda: math.sqrt()), raised(lambda: math.prod(3)), raised(lambda: math.exp(1000))
math.prod([x, 2]), math.prod([2, 3], start=x), math.prod((i for i in [1, 2])), math.prod([[1],
    2]), math.fsum(i for i in [1, 2]), math.prod([])
isinstance(1, numbers.Number), isinstance(1.5, numbers.Real), isinstance(1, numbers.Integral),
    isinstance(1j, numbers.Complex), isinstance("a", numbers.Number), isinstance(x,
    numbers.Number), issubclass(int, numbers.Real)
contextlib.nullcontext(3).__enter__(), contextlib.ExitStack is not None
abc.ABC.__name__, isinstance(abc.ABC, abc.ABCMeta)
time.time() > 0 # graphs 3
time.perf_counter() > 0, time.monotonic() > 0, time.time_ns() > 0 # graphs 3
time.sleep(0) # graphs 2
random.sample(range(10), 3), random.choices("ab", k=2), random.getrandbits(8) # graphs 2
random.betavariate(1, 2)
l = [1, 2, 3]; random.shuffle(l); l # graphs -
random.seed(4); random.random()
s = random.getstate(); a = random.random(); random.setstate(s); a == random.random() # graphs 2
r = random.Random(3); r.random(), r.choice([1, 2]), r.getstate() # graphs 2
random.Random(3).random()
datetime.datetime.now().year > 2000 # graphs 2
datetime.datetime(2020, 1, 2).year, datetime.timedelta(days=1).days
len(str(uuid.uuid4())), len(secrets.token_hex(4)), len(os.urandom(3)) # graphs 3
d = decimal.Decimal("1.1"); d + 1, str(d * 2), float(d), d > 1, round(d) # graphs -
p = pathlib.PurePath("a/b.c"); p.name, p.suffix, str(p / "d"), p.parent.name, p.stem,
    p.parts # graphs -
pathlib.PurePosixPath("/a").is_absolute(), str(pathlib.PurePath("a").joinpath("q")) # graphs -
raised(lambda: open("/nonexistent/f")) # graphs 2
os.path.exists("/nonexistent"), os.path.isfile("/x")
json.dumps(x.tolist()) # graphs 2
CV.get()
TL.v
t = CV.set(4); a = CV.get(); CV.reset(t); a, CV.get()
TL.w = 3; TL.w, hasattr(TL, "zz"), TL.v
copy.copy(R).random() == copy.copy(R).random() # graphs 2
struct.pack("<i", 3), struct.unpack("<i", b"a23b"), struct.calcsize("i"),
    zlib.crc32(b"a") # graphs -
base64.b64encode(b"a"), hashlib.md5(b"a").hexdigest()[:4] # graphs 2
array.array("i", [1, 2])[1] # graphs -
calendar.isleap(2020), pprint.pformat({"a": [1, 2]}) # graphs 2
math.floor(x[1]), math.sqrt(x[2]) # graphs 3
raised(lambda: json.dumps({1, 2})) # graphs -
threading.current_thread() is threading.main_thread()
l = threading.Lock(); l.acquire(); l.release(), l.locked() # graphs 2
torch.rand(2), torch.randn(1), torch.randint(5, (2,)), torch.randperm(3)
torch.manual_seed(3); torch.rand(1)
input is input, open is open, callable(open), hash("abc") == hash("abc"), hash(1.5),
    id(x) == id(x)
logging.getLogger("lib.test") is log, log.isEnabledFor(logging.ERROR)
os.getpid() > 0, os.getcwd() != ""
"""
