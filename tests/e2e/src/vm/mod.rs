//! A virtual machine with two Soft-RoCE devices, for features that this host's kernel lacks: UD queue pairs, and
//! packets that are lost, late or out of order (netem).
//!
//! It is made of Debian's packages alone: qemu's software emulation boots Debian's kernel with a small initramfs; the
//! guest's root is the host's, read only under an overlay in memory, so everything built or installed here is there
//! under the same path. `tests/vm` has the scripts that run in it.

mod nics;
pub mod steps;

use crate::layout::{Layout, empty};
use crate::process::{Job, append, last_lines};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Its packages, and the programs that show that it works.
pub const PACKAGES: &[&str] = &[
    "qemu-system-x86",
    "busybox-static",
    "kmod",
    "procps",
    "iproute2",
    "ibverbs-providers",
    "ibverbs-utils",
    "rdmacm-utils",
    "tcpdump",
    "ethtool",
];
/// The package that names the kernel's.
const KERNEL: &str = "linux-image-amd64";
/// Folders of the kernel's modules to keep.
const KEPT: &[&str] = &[
    "arch",
    "crypto",
    "lib",
    "net",
    "fs/9p",
    "fs/configfs",
    "fs/netfs",
    "fs/fscache",
    "fs/overlayfs",
    "drivers/infiniband",
    "drivers/net/veth.ko",
    "drivers/net/bonding",
    "drivers/virtio",
];
/// Modules that the initramfs needs to mount the root.
const EARLY: &[&str] = &["virtio_pci", "9pnet_virtio", "9p", "overlay"];
/// Most time for the kernel's package.
const FETCH_LIMIT: Duration = Duration::from_secs(300);
/// Memory of the machine.
const MEMORY_MIB: u32 = 3072;
/// Without the byte-wise string instructions: qemu 7.2 emulates them byte by byte, and a kernel that sees
/// them copies by them.
const PROCESSOR: &str = "max,-erms,-fsrm";
/// Lines of the console to show when the machine did not reach its script.
const CONSOLE_LINES: usize = 30;

/// A machine that can be started, any number of times.
#[derive(Clone, Debug)]
pub struct Machine {
    dir: PathBuf,
    root: PathBuf,
    guest: PathBuf,
    /// As `uname -r` tells it.
    release: String,
}

/// Results of a run of the machine.
#[derive(Debug)]
pub struct Ran {
    /// Exit status of the script.
    pub status: i32,
    /// Its text on both outputs.
    pub output: String,
    /// The directory for the script's files, also in its variable `OUT`.
    pub out: PathBuf,
}

impl Machine {
    /// Fetches the kernel and makes the initramfs, unless they are there.
    ///
    /// # Errors
    /// Packages that cannot be had, programs that are missing.
    pub fn prepare(layout: &Layout) -> Result<Machine> {
        ensure!(cfg!(target_arch = "x86_64"), "the machine is made for x86-64 only");
        let dir = layout.own.join("vm");
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let log = layout.logs.join("vm-setup.log");
        let release = fetch_kernel(&dir, &log)?;
        let root = layout.root.clone();
        let machine = Machine { guest: root.join("tests/vm/guest.sh"), root, release, dir };
        machine.make_initramfs(&log)?;
        Ok(machine)
    }

    /// Boots, runs `script` (sh, as root, in the repository's root, with `OUT` in its
    /// environment), and ends, after `limit` at the latest.
    ///
    /// # Errors
    /// If the machine does not reach the script, or not its end in time.
    pub fn run(&self, script: &str, limit: Duration, log: &Path) -> Result<Ran> {
        let out = empty(self.dir.join("out"))?;
        let console = self.dir.join("console");
        let _ = fs::remove_file(&console);
        let script = format!("export OUT={}\n{script}", out.display());
        fs::write(out.join("script"), script)?;
        fs::write(out.join("dir"), self.root.as_os_str().as_encoded_bytes())?;
        let ended = self.job(&out, &console).limit(limit).finish(log)?;
        let read = |name: &str| {
            let bytes = fs::read(out.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (output, console) = (read("output"), fs::read(&console).unwrap_or_default());
        let console = String::from_utf8_lossy(&console).into_owned();
        append(
            log,
            &format!("console:\n{console}\nsetup:\n{}\noutput:\n{output}\n", read("setup")),
        )?;
        let Ok(status) = read("status").trim().parse() else {
            let told = [&ended.output, &read("setup"), &output, &console];
            let told: Vec<_> = told.iter().map(|text| last_lines(text, CONSOLE_LINES)).collect();
            bail!(
                "the machine did not end its script in {} s:\n{}",
                limit.as_secs(),
                told.join("\n")
            )
        };
        ensure!(read("setup").trim().is_empty(), "in the machine: {}", read("setup"));
        Ok(Ran { status, output, out })
    }

    fn job(&self, out: &Path, console: &Path) -> Job {
        let kernel = self.dir.join("kernel");
        let append = format!(
            "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable erd.modules={} erd.guest={} erd.out={}",
            kernel.display(),
            self.guest.display(),
            out.display()
        );
        let share = |tag: &str, path: &Path, more: &str| {
            let path = path.display();
            [
                "-fsdev".to_owned(),
                format!("local,id={tag},path={path},security_model=none,multidevs=remap{more}"),
                "-device".to_owned(),
                format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
            ]
        };
        Job::new("qemu-system-x86_64")
            .args(["-accel", "tcg,thread=multi", "-cpu", PROCESSOR, "-smp", "2", "-m"])
            .args([format!("{MEMORY_MIB}M")])
            .args(["-nodefaults", "-no-reboot", "-display", "none", "-serial"])
            .args([format!("file:{}", console.display())])
            .args(["-kernel".into(), kernel.join(format!("boot/vmlinuz-{}", self.release))])
            .args(["-initrd".into(), self.dir.join("initramfs.gz")])
            .args(["-append", &append])
            .args(share("host", Path::new("/"), ",readonly=on"))
            .args(share("out", out, ""))
    }

    /// Made anew each time, since it holds `tests/vm/init`.
    fn make_initramfs(&self, log: &Path) -> Result<()> {
        let script = r#"
            set -e
            rm -rf initramfs && mkdir -p initramfs/bin initramfs/modules
            cp "$(command -v busybox)" initramfs/bin/
            cp "$1/tests/vm/init" initramfs/init && chmod 755 initramfs/init
            release=$2
            shift 2
            for module in "$@"; do
                modprobe -d "$PWD/kernel" -S "$release" -D "$module"
            done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | while read -r file; do
                name=$(basename "$file")
                [ -e "initramfs/modules/$name" ] || echo "$name" >> initramfs/modules/order
                cp "$file" initramfs/modules/
            done
            (cd initramfs && find . | busybox cpio -o -H newc) | gzip -1 > initramfs.gz
        "#;
        Job::new("sh")
            .args(["-c", script, "sh"])
            .args([&self.root])
            .args([&self.release])
            .args(EARLY)
            .dir(&self.dir)
            .run(log)
            .map(drop)
    }
}

/// Fetches and unpacks Debian's kernel into `dir`; returns its release.
fn fetch_kernel(dir: &Path, log: &Path) -> Result<String> {
    let depends = Job::new("apt-cache").args(["depends", KERNEL]).run(log)?;
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))
        .with_context(|| format!("no package {KERNEL}: is this Debian?"))?
        .to_owned();
    let stamp = dir.join("kernel/release");
    let wanted = format!("{package} {}", KEPT.join(" "));
    if fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(package);
    }
    println!("fetching linux-image-{package}");
    let script = r#"
        set -e
        rm -rf kernel fetched && mkdir -p kernel fetched
        (cd fetched && apt-get download "linux-image-$1")
        release=$1
        wanted=$2
        shift 2
        set -- $(for kept in "$@"; do echo "./lib/modules/$release/kernel/$kept"; done)
        dpkg-deb --fsys-tarfile fetched/*.deb | tar -C kernel -x \
            "./boot/vmlinuz-$release" "./lib/modules/$release/modules.builtin" \
            "./lib/modules/$release/modules.order" "$@"
        rm -r fetched
        depmod -b kernel "$release"
        printf %s "$wanted" > kernel/release
    "#;
    Job::new("sh")
        .args(["-c", script, "sh", &package, &wanted])
        .args(KEPT)
        .dir(dir)
        .limit(FETCH_LIMIT)
        .run(log)?;
    Ok(package)
}
