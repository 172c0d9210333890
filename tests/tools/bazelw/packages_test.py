import unittest

from tools.bazelw import packages
from tools.bazelw.errors import WayFailed


def paragraph(name: str, depends: str = "", more: str = "", version: str = "1:2.0-1+b1") -> str:
    return (
        f"Package: {name}\nVersion: {version}\nDepends: {depends}\n{more}"
        f"Filename: pool/main/x/{name}_2.0-1+b1_amd64.deb\nSize: 10\nSHA256: {'ab' * 32}\n"
        "Description: text\n Package: none of this\n"
    )


SUITE = [
    paragraph("bazel-bootstrap", "libone (>= 1), build-essential, default-jdk-headless, zlib1g-dev, libjava-java"),
    paragraph("libone", "libc6 (>= 2.38) | libc6.1, virtual-lib"),
    paragraph("libc6"),
    paragraph("real-lib", more="Provides: virtual-lib (= 2), other\n"),
    paragraph("libjava-java", "libmaven3-core-java, libother-java:any"),
    paragraph("libother-java"),
    paragraph("default-jre-headless", "java-common, openjdk-25-jre-headless"),
    paragraph("openjdk-25-jre-headless", "util-linux"),
    *(paragraph(name) for name in ("bazel-rules-shell", "libblake3-0", "patchelf", "build-essential", "util-linux")),
]


class PackagesTest(unittest.TestCase):
    def test_closure(self) -> None:
        """Protects the rule: Bazel's dependencies, including undeclared ones, without compilers, JDK, and Maven."""
        chosen = packages.bazel(packages.parse("\n".join(SUITE)))
        self.assertEqual(
            " ".join(package.name for package in chosen),
            "bazel-bootstrap bazel-rules-shell libblake3-0 libc6 libjava-java libone libother-java "
            "openjdk-25-jre-headless patchelf real-lib",
        )

    def test_missing_package_is_named(self) -> None:
        """Protects users when the suite has moved on: the error is useful."""
        for name in ("libblake3-0", "libother-java"):
            left = [text for text in SUITE if f"Package: {name}\n" not in text]
            with self.subTest(name), self.assertRaisesRegex(WayFailed, f"no package {name}"):
                packages.bazel(packages.parse("\n".join(left)))
        left = [text for text in SUITE if "Package: default-jre-headless" not in text]
        with self.assertRaisesRegex(WayFailed, "Java runtime"):
            packages.bazel(packages.parse("\n".join(left)))

    def test_file_name_is_the_one_that_apt_writes(self) -> None:
        """Protects downloads of packages with an epoch from being repeated on each call."""
        self.assertEqual(packages.parse(SUITE[2])["libc6"].file, "libc6_1%3a2.0-1+b1_amd64.deb")


if __name__ == "__main__":
    unittest.main()
