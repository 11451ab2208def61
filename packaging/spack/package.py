"""Spack recipe of erd; README.md beside it says how to use it."""

from spack.package import *


class Erd(Package):
    """libfabric provider of reliable datagrams over UDP and many paths."""

    # No source archive is published yet: the recipe builds a checkout, by `spack develop`.
    version("0.1.0")

    license("MIT OR Apache-2.0")

    depends_on("c", type="build")
    depends_on("rust@1.95:", type="build")
    # Nothing links it: libfabric loads the provider.
    depends_on("libfabric@1.17:", type="run")

    conflicts("platform=darwin", msg="erd is written for Linux")
    conflicts("platform=windows", msg="erd is written for Linux")

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        for package in ("erd-fi", "erd-tool"):
            cargo("build", "--release", "--locked", "--package", package, "--target-dir", "target")
        man = prefix.share.man
        for directory in (prefix.lib.libfabric, prefix.bin, man.man1, man.man3, man.man7, prefix.share.doc.erd):
            mkdirp(directory)
        install("target/release/liberd_fi.so", join_path(prefix.lib, "liberd.so.1"))
        symlink("liberd.so.1", join_path(prefix.lib, "liberd.so"))
        symlink("../liberd.so.1", join_path(prefix.lib.libfabric, "liberd_fi.so"))
        install("target/release/erd", prefix.bin)
        install("docs/man/*.1", man.man1)
        install("docs/man/*.3", man.man3)
        install("docs/man/*.7", man.man7)
        for text in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE-MIT", "LICENSE-APACHE"):
            install(text, prefix.share.doc.erd)
        install("docs/*.md", prefix.share.doc.erd)
        install_tree("docs/cc", prefix.share.doc.erd.cc)
        install_tree("include", prefix.include)

    def setup_run_environment(self, env):
        # Spack's libfabric looks for providers in its own prefix.
        env.prepend_path("FI_PROVIDER_PATH", self.prefix.lib.libfabric)
