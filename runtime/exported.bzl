"""C++ libraries that programs call, and that no shared library of the user's exports."""

load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

visibility(["//rules/...", "//runtime/..."])

def either(ctx, cc_toolchain, features, static, dynamic):
    """Returns a library whose symbols are hidden in archives, and visible in a shared library.

    Bazel links the archive into whole programs and into the user's shared libraries. Where it links tests of many shared
    libraries, one for each target, it takes the shared library instead, because those refer to its symbols.

    Args:
      ctx: the rule's context
      cc_toolchain: (CcToolchainInfo)
      features: (FeatureConfiguration)
      static: (LibraryToLink) has the archives
      dynamic: (LibraryToLink) has the shared library, if the toolchain makes them

    Returns:
      (LibraryToLink)
    """
    return cc_common.create_library_to_link(
        actions = ctx.actions,
        cc_toolchain = cc_toolchain,
        dynamic_library = dynamic.resolved_symlink_dynamic_library or dynamic.dynamic_library,
        feature_configuration = features,
        pic_static_library = static.pic_static_library,
        static_library = static.static_library,
    )

def _own(target):
    """Returns a target's own linker input."""
    (own,) = [linked for linked in target[CcInfo].linking_context.linker_inputs.to_list() if linked.owner == target.label]
    return own

def _either_impl(ctx):
    cc_toolchain = find_cc_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    hidden = ctx.attr.hidden
    (static,), (dynamic,) = _own(hidden).libraries, _own(ctx.attr.visible).libraries
    own = cc_common.create_linker_input(
        owner = ctx.label,
        libraries = depset([either(ctx, cc_toolchain, features, static, dynamic)]),
        user_link_flags = _own(hidden).user_link_flags,
    )
    others = [linked for linked in hidden[CcInfo].linking_context.linker_inputs.to_list() if linked.owner != hidden.label]
    return [
        hidden[DefaultInfo],
        CcInfo(
            compilation_context = hidden[CcInfo].compilation_context,
            linking_context = cc_common.create_linking_context(linker_inputs = depset([own] + others, order = "topological")),
        ),
    ]

_either = rule(
    implementation = _either_impl,
    attrs = {
        "hidden": attr.label(mandatory = True, providers = [CcInfo]),
        "visible": attr.label(mandatory = True, providers = [CcInfo]),
    },
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)

def exported_library(*, name, copts, hidden, **attributes):
    """Declares a library of the runtime that programs call.

    Args:
      name: (str) as in cc_library
      copts: (list[str]) as in cc_library
      hidden: (list[str]) additional flags for archives, with which symbols are hidden
      **attributes: all others of cc_library
    """
    cc_library(name = name + ".hidden", copts = copts + hidden, linkstatic = True, tags = ["manual"], **attributes)
    cc_library(name = name + ".visible", copts = copts, tags = ["manual"], **attributes)
    _either(name = name, hidden = name + ".hidden", visible = name + ".visible")
