// SPDX-License-Identifier: GPL-2.0
//! The kernel, and whether it takes the module.

use super::system::{exists, line, output, System};
use super::Check;

/// The series that the module is built and tested for, the newest first.
const SERIES: [(u32, u32); 2] = [(7, 3), (7, 2)];
/// Options that the kernel has to be built with.
const OPTIONS: [&str; 4] = [
    "CONFIG_RUST",
    "CONFIG_IPV6",
    "CONFIG_INFINIBAND_ADDR_TRANS",
    // For the receive pools.
    "CONFIG_CONTIG_ALLOC",
];

pub fn checks(system: &dyn System, loaded: bool) -> Vec<Check> {
    let release = line(system, "/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut checks = vec![series(&release)];
    let file = ModuleFile::find(system);
    if !loaded {
        checks.push(config(system, &release));
        checks.extend(tools(system, &release, file.is_some()));
    }
    checks.push(module_file(&release, file.as_ref(), loaded));
    checks.push(signature(system, file.as_ref(), loaded));
    checks.push(rdma_stack(system));
    checks
}

/// The first two numbers of a release.
fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn series(release: &str) -> Check {
    let supported = SERIES.map(|(a, b)| format!("{a}.{b}")).join(" and ");
    let text = |what: &str| format!("Linux {release} is {what} (supported: {supported})");
    match numbers(release) {
        Some(series) if SERIES.contains(&series) => Check::ok("kernel", text("supported")),
        Some(series) if series > SERIES[0] => Check::warning(
            "kernel",
            text("newer than what ZRS was tested with"),
            "boot a supported kernel, or test this one with `make test KSERIES=...` first",
        ),
        _ => Check::failure(
            "kernel",
            text("too old"),
            "boot a kernel of a supported series; in Debian 13: apt install -t trixie-backports linux-image-amd64",
        ),
    }
}

/// The packages that bring a module for this kernel. There are none for series that are not supported.
fn packages(release: &str) -> String {
    match numbers(release) {
        Some(series) if SERIES.contains(&series) => {
            format!("apt install zrs-modules-{release}, or zrs-dkms")
        }
        _ => "boot a supported kernel, for which there are packages".into(),
    }
}

/// The configuration that the kernel was built with.
pub fn read_config(system: &dyn System, release: &str) -> Option<String> {
    let files = [
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
        format!("/lib/modules/{release}/build/.config"),
    ];
    let found = files.iter().find_map(|file| system.read(file));
    found.or_else(|| output(system, &["zcat", "/proc/config.gz"]))
}

/// The value of an option, without quotation marks.
pub fn option<'a>(config: &'a str, name: &str) -> Option<&'a str> {
    let value = config
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"'))
}

fn config(system: &dyn System, release: &str) -> Check {
    let name = "kernel config";
    let Some(config) = read_config(system, release) else {
        return Check::warning(
            name,
            format!("there is no configuration of Linux {release} to look at"),
            &format!(
                "look for {} in the configuration that it was built with",
                OPTIONS.join(", ")
            ),
        );
    };
    let missing: Vec<_> = OPTIONS
        .into_iter()
        .filter(|o| option(&config, o) != Some("y"))
        .collect();
    if missing.is_empty() {
        return Check::ok(name, format!("has {}", OPTIONS.join(", ")));
    }
    Check::failure(
        name,
        format!("{} is not set", missing.join(", ")),
        "boot a kernel that was built with it: no module of ZRS can be made for this one",
    )
}

/// The tools for building the module on this host. Checked only if no module is installed.
fn tools(system: &dyn System, release: &str, there: bool) -> Option<Check> {
    if there {
        return None;
    }
    let name = "build tools";
    let metadata = format!("/lib/modules/{release}/build/rust/libkernel.rmeta");
    let sources = system.list("/usr/src");
    let dkms = sources.iter().any(|n| n.starts_with("zrs-"));
    let made = match dkms {
        true => "zrs-dkms",
        false => "Rust metadata",
    };
    if !dkms && !exists(system, &metadata) {
        return Some(Check::warning(
            name,
            format!("there is no {metadata}: the headers have no Rust metadata"),
            &format!(
                "{}; or prepare the kernel's source (`make kernel`)",
                packages(release)
            ),
        ));
    }
    let config = read_config(system, release).unwrap_or_default();
    // The version that the kernel was built with, as apt is asked for it.
    let number = |text: &str| match text.split(' ').nth(1) {
        Some(number) => format!("={number}*"),
        None => String::new(),
    };
    let wanted = option(&config, "CONFIG_RUSTC_VERSION_TEXT").unwrap_or_default();
    let version = number(wanted);
    let remedy = format!(
        "apt install rustc{version} rust-src{version}, or RUSTC=... in /etc/default/zrs-dkms"
    );
    let Some(rustc) = output(system, &["rustc", "--version"]) else {
        return Some(Check::warning(name, "there is no rustc", &remedy));
    };
    let rustc = rustc.trim();
    if !wanted.is_empty() && wanted != rustc {
        let text = format!("{rustc} cannot read the metadata of {wanted}");
        return Some(Check::warning(name, text, &remedy));
    }
    let wanted = option(&config, "CONFIG_BINDGEN_VERSION_TEXT").unwrap_or_default();
    let remedy = format!(
        "apt install bindgen{}, or BINDGEN=... in /etc/default/zrs-dkms",
        number(wanted)
    );
    let Some(bindgen) = output(system, &["bindgen", "--version"]) else {
        return Some(Check::warning(name, "there is no bindgen", &remedy));
    };
    let bindgen = bindgen.trim();
    if !wanted.is_empty() && wanted != bindgen {
        let text = format!("{bindgen} is not {wanted}, which the kernel was built with");
        return Some(Check::warning(name, text, &remedy));
    }
    Some(Check::ok(name, format!("{rustc}, {bindgen}, {made}")))
}

/// The module as it is installed.
struct ModuleFile {
    path: String,
    /// The release that it was built for.
    vermagic: String,
    /// The name of the key that it is signed with, empty without a signature.
    signer: String,
    srcversion: String,
    /// The versions of the protocol that it speaks; empty if the file does not say.
    wire: String,
}

impl ModuleFile {
    fn find(system: &dyn System) -> Option<Self> {
        let field = |name| {
            let text = output(system, &["modinfo", "-F", name, "zrs"]).unwrap_or_default();
            text.trim().to_string()
        };
        let path = field("filename");
        let vermagic = field("vermagic");
        (!path.is_empty()).then(|| Self {
            path,
            vermagic: vermagic.split(' ').next().unwrap_or_default().into(),
            signer: field("signer"),
            srcversion: field("srcversion"),
            wire: field("wire"),
        })
    }
}

fn module_file(release: &str, file: Option<&ModuleFile>, loaded: bool) -> Check {
    let name = "module file";
    match file {
        Some(file) if file.vermagic == release && file.wire.is_empty() => {
            Check::ok(name, &file.path)
        }
        Some(file) if file.vermagic == release => {
            Check::ok(name, format!("{}, wire version {}", file.path, file.wire))
        }
        Some(file) => Check::failure(
            name,
            format!(
                "{} was built for {}, not for {release}",
                file.path, file.vermagic
            ),
            "install the module for this kernel, or boot the kernel that it is for",
        ),
        None if loaded => Check::warning(
            name,
            format!("the module is loaded, but not installed for {release}"),
            &format!(
                "{}, or make install KDIR=...; else it is not there after a reboot",
                packages(release)
            ),
        ),
        None => Check::failure(
            name,
            format!("there is no zrs.ko for {release}"),
            &format!(
                "{}, or make install KDIR=...; /usr/src/zrs-*/dkms/check {release} says why zrs-dkms builds none",
                packages(release)
            ),
        ),
    }
}

/// Whether the kernel takes modules without a signature that it knows.
fn signature(system: &dyn System, file: Option<&ModuleFile>, loaded: bool) -> Check {
    let name = "signature";
    let secure_boot = system
        .bytes("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")
        .is_some_and(|b| b.last() == Some(&1));
    let enforced =
        line(system, "/sys/module/module/parameters/sig_enforce").as_deref() == Some("Y");
    let lockdown = system
        .read("/sys/kernel/security/lockdown")
        .is_some_and(|l| l.contains('[') && !l.contains("[none]"));
    let why = match (lockdown, enforced) {
        (true, _) => "the kernel is locked down",
        (_, true) => "the kernel enforces signatures",
        _ => {
            let boot = if secure_boot { "on" } else { "off" };
            return Check::ok(
                name,
                format!("not needed: Secure Boot is {boot}, no lockdown"),
            );
        }
    };
    if loaded {
        return Check::ok(name, format!("{why}, and has taken the module"));
    }
    let Some(file) = file else {
        return Check::warning(
            name,
            format!("{why}: it takes only a module that is signed by a key it knows"),
            "sign the module, and enrol the key: mokutil --import KEY.der, then reboot",
        );
    };
    if file.signer.is_empty() {
        return Check::failure(
            name,
            format!("{why}, and {} is not signed", file.path),
            "sign it (scripts/sign-file of the kernel's tree), and enrol the key: mokutil --import KEY.der, then reboot",
        );
    }
    let enrolled = output(system, &["mokutil", "--list-enrolled"]);
    if enrolled.is_some_and(|keys| keys.contains(&file.signer)) {
        return Check::ok(
            name,
            format!("{why}; the key \"{}\" is enrolled", file.signer),
        );
    }
    Check::warning(
        name,
        format!(
            "{why}; it is not seen whether it knows the key \"{}\"",
            file.signer
        ),
        "if modprobe says \"Key was rejected by service\": mokutil --import KEY.der, then reboot",
    )
}

/// Modules of the RDMA core: the module is built for those of the kernel's own source.
const CORE: [&str; 4] = ["ib_core", "rdma_cm", "ib_cm", "iw_cm"];

/// MLNX_OFED and DOCA replace the core by one with other structures. A kernel without
/// CONFIG_MODVERSIONS does not notice when the module is loaded over it.
fn rdma_stack(system: &dyn System) -> Check {
    let name = "RDMA stack";
    let remedy =
        "never load zrs here: remove MLNX_OFED or DOCA (ofed_uninstall.sh, or apt purge its \
                  packages), then: depmod -a, and reboot";
    if exists(system, "/sys/module/mlx_compat") {
        return Check::failure(
            name,
            "mlx_compat is loaded: MLNX_OFED or DOCA has replaced the RDMA core",
            remedy,
        );
    }
    for module in CORE {
        let taint = line(system, &format!("/sys/module/{module}/taint")).unwrap_or_default();
        if taint.contains('O') {
            return Check::failure(name, format!("{module} is not the kernel's own"), remedy);
        }
    }
    let installed = |module| output(system, &["modinfo", "-F", "filename", module]);
    for module in CORE {
        let path = installed(module).unwrap_or_default();
        let path = path.trim();
        if ["/updates/", "/extra/", "/weak-updates/"]
            .iter()
            .any(|dir| path.contains(dir))
        {
            return Check::failure(
                name,
                format!("{path} is installed over the kernel's own {module}"),
                remedy,
            );
        }
    }
    if let Some(path) = installed("mlx_compat") {
        return Check::failure(
            name,
            format!("{} is installed: MLNX_OFED or DOCA", path.trim()),
            remedy,
        );
    }
    if exists(system, "/usr/src/ofa_kernel") {
        return Check::warning(
            name,
            "/usr/src/ofa_kernel is there: MLNX_OFED or DOCA is or was installed",
            "make sure that `modinfo -F filename ib_core` is below kernel/",
        );
    }
    if !exists(system, "/sys/module/ib_core") {
        return Check::ok(name, "not loaded yet");
    }
    Check::ok(name, "the kernel's own")
}

/// Whether the module that is loaded is the one that is installed.
pub fn same_source(system: &dyn System) -> Option<bool> {
    let loaded = line(system, "/sys/module/zrs/srcversion")?;
    let file = ModuleFile::find(system)?;
    (!file.srcversion.is_empty()).then(|| loaded == file.srcversion)
}
