"""Weight files that are generated during the build."""

def weights(*, name):
    """Makes `NAME.safetensors`.

    Args:
      name: (str) which weights, by their name in `write_weights.py`
    """
    native.genrule(
        name = name + "_weights",
        testonly = True,
        outs = [name + ".safetensors"],
        cmd = "$(execpath :write_weights) {} $@".format(name),
        tools = [":write_weights"],
    )
