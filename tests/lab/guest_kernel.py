"""The kernel and initramfs of the Soft-RoCE guests, made once and cached outside the tree.

The kernel is Debian's own package, fetched by apt and unpacked, never installed. The initramfs is
busybox, the modules a guest needs in the order modprobe would load them, and two scripts from this
directory. Its file name carries a hash of what went in, so an edited script makes a new one.
"""

import contextlib
import fcntl
import glob
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import typing

from sandbox import LabError, find, run

PROGRAMS = {"apt-get": "apt", "apt-cache": "apt", "dpkg": "dpkg", "depmod": "kmod",
            "modprobe": "kmod", "busybox": "busybox-static", "cpio": "cpio"}

# `rdma link add` wants crc32 and says "No such file or directory" when nothing provides it.
_MODULES = ("crc32_generic virtio_pci virtio_net virtio_rng virtio_console 9pnet_virtio 9p overlay "
            "rdma_rxe ib_uverbs rdma_ucm").split()

_SCRIPTS = ("guest-init", "guest-main")


class System(typing.NamedTuple):
    """Paths of what a guest boots: kernel image, initramfs, and the directory of all modules."""

    kernel: str
    initramfs: str
    modules: str


def default_cache():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "lochos", "rxe")


def prepare(cache, package=None):
    """Returns a System, making what is not there yet."""
    os.makedirs(cache, exist_ok=True)
    with _locked(os.path.join(cache, "lock")):
        package = package or _cached_package(cache) or _newest_package()
        tree = os.path.join(cache, package)
        if not os.path.isdir(tree):
            _fetch(package, tree)
        version = os.listdir(os.path.join(tree, "lib", "modules"))[0]
        image = os.path.join(tree, "vmlinux")
        if not os.path.exists(image):
            _extract(os.path.join(tree, "boot", "vmlinuz-" + version), image)
        return System(image, _initramfs(tree, version), os.path.join(tree, "lib/modules", version))


@contextlib.contextmanager
def _locked(path):
    with open(path, "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cached_package(cache):
    trees = glob.glob(os.path.join(cache, "linux-image-*", "boot"))
    return os.path.basename(os.path.dirname(max(trees, key=os.path.getmtime))) if trees else None


def _newest_package():
    depends = run("apt-cache", "depends", "linux-image-amd64")
    found = re.search(r"Depends: (linux-image-\d\S+)", depends)
    if not found:
        raise LabError("apt knows no linux-image-amd64; try apt-get update, or --kernel-package")
    return found[1]


def _fetch(package, tree):
    print(f"rxe: fetching {package} (70 MB, once) into {os.path.dirname(tree)}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(tree)) as work:
        run("apt-get", "download", "-o", "APT::Sandbox::User=root", package, cwd=work)
        run("dpkg", "-x", glob.glob(work + "/*.deb")[0], work + "/tree")
        os.rename(work + "/tree", tree)


def _extract(vmlinuz, image):
    """Writes the ELF kernel out of a bzImage, so that no guest unpacks it in emulation.

    The setup header of a bzImage holds offset and length of the compressed kernel (fields
    setup_sects, payload_offset, payload_length of the x86 boot protocol).
    """
    with open(vmlinuz, "rb") as file:
        data = file.read()
    start = (data[0x1F1] + 1) * 512 + int.from_bytes(data[0x248:0x24C], "little")
    payload = data[start:start + int.from_bytes(data[0x24C:0x250], "little")]
    if not payload.startswith(b"\xfd7zXZ\0"):
        shutil.copy(vmlinuz, image)  # Another compression: QEMU boots the bzImage as well, slower.
        return
    with open(image + ".new", "wb") as file:
        # The last four bytes are the unpacked size, not part of the stream.
        file.write(lzma.LZMADecompressor().decompress(payload))
    os.rename(image + ".new", image)


def _initramfs(tree, version):
    here = os.path.dirname(os.path.abspath(__file__))
    recipe = hashlib.sha256(version.encode() + " ".join(_MODULES).encode())
    for name in _SCRIPTS:
        with open(os.path.join(here, name), "rb") as file:
            recipe.update(file.read())
    with open(os.path.abspath(__file__), "rb") as file:
        recipe.update(file.read())
    target = os.path.join(tree, f"initramfs-{recipe.hexdigest()[:16]}.cpio")
    if not os.path.exists(target):
        for old in glob.glob(os.path.join(tree, "initramfs-*")):
            os.unlink(old)
        with tempfile.TemporaryDirectory(dir=tree) as root:
            _fill(root, tree, version, here)
            _pack(root, target)
    return target


def _fill(root, tree, version, here):
    for directory in ("bin", "modules", "dev", "proc", "sys", "host", "upper", "sysroot"):
        os.mkdir(os.path.join(root, directory))
    shutil.copy(find("busybox"), os.path.join(root, "bin", "busybox"))
    shutil.copy(os.path.join(here, "guest-init"), os.path.join(root, "init"))
    os.chmod(os.path.join(root, "init"), 0o755)
    shutil.copy(os.path.join(here, "guest-main"), os.path.join(root, "guest-main"))
    run("depmod", "-b", tree, version)
    order = []
    for module in _MODULES:
        for line in run("modprobe", "-d", tree, "-S", version, "--show-depends",
                        module).splitlines():
            path = line.split()[1] if line.startswith("insmod ") else None
            if path and path not in order:
                order.append(path)
    for path in order:
        with open(os.path.join(root, "modules", os.path.basename(path)), "wb") as file:
            file.write(_unsigned(path))
    with open(os.path.join(root, "modules", "order"), "w", encoding="ascii") as file:
        file.writelines(os.path.basename(path) + "\n" for path in order)


def _unsigned(path):
    """A module without its signature, which takes an emulated processor long to check.

    A signed module ends in: signature, 12 bytes of which the last four are its length, a magic line.
    """
    with open(path, "rb") as file:
        data = file.read()
    magic = b"~Module signature appended~\n"
    if not data.endswith(magic):
        return data
    end = len(data) - len(magic)
    return data[:end - 12 - int.from_bytes(data[end - 4:end], "big")]


def _pack(root, target):
    names = "".join(
        os.path.relpath(os.path.join(directory, name), root) + "\n"
        for directory, directories, files in os.walk(root) for name in directories + files)
    with open(target + ".new", "wb") as file:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], input=names.encode(), stdout=file,
                       cwd=root, check=True)
    os.rename(target + ".new", target)
