"""The study's models, which tests and benchmarks go through."""

visibility(["//benchmarks/...", "//tests/..."])

# Labels of the libraries by name. The first model is an example of its own.
STUDY = {"fc": "//examples/fc:fc_aot"} | {
    name: "//examples/study:{}_aot".format(name)
    for name in [
        "conv_fc",
        "conv_fc_adam",
        "conv_fc_batchnorm",
        "conv_fc_batchnorm_adam",
        "conv_fc_batchnorm_notrain",
        "dynamic_rnn",
        "fc_adam",
        "fc_batchnorm",
        "fc_batchnorm_adam",
        "fc_batchnorm_notrain",
        "fc_kerasbatchnorm",
        "keras_rnn",
        "rnn_seq_length",
    ]
}
