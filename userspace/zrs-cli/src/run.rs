// SPDX-License-Identifier: GPL-2.0
//! `zrs run`: a program that knows nothing of ZRS, with `libzrs_preload.so`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, fs, io, thread};

use rustix::process::{waitid, Pid, WaitId, WaitIdOptions};
use zrs::Zrs;
use zrs_notify::Signals;
use zrs_rules::{joined, Beside, Net, Ports};

use crate::cgroup::Cgroup;

const LIBRARY: &str = "libzrs_preload.so";
/// The path of the library, if the library is not where it is installed by default.
const LIBRARY_VAR: &str = "ZRS_PRELOAD_LIB";

/// Options that only the preloaded library can follow.
const RULES: [&str; 8] = [
    "verbose",
    "log",
    "tcp_port",
    "tcp_net",
    "tcp_program",
    "only_port",
    "only_net",
    "only_program",
];

/// Run a program with ZRS sockets in place of its TCP sockets
///
/// The program and its children get their stream sockets from ZRS, except on loopback addresses and where an option
/// keeps TCP. Programs without ZRS are reached, and reach them, by TCP; but with --tcp=never or
/// --tcp=required ZRS alone is used.
///
/// Without the module, the program runs with TCP, after a line on stderr that says so; not with --tcp=never and
/// --tcp=required.
///
/// Exit status: the program's; 127 if there is no such program, 126 if it cannot be run, 125 if ZRS cannot be used.
#[derive(clap::Args)]
pub struct Args {
    /// Say on stderr what each socket becomes, and why
    #[arg(short, long)]
    verbose: bool,
    /// Say it at the end of this file instead
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Use of TCP: servers accept TCP clients like ZRS clients, and clients use TCP where there is no ZRS
    /// ("auto"); none ("never"); servers take their port from TCP, and TCP clients are refused ("required"); TCP
    /// alone ("only")
    #[arg(long, value_name = "MODE", default_value = "auto")]
    tcp: Beside,
    /// Its UDP sockets become datagram sockets of ZRS, with a UDP socket inside: datagrams go by RDMA to those
    /// destinations that get many of them and have ZRS, all others by UDP. Lists of ports and networks are not for them
    #[arg(long, conflicts_with = "cgroup")]
    udp: bool,
    /// Run it in a new control group that the BPF program of `zrs bpf load` acts on: for programs in any
    /// language. Of the rules those of `zrs rules` hold
    #[arg(long, conflicts_with_all = RULES, conflicts_with_all = ["static", "tcp"])]
    cgroup: bool,
    /// Watch its calls of socket() with seccomp: for programs in any language, without any rights. Of the rules those of
    /// `zrs rules` hold, with --tcp=auto
    #[arg(long, conflicts_with_all = RULES)]
    r#static: bool,
    /// Sockets at these ports stay TCP: "22" or "8000-8100"
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    tcp_port: Vec<Ports>,
    /// Sockets at addresses in this network stay TCP: "192.0.2.0/24" or one address
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    tcp_net: Vec<Net>,
    /// Sockets of the program with this name stay TCP, if it is run by the one that is given
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    tcp_program: Vec<String>,
    /// Sockets at all other ports stay TCP
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    only_port: Vec<Ports>,
    /// Sockets at addresses in all other networks stay TCP
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    only_net: Vec<Net>,
    /// Sockets of all other programs stay TCP
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only_program: Vec<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Does not return if the program could be run.
pub fn run(args: &Args) -> ExitCode {
    let (status, why) = match start(args) {
        Ok(status) => return status,
        Err(failure) => failure,
    };
    eprintln!("zrs: {why}");
    ExitCode::from(status)
}

fn start(args: &Args) -> Result<ExitCode, Failure> {
    let program = &args.command[0];
    let mut command = Command::new(program);
    command.args(&args.command[1..]);
    if !is_loaded(args)? {
        let name = program.to_string_lossy();
        eprintln!(
            "zrs: the module zrs is not loaded: {name} runs without ZRS, its sockets are TCP"
        );
    } else if args.cgroup {
        enter_cgroup().map_err(|why| (125, why))?;
    } else if args.r#static {
        return supervise(args, &mut command);
    } else {
        preload(args, &mut command)?;
    }
    Err(failed(&command.exec(), program))
}

/// Whether the module is loaded. It is an error if not where ZRS alone is wanted.
fn is_loaded(args: &Args) -> Result<bool, Failure> {
    let Err(error) = Zrs::open() else {
        return Ok(true);
    };
    use rustix::io::Errno;
    let gone = [Errno::NOENT, Errno::NXIO, Errno::NODEV].map(Errno::raw_os_error);
    match zrs::os_error(&error) {
        Some(errno) if gone.contains(&errno) && uses_tcp(args.tcp) => Ok(false),
        _ => Err((125, error.to_string())),
    }
}

/// Whether the mode lets connections be TCP's.
fn uses_tcp(mode: Beside) -> bool {
    matches!(mode, Beside::Auto | Beside::Only)
}

/// Moves this process to a new control group that the BPF program acts on.
fn enter_cgroup() -> crate::Result<()> {
    let pinned = crate::bpf::opened()?;
    crate::bpf::sweep(&pinned)?;
    let new = Cgroup::own()?.enter_new()?;
    pinned.add(new.id)
}

/// Runs the program with a filter of its calls of socket(), and answers those until the last of its descendants
/// has ended.
fn supervise(args: &Args, command: &mut Command) -> Result<ExitCode, Failure> {
    let ours = |why: String| (125, why);
    if (args.tcp != Beside::Never || args.udp) && !may_have_both() {
        return Err(ours(
            "--static without root gives the program no_new_privs, with which it cannot have TCP or UDP beside ZRS: \
             use --tcp=never and no --udp, or as root: zrs set tcp_no_new_privs=1"
                .into(),
        ));
    }
    let program = &args.command[0];
    // So that errors of the filter and of exec() are told apart.
    find(program).map_err(|e| failed(&e, program))?;
    let signals = Signals::hold().map_err(|e| ours(format!("cannot hold signals: {e}")))?;
    let started = zrs_notify::start(command, args.tcp.number(), args.udp, &signals);
    let (mut child, supervisor) = started.map_err(|e| match e.kind() {
        ErrorKind::ResourceBusy => {
            ours("a program under `zrs run --static` cannot use it again".into())
        }
        _ => failed(&e, program),
    })?;
    let pid = Arc::new(Mutex::new(Some(child.id())));
    let to = pid.clone();
    thread::spawn(move || signals.hand_on(&to));
    let answers = thread::spawn(move || supervisor.run());
    let failed = |e: io::Error| ours(format!("cannot wait for the program: {e}"));
    // Its number belongs to it until it is reaped.
    let ended = WaitId::Pid(Pid::from_child(&child));
    waitid(ended, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).map_err(|e| failed(e.into()))?;
    *pid.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let status = child.wait().map_err(failed)?;
    if let Ok(Err(e)) = answers.join() {
        eprintln!("zrs: the program's calls cannot be answered any more: {e}");
    }
    // As a shell has it.
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    process::exit(code)
}

/// Whether the module lets a program under `--static` have both carriers: it does not get no_new_privs, or the
/// administrator allows that.
fn may_have_both() -> bool {
    let allowed = fs::read_to_string("/proc/sys/net/zrs/tcp_no_new_privs");
    if allowed.is_ok_and(|text| text.trim() == "1") {
        return true;
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(value.trim(), 16).ok()
    };
    let admin = field("CapEff:").is_some_and(|caps| (caps >> CAP_SYS_ADMIN) & 1 != 0);
    admin && field("NoNewPrivs:") == Some(0)
}

const CAP_SYS_ADMIN: u32 = 21;

/// An exit status of `zrs run` itself, and the reason.
type Failure = (u8, String);

/// Has the program load the library, which reads the rules from variables.
fn preload(args: &Args, command: &mut Command) -> Result<(), Failure> {
    let ours = |why: String| (125, why);
    let library = library().map_err(ours)?;
    let program = &args.command[0];
    let path = find(program).map_err(|e| failed(&e, program))?;
    if let Some(why) = no_effect(&path, true) {
        let name = program.to_string_lossy();
        eprintln!(
            "zrs: {name} {why}: it runs without ZRS, its sockets stay TCP (--static and --cgroup are for such programs)"
        );
    }

    let mut preload = library.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    command.env("LD_PRELOAD", preload);
    for variable in zrs_rules::VARIABLES {
        command.env_remove(variable);
    }
    let mut set = |variable: &str, list: String| {
        if !list.is_empty() {
            command.env(variable, list);
        }
    };
    if args.tcp != Beside::Never {
        set(zrs_rules::TCP, args.tcp.name().into());
    }
    if args.udp {
        set(zrs_rules::UDP, "1".into());
    }
    set(zrs_rules::TCP_PORTS, joined(&args.tcp_port));
    set(zrs_rules::TCP_NETS, joined(&args.tcp_net));
    set(zrs_rules::TCP_PROGRAMS, joined(&args.tcp_program));
    set(zrs_rules::ONLY_PORTS, joined(&args.only_port));
    set(zrs_rules::ONLY_NETS, joined(&args.only_net));
    set(zrs_rules::ONLY_PROGRAMS, joined(&args.only_program));
    if let Some(file) = &args.log {
        command.env(zrs_rules::LOG, absolute(file).map_err(ours)?);
    } else if args.verbose {
        command.env(zrs_rules::LOG, "stderr");
    }
    Ok(())
}

/// As a shell has it: 127 if there is no such program, 126 if it cannot be run.
fn failed(error: &io::Error, program: &OsStr) -> Failure {
    let missing = error.kind() == ErrorKind::NotFound;
    let why = format!(
        "cannot run {}: {}",
        program.to_string_lossy(),
        zrs::reason(error)
    );
    (if missing { 127 } else { 126 }, why)
}

/// The log's path, which the program may use from another directory; the file can be written.
fn absolute(file: &Path) -> crate::Result<PathBuf> {
    let opened = File::options().append(true).create(true).open(file);
    opened
        .and_then(|_| fs::canonicalize(file))
        .map_err(|e| format!("cannot write {}: {}", file.display(), zrs::reason(&e)))
}

/// The path of the library: the directory of this command, as in a build tree, or the installed one.
pub fn library() -> crate::Result<PathBuf> {
    let path = if let Some(path) = env::var_os(LIBRARY_VAR) {
        fs::canonicalize(&path).map_err(|e| {
            format!(
                "{LIBRARY_VAR}={}: {}",
                path.to_string_lossy(),
                zrs::reason(&e)
            )
        })?
    } else {
        let here = crate::said(env::current_exe(), || {
            "cannot find this command's file".into()
        })?;
        let dir = here.parent().unwrap_or(Path::new("/"));
        let places = [dir.join(LIBRARY), dir.join("../lib/zrs").join(LIBRARY)];
        let there = places.iter().find_map(|place| fs::canonicalize(place).ok());
        there.ok_or_else(|| {
            let [beside, installed] = places.map(|place| place.display().to_string());
            format!("there is no {beside} and no {installed}: make install, or set {LIBRARY_VAR} to its path")
        })?
    };
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|b| *b == b':' || b.is_ascii_whitespace())
    {
        return Err(format!(
            "LD_PRELOAD cannot have {} in it, for its colon or space: put the library elsewhere and set {LIBRARY_VAR}",
            path.display()
        ));
    }
    Ok(path)
}

/// The program's file, as exec finds it.
fn find(program: &OsStr) -> io::Result<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        fs::metadata(program)?;
        return Ok(program.into());
    }
    let dirs = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut denied = false;
    for dir in env::split_paths(&dirs) {
        let path = dir.join(program);
        match fs::metadata(&path) {
            Ok(file) if file.is_file() && file.permissions().mode() & 0o111 != 0 => {
                return Ok(path)
            }
            Ok(_) => denied = true,
            Err(_) => {}
        }
    }
    let why = if denied {
        rustix::io::Errno::ACCESS
    } else {
        rustix::io::Errno::NOENT
    };
    Err(why.into())
}

/// Why the library is not loaded into this file, if it is not; scripts are what their interpreter is.
fn no_effect(path: &Path, script: bool) -> Option<&'static str> {
    let mut file = File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    let mut head = [0; 256];
    let n = file.read(&mut head).ok()?;
    let head = &head[..n];
    if let Some(line) = head.strip_prefix(b"#!") {
        let mut words = line
            .split(|b| b.is_ascii_whitespace())
            .filter(|word| !word.is_empty());
        let interpreter = Path::new(OsStr::from_bytes(words.next()?));
        return if script {
            no_effect(interpreter, false)
        } else {
            None
        };
    }
    if !head.starts_with(b"\x7fELF") || n < 64 {
        return None;
    }
    if head[4] != 2 || u16_at(head, 18) != ELF_X86_64 {
        return Some("is for another architecture than the library");
    }
    let kind = meta.permissions().mode();
    if kind & 0o6000 != 0 && !rustix::process::geteuid().is_root() {
        return Some("runs with its owner's rights, so that LD_PRELOAD has no effect");
    }
    let (at, size, count) = (u64_at(head, 32), u16_at(head, 54), u16_at(head, 56));
    let mut table = vec![0; usize::from(size) * usize::from(count)];
    file.seek(SeekFrom::Start(at)).ok()?;
    file.read_exact(&mut table).ok()?;
    let mut entries = table.chunks_exact(usize::from(size).max(4));
    let dynamic = entries.any(|entry| entry[..4] == ELF_PT_INTERP.to_le_bytes());
    (!dynamic).then_some("is linked statically, so that LD_PRELOAD has no effect")
}

const ELF_X86_64: u16 = 62;
const ELF_PT_INTERP: u32 = 3;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .rev()
        .fold(0, |n, b| (n << 8) | u64::from(*b))
}
