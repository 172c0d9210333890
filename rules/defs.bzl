"""The rules' public names."""

load("//rules/private:compile.bzl", _tf_aot_compile = "tf_aot_compile")
load("//rules/private:export.bzl", _tf_aot_export = "tf_aot_export")
load("//rules/private:library.bzl", _tf_aot_library = "tf_aot_library")
load("//rules/private:link.bzl", _tf_aot_link = "tf_aot_link")
load(
    "//rules/private:providers.bzl",
    _TfaotGoldensInfo = "TfaotGoldensInfo",
    _TfaotGraphInfo = "TfaotGraphInfo",
    _TfaotObjectInfo = "TfaotObjectInfo",
    _TfaotSourcesInfo = "TfaotSourcesInfo",
)
load("//rules/private:render.bzl", _tf_aot_render = "tf_aot_render")
load("//rules/private:verify.bzl", _tf_aot_verify = "tf_aot_verify")

tf_aot_library = _tf_aot_library

# The stages, each for those who need only that far.
tf_aot_export = _tf_aot_export
tf_aot_compile = _tf_aot_compile
tf_aot_render = _tf_aot_render
tf_aot_link = _tf_aot_link
tf_aot_verify = _tf_aot_verify

TfaotGraphInfo = _TfaotGraphInfo
TfaotObjectInfo = _TfaotObjectInfo
TfaotSourcesInfo = _TfaotSourcesInfo
TfaotGoldensInfo = _TfaotGoldensInfo
