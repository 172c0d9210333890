"""What rules share that compile C++."""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load(":providers.bzl", "TfaotGraphInfo", "TfaotObjectInfo", "TfaotSourcesInfo")

visibility(["//rules/..."])

def cxx_of(ctx):
    """Returns the C++ toolchain with the features that a target asks for.

    Args:
      ctx: the context of a rule with the fragment `cpp` and `use_cc_toolchain()`

    Returns:
      (tuple[CcToolchainInfo, FeatureConfiguration])
    """
    cc_toolchain = find_cc_toolchain(ctx)
    return cc_toolchain, cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

def expanded(ctx, attribute):
    """Returns the flags of an attribute with Make variables expanded.

    Args:
      ctx: the context of a rule with `code_attrs`
      attribute: (str) `copts` or `linkopts`

    Returns:
      (list[str])
    """
    return [ctx.expand_make_variables(attribute, flag, {}) for flag in getattr(ctx.attr, attribute)]

def code_attrs():
    """Returns the attributes of a rule that builds a model's code from what earlier stages wrote.

    Returns:
      (dict[str, Attribute])
    """
    return {
        "compiled": attr.label(
            doc = "Target of the compile stage.",
            mandatory = True,
            providers = [TfaotObjectInfo],
        ),
        "copts": attr.string_list(
            doc = "As in `tf_aot_library`.",
        ),
        "graph": attr.label(
            doc = "Target of the export stage; its variables' file is shipped with the code.",
            mandatory = True,
            providers = [TfaotGraphInfo],
        ),
        "linkopts": attr.string_list(
            doc = "As in `tf_aot_library`.",
        ),
        "sources": attr.label(
            doc = "Target of the render stage.",
            mandatory = True,
            providers = [TfaotSourcesInfo],
        ),
        "_support": attr.label(default = "//runtime:model"),
    }
