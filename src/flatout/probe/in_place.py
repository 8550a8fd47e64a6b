"""Time a Python function from inside: its source is recompiled with a call before its body and one after.

The function remains the same object in the same place, and keeps its frame, its file and its lines. So nothing else
sees a difference: no deeper recursion, no further frame in tracebacks and warnings, nothing additional for pickles,
``torch.fx`` or ``torch.compile``, and patches by other libraries stay in place.
"""

import __future__

import ast
import functools
import inspect
import itertools
import types
from typing import Any

_FUTURE = functools.reduce(
    lambda flags, name: flags | getattr(__future__, name).compiler_flag, __future__.all_feature_names, 0
)
_next_number = itertools.count(1).__next__
_instrumented: Any = {}  # function -> its original code


class NotInstrumented(Exception):
    """The function cannot be compiled again from its source; the text says why."""


def innermost(function):
    """The function below all decorators that follow ``functools.wraps``."""
    return inspect.unwrap(function)


def is_python(function):
    """True if the function is written in Python."""
    return isinstance(function, types.FunctionType)


def is_instrumented(function):
    """True if the function is already instrumented."""
    return function in _instrumented


def restore(function):
    """Restore the original code of a function."""
    plain = _instrumented.pop(function, None)
    if plain is not None:
        function.__code__ = plain


def restore_all():
    """Restore the original code of every function."""
    for function, plain in _instrumented.items():
        function.__code__ = plain


def instrument(function, enter, leave=None, replace=None, at_return=None):
    """Call ``enter`` before the function's body and ``leave`` after it.

    Args:
        function: a plain Python function whose source is available.
        enter: called with the function's arguments, or only with the first ones if it takes no more; returns a
            token, or None for a call that is of no interest.
        leave: called with the token and the result, which is the token itself after an exception; None: a call with a
            token returns ``token[0]`` at once, in place of running the body.
        replace: name of a parameter that takes the value ``token[0]``.
        at_return: called with the token before each expression of a ``return`` is evaluated.

    Returns:
        The original code, and the new code, which the function has now.

    Raises:
        NotInstrumented: it is not written in Python, its source is missing, or it is not what is running.
    """
    if not is_python(function):
        raise NotInstrumented("%r is not a Python function" % (function,))
    plain = function.__code__
    if "locals" in plain.co_names:  # a variable of the call would be among them
        raise NotInstrumented("%s looks at its local variables" % function.__qualname__)
    tree, found = _parse(function)
    flags = plain.co_flags & _FUTURE
    for imported in (_foreign, _not_functions, _imports):
        tree.body[:-1] = [_import(name) for name in imported(function)]
        if _same(_compile(tree, plain, flags), plain):
            break
    else:
        raise NotInstrumented("the source of %s is not what is running" % function.__qualname__)
    number = _next_number()
    names = {role: "_flatout_%s_%d" % (role, number) for role in ("enter", "leave", "returning")}
    if leave is None:
        _answer(found, names, _given(found.args, enter))
    else:
        _rewrite(found, names, _given(found.args, enter), replace, at_return is not None)
    timed = _compile(tree, plain, flags)
    if timed.co_freevars != plain.co_freevars:
        raise NotInstrumented("%s has other free variables" % function.__qualname__)
    for role, call in (("enter", enter), ("leave", leave), ("returning", at_return)):
        function.__globals__[names[role]] = call
    function.__code__ = timed
    _instrumented[function] = plain
    return plain, timed


def _parse(function):
    """The function's definition at its original lines and columns, with as much context as its meaning needs."""
    code = function.__code__
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError, SyntaxError) as error:
        raise NotInstrumented("no source of %s: %s" % (function.__qualname__, error)) from None
    nested = lines[0][:1].isspace()
    if nested:
        lines.insert(0, _around(function))
        first -= 1
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError as error:
        raise NotInstrumented("the source of %s cannot be read alone: %s" % (function.__qualname__, error)) from None
    ast.increment_lineno(tree, first - 1)
    found: Any = tree.body[0]
    if nested:
        found = found.body[0]
    if not isinstance(found, ast.FunctionDef):
        raise NotInstrumented("the source of %s is no function" % function.__qualname__)
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise NotInstrumented("%s is a generator or a coroutine" % function.__qualname__)
    return tree, found


def _around(function):
    """The line of a definition in which the function's own has the same meaning."""
    owner = function.__qualname__.split(".")[-2:-1]
    free = function.__code__.co_freevars
    # A function that follows ``functools.wraps`` has the name of the one that it wraps.
    if owner == ["<locals>"] or set(free) - {"__class__"}:
        return "def around(%s):\n" % ", ".join(free)
    return "class %s:\n" % owner[0] if owner else "if 1:\n"


def _import(name):
    """The compiler calls what is imported at the top of a file with other instructions."""
    statement = ast.Import([ast.alias(name, None)])
    for node in (statement, statement.names[0]):
        node.lineno = node.end_lineno = 1
        node.col_offset = node.end_col_offset = 0
    return statement


def _foreign(function):
    """Names that seem to come from other modules: checked first, since reading the whole file is slow."""
    home = function.__globals__
    for name in function.__code__.co_names:
        value = home.get(name)
        if isinstance(value, types.ModuleType) or getattr(value, "__module__", None) not in (None, home["__name__"]):
            yield name


def _not_functions(function):
    """These names, and classes whose ``__module__`` was set to this module."""
    yield from _foreign(function)
    for name in function.__code__.co_names:
        if isinstance(function.__globals__.get(name), type):
            yield name


def _imports(function):
    """Names that the whole file imports at its top level."""
    tree = ast.parse("".join(inspect.findsource(function.__code__)[0]))
    pending: Any = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((part.asname or part.name).split(".")[0] for part in node.names if part.name != "*")
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            pending.extend(ast.iter_child_nodes(node))


def _compile(tree, plain, flags):
    pending = [compile(tree, plain.co_filename, "exec", flags=flags, dont_inherit=True)]
    while pending:
        code = pending.pop()
        if (code.co_name, code.co_firstlineno) == (plain.co_name, plain.co_firstlineno):
            return code
        pending.extend(part for part in code.co_consts if isinstance(part, types.CodeType))
    raise NotInstrumented("%s is not found in its source" % plain.co_name)


def _same(one, other):
    """True if two code objects do the same."""
    for field in ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars"):
        if getattr(one, field) != getattr(other, field):
            return False
    if (one.co_flags ^ other.co_flags) & ~inspect.CO_NESTED:  # a class inside a function is compiled outside of it
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    for mine, theirs in zip(one.co_consts, other.co_consts):
        if type(mine) is not type(theirs):
            return False
        if not (_same(mine, theirs) if isinstance(mine, types.CodeType) else mine == theirs):
            return False
    return True


def _answer(function, names, given):
    """Put the call that may answer before the body."""
    doc, body = _parts(function)
    text = "_flatout_token = %s(%s)\nif _flatout_token is not None: return _flatout_token[0]" % (names["enter"], given)
    function.body = [*doc, *_statements(text, body[0]), *body]
    ast.fix_missing_locations(function)


def _parts(function):
    """The docstring of a function, in a list, and its other statements."""
    body = function.body
    doc = (
        body[:1] if isinstance(body[0], ast.Expr) and isinstance(getattr(body[0], "value", None), ast.Constant) else []
    )
    return doc, body[len(doc) :] or [ast.copy_location(ast.Pass(), doc[0])]


def _rewrite(function, names, given, replace, returning):
    """Put the calls around the body, at the place of its first statement."""
    doc, body = _parts(function)
    before = ["_flatout_token = _flatout_result = %s(%s)" % (names["enter"], given)]
    if replace:
        before.append("if _flatout_token is not None: %s = _flatout_token[0]" % replace)
    after = "if _flatout_token is not None: %s(_flatout_token, _flatout_result)" % names["leave"]
    note = "if _flatout_token is not None: %s(_flatout_token)" % names["returning"] if returning else None
    place = body[0]
    block = ast.Try(body=_Returns(note).all_of(body), handlers=[], orelse=[], finalbody=_statements(after, place))
    function.body = [*doc, *_statements("\n".join(before), place), ast.copy_location(block, place)]
    ast.fix_missing_locations(function)


def _given(arguments, enter):
    """The arguments of the call of ``enter``: packing unused arguments into tuples would cost as much as the call."""
    named = [parameter.arg for parameter in [*arguments.posonlyargs, *arguments.args]]
    code: Any = getattr(enter, "__code__", None)
    takes_all = code is None or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if not takes_all and code.co_argcount <= len(named):
        return ", ".join(named[: code.co_argcount])
    return ", ".join([*named, *_others(arguments)])


def _others(arguments):
    """The arguments of a call that passes on everything but this function's first parameters."""
    if arguments.vararg:
        yield "*" + arguments.vararg.arg
    yield from ("%s=%s" % (parameter.arg, parameter.arg) for parameter in arguments.kwonlyargs)
    if arguments.kwarg:
        yield "**" + arguments.kwarg.arg


def _statements(text, place):
    made = ast.parse(text).body
    for statement in made:
        for node in ast.walk(statement):
            if "lineno" in node._attributes:
                ast.copy_location(node, place)
    return made


class _Returns(ast.NodeTransformer):
    """``return x`` stores x for the call that follows; nested functions and classes are left alone."""

    def __init__(self, note):
        self._note = note

    def all_of(self, body):
        made = []
        for statement in body:
            changed = self.visit(statement)
            made += changed if isinstance(changed, list) else [changed]
        return made

    def visit_Return(self, node):
        value = node.value or ast.copy_location(ast.Constant(None), node)
        keep = ast.copy_location(ast.Assign(targets=[ast.Name("_flatout_result", ast.Store())], value=value), node)
        give = ast.copy_location(ast.Return(ast.copy_location(ast.Name("_flatout_result", ast.Load()), node)), node)
        return [*(_statements(self._note, node) if self._note else ()), keep, give]

    def _leave_alone(self, node):
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = _leave_alone
