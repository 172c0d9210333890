"""Everything you need to declare your own toolchain. See docs/guide/toolchain.md."""

load("//rules/private:toolchain.bzl", _TfaotToolchainInfo = "TfaotToolchainInfo", _tfaot_toolchain = "tfaot_toolchain")

TfaotToolchainInfo = _TfaotToolchainInfo
tfaot_toolchain = _tfaot_toolchain
