"""The rules' public names."""

load("//rules/private:bundle.bzl", _tf_aot_bundle = "tf_aot_bundle")
load("//rules/private:clusters.bzl", _tf_aot_cluster = "tf_aot_cluster", _tf_aot_clusters = "tf_aot_clusters", _tf_aot_ops = "tf_aot_ops")
load("//rules/private:compile.bzl", _tf_aot_compile = "tf_aot_compile")
load("//rules/private:export.bzl", _tf_aot_export = "tf_aot_export")
load(
    "//rules/private:hlo.bzl",
    _tf_aot_hlo = "tf_aot_hlo",
    _tf_aot_lower = "tf_aot_lower",
    _tf_aot_stablehlo = "tf_aot_stablehlo",
)
load("//rules/private:library.bzl", _tf_aot_library = "tf_aot_library")
load("//rules/private:link.bzl", _tf_aot_link = "tf_aot_link")
load("//rules/private:model.bzl", _tf_model = "tf_model")
load("//rules/private:package.bzl", _tf_aot_package = "tf_aot_package")
load(
    "//rules/private:providers.bzl",
    _TfaotGoldensInfo = "TfaotGoldensInfo",
    _TfaotGraphInfo = "TfaotGraphInfo",
    _TfaotHloInfo = "TfaotHloInfo",
    _TfaotModelInfo = "TfaotModelInfo",
    _TfaotObjectInfo = "TfaotObjectInfo",
    _TfaotSourcesInfo = "TfaotSourcesInfo",
    _TfaotStablehloInfo = "TfaotStablehloInfo",
)
load("//rules/private:render.bzl", _tf_aot_render = "tf_aot_render")
load("//rules/private:shared.bzl", _tf_aot_shared = "tf_aot_shared")
load("//rules/private:stub.bzl", _tf_aot_stub = "tf_aot_stub")
load("//rules/private:verify.bzl", _tf_aot_verify = "tf_aot_verify")

tf_model = _tf_model
tf_aot_library = _tf_aot_library
tf_aot_hlo = _tf_aot_hlo
tf_aot_clusters = _tf_aot_clusters

# The individual stages, for users who don't need the rest.
tf_aot_export = _tf_aot_export
tf_aot_cluster = _tf_aot_cluster
tf_aot_compile = _tf_aot_compile
tf_aot_render = _tf_aot_render
tf_aot_link = _tf_aot_link
tf_aot_verify = _tf_aot_verify
tf_aot_lower = _tf_aot_lower
tf_aot_stablehlo = _tf_aot_stablehlo
tf_aot_bundle = _tf_aot_bundle
tf_aot_package = _tf_aot_package
tf_aot_shared = _tf_aot_shared
tf_aot_stub = _tf_aot_stub
tf_aot_ops = _tf_aot_ops

TfaotModelInfo = _TfaotModelInfo
TfaotGraphInfo = _TfaotGraphInfo
TfaotObjectInfo = _TfaotObjectInfo
TfaotSourcesInfo = _TfaotSourcesInfo
TfaotGoldensInfo = _TfaotGoldensInfo
TfaotHloInfo = _TfaotHloInfo
TfaotStablehloInfo = _TfaotStablehloInfo
