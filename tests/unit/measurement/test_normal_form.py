"""What a normal form takes for the same, and what for another program."""

import pytest

from gpupc_impl.measurement.normal_form import cpp_form, python_form, python_tree


def python(source, **options):
    return python_form(python_tree(source.encode(), **options))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 1  # a comment\n\n"),
        ('"""One."""\nx = 1', '"""Other."""\nx = (1)'),
        ('def f():\n    """One."""', 'def f():\n    "Other"\n    pass'),
        ("x = 1", 'x = 1\n"""What x is."""'),
        ("def f(x: int, *y: int, **z: int) -> int:\n    w: int = x", "def f(x, *y, **z):\n    w = x"),
        ("x: int = 1", "x = 1"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy", "from typing import TYPE_CHECKING"),
        ("raise ValueError(f'bad {x}')", "raise ValueError(f'wrong {x}')"),
        ("log.info('took %s', t)", "log.info('time: %s', t)"),
        ("X = Parameter(1, 'one', minimum=0)", "X = Parameter(1, 'other', minimum=0)"),
        ("@method('m', source='one')\ndef f(): pass", "@method('m', source='other')\ndef f(): pass"),
    ],
)
def test_python_that_runs_alike_has_one_form(one, other):
    assert python(one) == python(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 2"),
        ("x = 1", "x = True"),
        ("x = 'a'", "x = b'a'"),
        ("x = None", "x = []"),
        ("f(a, b)", "f(a)\nb"),
        ("if a:\n    b\n    c", "if a:\n    b\nc"),
        ("class A:\n    x: int = 1", "class A:\n    x: str = 1"),
        ("raise ValueError('bad')", "raise TypeError('bad')"),
        ("X = Parameter(1, 'one', minimum=0)", "X = Parameter(1, 'one', minimum=1)"),
        ("@method('m', source='one')\ndef f(): pass", "@method('n', source='one')\ndef f(): pass"),
        ("f'{x:>3}'", "f'{x:>4}'"),
        ("def f(x, /, y): pass", "def f(x, y): pass"),
    ],
)
def test_python_that_runs_otherwise_has_another_form(one, other):
    assert python(one) != python(other)


def test_docstrings_that_the_program_shows_count():
    one, other = ('def f():\n    """One."""', 'def f():\n    """Other."""')
    assert python(one, docstrings=True) != python(other, docstrings=True)


def test_excluded_definitions_do_not_count():
    source = "class A:\n    def f(self): return 1\n    def g(self): return 1\ndef f(): return 1"
    edited = source.replace("def f(self): return 1", "def f(self): return 2")
    assert python(source) != python(edited)
    assert python(source, excluded=["A.f"]) == python(edited, excluded=["A.f"])
    assert python(source, excluded=["A.f"]) != python(source, excluded=["f"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int x=1;", "int x = 1;  // one\n"),
        ("int x;", '/* x:\n * the "one" */ int\nx;\n'),
        ("// a comment that goes \\\n on\nint x;", "int x;"),
        ("#include <a.h>\nint x;", "#  include <a.h>  // for x\n\nint x;"),
        ("#define F(x) (x)\nint y;", "#define F( x ) \\\n    (x)\nint y;"),
        ("f(a, b);", "f(\n    a,\n    b);"),
    ],
)
def test_cpp_that_compiles_alike_has_one_form(one, other):
    assert cpp_form(one) == cpp_form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int x = 1;", "int x = 2;"),
        ("a++ + b;", "a + ++b;"),
        ('puts("a // b");', 'puts("a ");'),
        ('puts("a  b");', 'puts("a b");'),
        ("char c = '\"'; // \"", "char c = '\\''; // \""),
        ('R"x(/* a */)x";', 'R"x()x";'),
        ("#define F(x) x\n", "#define F (x) x\n"),
        ("#define A\nint x;", "#define A int x;"),
        ("int x = 1'000;", "int x = 1'001;"),
        ("int ab;", "int a b;"),
    ],
)
def test_cpp_that_compiles_otherwise_has_another_form(one, other):
    assert cpp_form(one) != cpp_form(other)
