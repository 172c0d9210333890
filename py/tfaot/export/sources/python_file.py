"""What we can learn from a model's Python file without running it or importing TensorFlow."""

from __future__ import annotations

import ast


def defines(path: str, name: str) -> bool:
    """Returns whether the file's top level binds a name by `def`, assignment, or import. False if it can't be parsed."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return False  # the import will say why
    return any(name in _bound(statement) for statement in tree.body)


def environment(path: str, variable: str) -> str | None:
    """Returns the last literal value that the file assigns to an environment variable anywhere, or None.

    Recognizes `os.environ[variable] = "…"`, `os.environ.setdefault(variable, "…")`, `os.putenv(variable, "…")`, and
    dictionaries such as in `os.environ.update({variable: "…"})`.
    """
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None  # the import will say why
    settings: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = [(target.slice, node.value) for target in node.targets if isinstance(target, ast.Subscript)]
        elif isinstance(node, ast.Call) and len(node.args) == 2:
            pairs = [(node.args[0], node.args[1])]
        elif isinstance(node, ast.Dict):
            pairs = list(zip(node.keys, node.values, strict=True))
        for key, value in pairs:
            if isinstance(key, ast.Constant) and key.value == variable and isinstance(value, ast.Constant):
                settings.append((value.lineno, str(value.value)))
    return max(settings)[1] if settings else None


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
        return {
            name for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt) for name in _bound(child)
        }
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
