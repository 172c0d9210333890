"""What macros do alike: attributes that every Bazel rule has, and errors for attributes that a `tf_model` has now."""

load(":files.bzl", "MODEL", "MODEL_EXPORT")
load(":kinds.bzl", "OTHERS")

visibility(["//rules/..."])

_COMMON = [
    "compatible_with",
    "deprecation",
    "exec_properties",
    "features",
    "restricted_to",
    "tags",
    "target_compatible_with",
    "testonly",
    "visibility",
]

def common_attributes(attributes):
    """Returns the common attributes of a macro's targets.

    Args:
      attributes: (dict) attributes that any rule has, and others

    Returns:
      (struct) of dicts: `public` for targets that users name, `test` for those that are tests, `private` for all other targets,
        and `files` for filegroups, which are private and run no action; `cpp` for targets that compile C++, and `main` for the one
        that has the macro's name
    """
    values = {name: attributes.get(name) for name in _COMMON}
    tags = values["tags"] or []
    everywhere = {name: values[name] for name in ("compatible_with", "restricted_to", "target_compatible_with")}
    files = everywhere | {"tags": tags + ["manual"], "testonly": values["testonly"], "visibility": ["//visibility:private"]}
    actions = {"exec_properties": values["exec_properties"]}
    test = everywhere | actions | {"tags": tags, "visibility": values["visibility"]}
    return struct(
        cpp = {"features": values["features"]},
        files = files,
        main = {"deprecation": values["deprecation"]},
        private = files | actions,
        public = test | {"testonly": values["testonly"]},
        test = test,
    )

# Attributes of `tf_model`, and what targets had in place of its source.
_MOVED = {name: name for name in MODEL + MODEL_EXPORT + OTHERS} | {name: "source" for name in ["graph", "saved_model", "stablehlo"]}

def moved(*, name, model, attributes, described = {}):
    """Declares a target that fails when it is analyzed if attributes belong to a `tf_model`, or to nothing.

    Args:
      name: (str) the macro's target
      model: (Label) its attribute of this name
      attributes: (dict) those that it doesn't declare
      described: (dict) attributes of the `tf_model` that it declares for a file

    Returns:
      (bool) whether there are any
    """
    misplaced = [attribute for attribute in attributes if attribute in _MOVED]
    problems = []
    if misplaced:
        described = {"source": model} | described | {_MOVED[attribute]: attributes[attribute] for attribute in misplaced}
        lines = ["    {} = {},".format(attribute, _shown(value)) for attribute, value in sorted(described.items())]
        problems.append(("{} moved to tf_model, which describes a model once. To do: remove {} here, set model = \":{}_model\", and " +
                         "add:\n\nload(\"@rules_tfaot//rules:defs.bzl\", \"tf_model\")\n\ntf_model(\n    name = \"{}_model\",\n{}\n)\n").format(
            ", ".join(misplaced),
            "it" if len(misplaced) == 1 else "them",
            name,
            name,
            "\n".join(lines),
        ))
    if "isa" in attributes:
        problems.append("isa is cpu now, which takes one level or several. To do: replace it with cpu = {}".format(
            _shown(attributes["isa"]),
        ))
    unknown = [attribute for attribute in attributes if attribute not in _MOVED and attribute not in _COMMON + ["isa"]]
    if unknown:
        problems.append("there is no attribute {}. To do: see docs/reference/rules.md for those that there are".format(", ".join(unknown)))
    if model == None and not problems:
        problems.append("model isn't set. To do: name a tf_model, or a model's file: model = \"model.py\"")
    if problems:
        refusal(
            name = name,
            message = "\n".join(problems),
            tags = attributes.get("tags"),
            testonly = attributes.get("testonly"),
            visibility = attributes.get("visibility"),
        )
    return bool(problems)

def _shown(value):
    """Returns a value as a BUILD file has it."""
    if type(value) == "list":
        value = [str(element) if type(element) == "Label" else element for element in value]
    return repr(str(value) if type(value) == "Label" else value)

def _refusal_impl(ctx):
    fail("{}: {}".format(ctx.label, ctx.attr.message))

_ATTRS = {"message": attr.string(doc = "What to report.", mandatory = True)}

refusal = rule(
    implementation = _refusal_impl,
    doc = "Fails when it is analyzed, so that the error names the user's target and no other target of the package fails.",
    attrs = _ATTRS,
)

refusal_test = rule(
    implementation = _refusal_impl,
    doc = "The same, for a test.",
    attrs = _ATTRS,
    test = True,
)
