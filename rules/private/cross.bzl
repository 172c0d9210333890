"""The targets of the repository `tfaot_aarch64`: a C++ toolchain and an emulator.

A macro declares them, not a generated BUILD file, so a change here doesn't set the packages up again.
"""

# Where the toolchain that Bazel finds by itself loads it from, too. Bazel's own file is deprecated.
# buildifier: disable=bzl-visibility
load("@rules_cc//cc/private/toolchain:unix_cc_toolchain_config.bzl", "cc_toolchain_config")
load("@rules_cc//cc/toolchains:cc_toolchain.bzl", "cc_toolchain")

# Called from @tfaot_aarch64.
visibility("public")

_TOOLS = ["ar", "cpp", "gcc", "gcov", "ld", "nm", "objcopy", "objdump", "strip"]

# buildifier: disable=unnamed-macro
def aarch64_targets(*, folder, includes, version):
    """Declares all targets of the repository `tfaot_aarch64`.

    Args:
      folder: (str) absolute path of the tools
      includes: (list[str]) absolute paths of the compiler's own headers
      version: (str) gcc's
    """
    native.filegroup(name = "none")
    cc_toolchain_config(
        name = "config",
        abi_libc_version = "local",
        abi_version = "local",
        # g++ also compiles C, as in Bazel's own toolchain.
        compile_flags = ["-U_FORTIFY_SOURCE", "-fstack-protector", "-Wall", "-Wunused-but-set-parameter", "-fno-omit-frame-pointer"],
        compiler = "gcc",
        coverage_compile_flags = ["--coverage"],
        coverage_link_flags = ["--coverage"],
        cpu = "aarch64",
        cxx_builtin_include_directories = includes,
        cxx_flags = [],
        dbg_compile_flags = ["-g"],
        host_system_name = "local",
        link_flags = ["-Wl,-z,relro,-z,now"],
        link_libs = ["-lstdc++", "-lm"],
        opt_compile_flags = ["-g0", "-O2", "-D_FORTIFY_SOURCE=1", "-DNDEBUG", "-ffunction-sections", "-fdata-sections"],
        opt_link_flags = ["-Wl,--gc-sections"],
        supports_start_end_lib = False,
        target_libc = "glibc",
        target_system_name = "aarch64-linux-gnu",
        # The configuration asks for tools that only clang has.
        tool_paths = {tool: "{}/{}".format(folder, tool) for tool in _TOOLS} | {"dwp": "/bin/false", "llvm-cov": "/bin/false"},
        toolchain_identifier = "tfaot-aarch64-gcc-" + version,
        unfiltered_compile_flags = [
            # No path of the machine, and no time, in any object.
            "-Wno-builtin-macro-redefined",
            "-D__DATE__=\"redacted\"",
            "-D__TIMESTAMP__=\"redacted\"",
            "-D__TIME__=\"redacted\"",
        ],
    )
    cc_toolchain(
        name = "cc_toolchain",
        all_files = ":none",
        compiler_files = ":none",
        dwp_files = ":none",
        linker_files = ":none",
        objcopy_files = ":none",
        strip_files = ":none",
        supports_param_files = 1,
        toolchain_config = ":config",
        visibility = ["//visibility:public"],
    )
    native.exports_files(["run"])
