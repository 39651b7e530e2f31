// SPDX-License-Identifier: GPL-2.0
//! `zrs key`: which hosts have to prove that they have a key.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use zrs::Zrs;
use zrs_rules::keys::{parse_all, Entry, Name, BYTES_MIN, KEYS_OF_NET, PATH, SECRETS};
use zrs_rules::Net;

use crate::report::out;
use crate::show::open;
use crate::{said, Result};

/// Show or change which hosts have to prove that they have a key
///
/// A host of a network that has keys has no link with this network namespace, in either direction, before both hosts
/// have proved that they have one of them. The longest network that has a host's address decides. The other host needs
/// the key for this host, too. To replace a key, add the new key on all hosts, then remove the old key on all hosts: no
/// connection ends. Memory nodes have no links with these hosts. Changes need
/// CAP_NET_ADMIN.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print the keys' networks and names, as a file has them
    List {
        /// Print what became of the links that need a proof as well
        #[arg(long)]
        counts: bool,
    },
    /// The hosts of a network have to prove that they have a key
    Add {
        /// A network or an address
        net: String,
        /// The key's name
        name: String,
        /// Take the secret from a file, all bytes of it ("-": the standard input), and put it into the kernel's
        /// keyrings; else it is there already: a key of the type "logon" and the description zrs:NAME
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// Remove a key of a network, or all of it
    Remove {
        /// The network
        net: String,
        /// The key's name
        name: Option<String>,
    },
    /// Add the keys of a file, with the secrets of /etc/zrs/keys.d
    Load {
        #[arg(default_value = PATH)]
        file: PathBuf,
    },
}

pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        None => list(false),
        Some(Command::List { counts }) => list(*counts),
        Some(Command::Add { net, name, file }) => {
            let (net, name) = (network(net)?, name.parse()?);
            if let Some(file) = file {
                add_secret(&name, &secret(file)?)?;
            }
            let zrs = open()?;
            put(&zrs, &Entry { net, name })
        }
        Some(Command::Remove { net, name }) => {
            let net = network(net)?;
            let name = name.as_deref().map(str::parse::<Name>).transpose()?;
            let zrs = open()?;
            match zrs.remove_key(net, name.as_ref()) {
                Err(e) if is(&e, Errno::NOENT) => {
                    Err(format!("{net} has no such key: zrs key list shows them"))
                }
                done => changed(&zrs, done),
            }
        }
        Some(Command::Load { file }) => {
            let text = said(fs::read_to_string(file), || {
                format!("cannot read {}", file.display())
            })?;
            let entries = parse_all(&text).map_err(|why| format!("{}: {why}", file.display()))?;
            let zrs = open()?;
            for entry in &entries {
                let file = Path::new(SECRETS).join(entry.name.as_str());
                if file.exists() {
                    add_secret(&entry.name, &secret(&file)?)?;
                }
                put(&zrs, entry)?;
            }
            Ok(())
        }
    }
}

/// The network of a word, without the bits behind its length.
fn network(word: &str) -> Result<Net> {
    let net: Net = word.parse()?;
    Ok(net.whole())
}

/// The list, as a file of `load` has it.
pub fn listed() -> Result<Vec<String>> {
    let keys = said(open()?.keys(), || "cannot list the keys".into())?;
    let line = |key: &zrs::keys::Listed| match key.unusable {
        None => format!("{}\n", key.entry),
        Some(errno) => format!("{} # {}\n", key.entry, why_unusable(errno)),
    };
    Ok(keys.iter().map(line).collect())
}

fn list(counts: bool) -> Result<()> {
    let mut lines = listed()?;
    if counts {
        let zrs = open()?;
        let n = said(zrs.proofs(), || "cannot count".into())?;
        lines.push(format!(
            "# links since loading, of all network namespaces: proved {}, no key there {}, no key here {}, another key {}, \
             key unusable {}, silent {}, ended by peers {}\n",
            n.proved, n.unoffered, n.keyless, n.wrong, n.unusable, n.silent, n.refused_there
        ));
    }
    out(&lines.concat());
    Ok(())
}

fn why_unusable(errno: i32) -> &'static str {
    match errno {
        e if e == Errno::KEYREVOKED.raw_os_error() => "revoked: no links",
        e if e == Errno::KEYEXPIRED.raw_os_error() => "expired: no links",
        _ => "not usable: no links",
    }
}

/// The bytes of a file that only its owner may read.
fn secret(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        io::stdin().read_to_end(&mut bytes).map(drop)
    } else {
        File::open(file).and_then(|mut opened| {
            if opened.metadata()?.mode() & 0o077 != 0 {
                return Err(io::Error::other("others may read it: chmod 600 it"));
            }
            opened.read_to_end(&mut bytes).map(drop)
        })
    };
    said(read, || {
        format!("cannot take the secret of {}", file.display())
    })?;
    match bytes.len() >= BYTES_MIN {
        true => Ok(bytes),
        false => Err(format!(
            "{} has {} bytes, and a secret has {BYTES_MIN} at least: head -c 32 /dev/urandom makes one",
            file.display(),
            bytes.len()
        )),
    }
}

fn add_secret(name: &Name, secret: &[u8]) -> Result<()> {
    zrs::keys::add_secret(name, secret).map_err(|e| match is(&e, Errno::NOSYS) {
        true => "this kernel has no keyrings (CONFIG_KEYS)".into(),
        false => format!(
            "cannot put {name} into the kernel's keyrings: {}",
            zrs::reason(&e)
        ),
    })
}

fn put(zrs: &Zrs, entry: &Entry) -> Result<()> {
    let Err(e) = zrs.put_key(entry) else {
        return Ok(());
    };
    let Entry { net, name } = entry;
    Err(if is(&e, Errno::NOKEY) {
        format!("there is no key zrs:{name} in the keyrings of this session: zrs key add {net} {name} --file FILE")
    } else if is(&e, Errno::KEYREVOKED) || is(&e, Errno::KEYEXPIRED) {
        format!("the key zrs:{name} in the keyrings was revoked or has expired: zrs key add {net} {name} --file FILE")
    } else if is(&e, Errno::RANGE) {
        format!("the key zrs:{name} in the keyrings has less than {BYTES_MIN} bytes")
    } else if is(&e, Errno::MLINK) {
        format!("{net} has {KEYS_OF_NET} keys already: zrs key remove {net} NAME")
    } else if is(&e, Errno::NOSPC) {
        "there are too many keys: give them to larger networks".into()
    } else {
        return changed(zrs, Err(e));
    })
}

fn is(e: &io::Error, errno: Errno) -> bool {
    zrs::os_error(e) == Some(errno.raw_os_error())
}

fn changed(zrs: &Zrs, done: io::Result<()>) -> Result<()> {
    let Err(e) = done else { return Ok(()) };
    let lacks = |version: zrs::Version| version.missing().any(|name| name == "keys");
    Err(if is(&e, Errno::PERM) {
        "only an administrator of the network namespace changes its keys (CAP_NET_ADMIN)".into()
    } else if is(&e, Errno::OPNOTSUPP) {
        "this kernel has no keyrings (CONFIG_KEYS)".into()
    } else if zrs.version().is_ok_and(lacks) {
        "the module is older than this command, and has no keys".into()
    } else {
        format!("cannot change the keys: {}", zrs::reason(&e))
    })
}
