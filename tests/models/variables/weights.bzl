"""Files of weights that are made while building."""

def weights(*, name):
    """Makes `NAME.safetensors`.

    Args:
      name: (str) which one, as `write_weights.py` calls it
    """
    native.genrule(
        name = name + "_weights",
        testonly = True,
        outs = [name + ".safetensors"],
        cmd = "$(execpath :write_weights) {} $@".format(name),
        tools = [":write_weights"],
    )
