"""The platforms and CPU levels that a model is compiled for."""

load("//runtime:copts.bzl", "LEVELS")

visibility(["//rules/..."])

DEFAULT_LEVEL = "x86-64-v3"

# The target platforms that models can be compiled for, and the constraints that make a platform one of them.
_PLATFORMS = {
    "Linux on x86-64": ["@platforms//os:linux", "@platforms//cpu:x86_64"],
}

def platform_attrs():
    """Returns the attributes of a rule that calls `check_platform`.

    Returns:
      (dict[str, Attribute]) private attributes; the rule also needs the fragment `platform`
    """
    return {
        "_constraints": attr.label_list(
            default = {label: None for labels in _PLATFORMS.values() for label in labels}.keys(),
            providers = [platform_common.ConstraintValueInfo],
        ),
    }

def check_platform(ctx):
    """Fails if a model can't be compiled for the target platform. A platform that doesn't say what it is isn't supported.

    Args:
      ctx: the context of a rule with `platform_attrs`
    """
    has = [
        target.label
        for target in ctx.attr._constraints
        if ctx.target_platform_has_constraint(target[platform_common.ConstraintValueInfo])
    ]
    lacks = [[label for label in labels if Label(label) not in has] for labels in _PLATFORMS.values()]
    if [] in lacks:
        return
    fail(("{} would be compiled for the platform {}, which lacks {}. Models can be compiled for {}. To do: set --platforms to such " +
          "a platform, or leave the target out of builds for others: target_compatible_with = {}.").format(
        ctx.label,
        ctx.fragments.platform.platform,
        " or ".join([" and ".join(labels) for labels in lacks]),
        " and ".join(["{} ({})".format(name, ", ".join(labels)) for name, labels in _PLATFORMS.items()]),
        " or ".join([str(labels) for labels in _PLATFORMS.values()]),
    ))

def isa_attrs():
    """Returns the attributes of a rule that calls `isa_of`.

    Returns:
      (dict[str, Attribute]) `cpu` and `isa`; a target has exactly one of them
    """
    return {
        "cpu": attr.string(
            doc = "x86-64 psABI level to compile for: x86-64, x86-64-v2, x86-64-v3, or x86-64-v4. Never the building " +
                  "machine's own CPU: caches are shared.",
        ),
        "isa": attr.string_list(
            doc = "Several such levels; the program chooses among them as it runs.",
        ),
    }

def isa_of(ctx):
    """Returns the CPU levels that a target asks for.

    Args:
      ctx: the context of a rule with `isa_attrs`

    Returns:
      (list[str]) levels, lowest first, at least one
    """
    cpu, isa = ctx.attr.cpu, ctx.attr.isa
    if cpu and isa:
        fail("cpu = {} and isa = {} both set CPU levels. To do: remove one.".format(cpu, isa))
    levels = [cpu] if cpu else isa
    for level in levels:
        if level not in LEVELS:
            fail("{} isn't a CPU level; the levels are {}. To do: name one or more of these.".format(
                level,
                ", ".join(LEVELS),
            ))
        if len([other for other in levels if other == level]) > 1:
            fail("isa = {} names {} twice. To do: name each level once.".format(isa, level))
    if not levels:
        fail("isa = [] names no CPU level; the levels are {}. To do: name at least one.".format(", ".join(LEVELS)))
    return [level for level in LEVELS if level in levels]
