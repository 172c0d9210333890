"""Attributes that every Bazel rule has, and how a macro hands them on to the targets that it declares."""

visibility(["//rules/..."])

def common_attributes(
        *,
        compatible_with,
        exec_properties,
        restricted_to,
        tags,
        target_compatible_with,
        testonly,
        visibility):
    """Returns the common attributes of a macro's targets.

    Args:
      compatible_with: (list[Label]) as in any rule
      exec_properties: (dict[str, str]) as in any rule
      restricted_to: (list[Label]) as in any rule
      tags: (list[str]) as in any rule
      target_compatible_with: (list[Label]) as in any rule
      testonly: (bool) as in any rule
      visibility: (list[Label]) of the targets that users name

    Returns:
      (struct) of dicts: `public` for targets that users name, `test` for those that are tests, `private` for all other targets,
        and `files` for filegroups, which are private and run no action
    """
    everywhere = {
        "compatible_with": compatible_with,
        "restricted_to": restricted_to,
        "target_compatible_with": target_compatible_with,
    }
    files = everywhere | {"tags": tags + ["manual"], "testonly": testonly, "visibility": ["//visibility:private"]}
    actions = {"exec_properties": exec_properties}
    test = everywhere | actions | {"tags": tags, "visibility": visibility}
    return struct(
        files = files,
        private = files | actions,
        public = test | {"testonly": testonly},
        test = test,
    )
