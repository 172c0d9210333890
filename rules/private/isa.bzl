"""The platforms and CPU levels that a model is compiled for."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("//runtime:copts.bzl", "DEFAULT_LEVEL", "LEVELS", "PLATFORMS")

visibility(["//rules/..."])

_CONSTRAINTS = {label: None for platform in PLATFORMS.values() for label in platform.constraints}.keys()

def platform_attrs():
    """Returns the attributes of a rule that calls `platform_of` or `check_platform`.

    Returns:
      (dict[str, Attribute]) private attributes; the rule also needs the fragment `platform`
    """
    return {
        "_constraints": attr.label_list(
            default = _CONSTRAINTS,
            providers = [platform_common.ConstraintValueInfo],
        ),
        "_untested_platforms": attr.label(default = "//rules:untested_platforms", providers = [BuildSettingInfo]),
    }

def platform_of(ctx):
    """Returns the target platform, if models can be compiled for it.

    Args:
      ctx: the context of a rule with `platform_attrs`

    Returns:
      (struct) an entry of `PLATFORMS`, or None
    """
    platform = _found(ctx)
    return platform if platform and (platform.tested or ctx.attr._untested_platforms[BuildSettingInfo].value) else None

def _found(ctx):
    """Returns the entry of `PLATFORMS` that the target platform is, or None."""
    return ([platform for platform, lacks in _lacks(ctx) if not lacks] + [None])[0]

def _lacks(ctx):
    """Returns pairs of an entry of `PLATFORMS` and its constraints that the target platform lacks."""

    # Not the targets' own labels: @platforms//os:macos is another name of @platforms//os:osx.
    has = [
        label
        for label, target in zip(_CONSTRAINTS, ctx.attr._constraints)
        if ctx.target_platform_has_constraint(target[platform_common.ConstraintValueInfo])
    ]
    return [
        (platform, [label for label in platform.constraints if label not in has])
        for platform in PLATFORMS.values()
    ]

def check_platform(ctx):
    """Fails if a model can't be compiled for the target platform. A platform that doesn't say what it is isn't supported.

    Args:
      ctx: the context of a rule with `platform_attrs`

    Returns:
      (struct) the entry of `PLATFORMS`
    """
    target = platform_of(ctx)
    tested = [platform for platform in PLATFORMS.values() if platform.tested]
    if not target and _found(ctx):
        fail(("{} would be compiled for {} (the platform {}), where nobody has run a model yet. Tested are {}. To do: set --platforms to " +
              "one of these, or try it with --@rules_tfaot//rules:untested_platforms.").format(
            ctx.label,
            _found(ctx).title,
            ctx.fragments.platform.platform,
            " and ".join([platform.title for platform in tested]),
        ))
    if not target:
        fail(("{} would be compiled for the platform {}, which lacks {}. Models can be compiled for {}. To do: set --platforms to such " +
              "a platform, or leave the target out of builds for others: target_compatible_with = {}.").format(
            ctx.label,
            ctx.fragments.platform.platform,
            ", or ".join([" and ".join(labels) for platform, labels in _lacks(ctx) if platform.tested]),
            " and ".join(["{} ({})".format(platform.title, ", ".join(platform.constraints)) for platform in tested]),
            " or ".join([str(platform.constraints) for platform in tested]),
        ))
    return target

def isa_attrs():
    """Returns the attributes of a rule that calls `isa_of`.

    Returns:
      (dict[str, Attribute]) `cpu`, and the flag that stands for its default
    """
    return {
        "cpu": attr.string_list(
            doc = "CPU levels to compile for; of several, the program chooses one as it runs. On x86-64, levels of its psABI: x86-64, " +
                  "x86-64-v2, x86-64-v3, or x86-64-v4. On 64-bit ARM: armv8-a or armv8.2-a+dotprod+fp16. `default` is both " +
                  "x86-64-v3 and x86-64-v4, or armv8-a. Never the building machine's own CPU: caches are shared.",
            default = [DEFAULT_LEVEL],
        ),
        "_cpu": attr.label(default = "//rules:cpu", providers = [BuildSettingInfo]),
    }

def levels_of(cpu):
    """Returns the attribute `cpu` of a stage from that of a macro: None, one level, several, or a select() of lists."""
    return {"cpu": [DEFAULT_LEVEL] if cpu == None else [cpu] if type(cpu) == "string" else cpu}

def isa_of(ctx, platform):
    """Returns the CPU levels that a target asks for.

    Args:
      ctx: the context of a rule with `isa_attrs`
      platform: (struct) the entry of `PLATFORMS` that the levels are for

    Returns:
      (list[str]) levels, lowest first, at least one
    """
    all_levels = platform.levels
    levels = ctx.attr.cpu
    if levels == [DEFAULT_LEVEL]:
        flag = ctx.attr._cpu[BuildSettingInfo].value

        # Unknown names are an error below.
        levels = [level for level in flag if level in all_levels or level not in LEVELS] or platform.defaults
    for level in levels:
        if level not in LEVELS:
            fail("{} isn't a CPU level; the levels are {}. To do: name one or more of these.".format(
                level,
                ", ".join(all_levels),
            ))
        if level not in all_levels:
            fail(("{} isn't a CPU level of {}; its levels are {}. To do: remove cpu to get {}, or let it depend on the platform: " +
                  "select({{{}}}).").format(
                level,
                platform.title,
                ", ".join(all_levels),
                " and ".join(platform.defaults),
                ", ".join(["\"{}\": […]".format(other.constraints[-1]) for other in PLATFORMS.values() if other.tested]),
            ))
        if len([other for other in levels if other == level]) > 1:
            fail("cpu = {} names {} twice. To do: name each level once.".format(levels, level))
    if not levels:
        fail("cpu = [] names no CPU level; the levels are {}. To do: name at least one, or remove cpu.".format(", ".join(all_levels)))
    return [level for level in all_levels if level in levels]
