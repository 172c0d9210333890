"""What a user needs to declare a toolchain of their own: see docs/toolchain.md."""

load("//rules/private:toolchain.bzl", _TfaotToolchainInfo = "TfaotToolchainInfo", _tfaot_toolchain = "tfaot_toolchain")

TfaotToolchainInfo = _TfaotToolchainInfo
tfaot_toolchain = _tfaot_toolchain
