// SPDX-License-Identifier: GPL-2.0
//! Which processes have a socket open: those in whose `/proc/PID/fd` its inode is, as `ss` finds them.
//! An unprivileged user sees its own processes.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::{json, Value};

/// A descriptor of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct User {
    pub pid: u32,
    pub fd: u32,
    /// Of the process, as `/proc/PID/comm` has it.
    pub name: String,
}

/// The users of all sockets, by inode.
#[derive(Default)]
pub struct Users(HashMap<u64, Vec<User>>);

impl Users {
    /// Reads `proc`, which is `/proc`. Skips entries that cannot be read, and processes that exit.
    pub fn read(proc: &Path) -> Self {
        let mut all: HashMap<u64, Vec<User>> = HashMap::new();
        for (pid, process) in numbered(proc) {
            let mut name = None;
            for (fd, link) in numbered(&process.join("fd")) {
                let target = fs::read_link(link).ok();
                let Some(inode) = target.and_then(|t| socket_inode(t.to_str()?)) else {
                    continue;
                };
                let name = name.get_or_insert_with(|| name_of(&process)).clone();
                all.entry(inode).or_default().push(User { pid, fd, name });
            }
        }
        for users in all.values_mut() {
            users.sort();
        }
        Self(all)
    }

    /// Those of one socket, in the order of their numbers. A socket that no program has has inode 0.
    pub fn of(&self, inode: u64) -> &[User] {
        self.0.get(&inode).map_or(&[], Vec::as_slice)
    }
}

/// The entries of a directory that are numbers.
fn numbered(dir: &Path) -> Vec<(u32, std::path::PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path())))
        .collect()
}

/// The inode in `socket:[INODE]`.
fn socket_inode(target: &str) -> Option<u64> {
    let inode = target.strip_prefix("socket:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

fn name_of(process: &Path) -> String {
    let name = fs::read(process.join("comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_string()
}

/// As `ss` prints them: `users:(("name",pid=1,fd=2),...)`; nothing if there are none.
pub fn text(users: &[User]) -> String {
    if users.is_empty() {
        return String::new();
    }
    let each = users
        .iter()
        .map(|u| format!("(\"{}\",pid={},fd={})", printable(&u.name), u.pid, u.fd));
    format!("users:({})", each.collect::<Vec<_>>().join(","))
}

/// The same as JSON.
pub fn json(users: &[User]) -> Value {
    let each = users.iter();
    each.map(|u| json!({"name": u.name, "pid": u.pid, "fd": u.fd}))
        .collect()
}

/// A process may call itself anything: what would end the line, or talk to the terminal, is a question mark.
fn printable(name: &str) -> String {
    let harmless = |c: char| !c.is_control() && c != '"';
    let shown = name.chars().map(|c| if harmless(c) { c } else { '?' });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// A `/proc` with two processes that share a socket; one of them has another one as well.
    fn proc() -> PathBuf {
        let root = std::env::temp_dir().join(format!("zrs-procs-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for (pid, name, links) in [
            (
                12,
                "redis-server\n",
                &[(6, "socket:[77]"), (0, "/dev/null")][..],
            ),
            (
                9,
                "a b\n",
                &[(4, "socket:[77]"), (3, "socket:[78]"), (5, "pipe:[78]")],
            ),
        ] {
            let process = root.join(pid.to_string());
            fs::create_dir_all(process.join("fd")).unwrap();
            fs::write(process.join("comm"), name).unwrap();
            for (fd, target) in links {
                symlink(target, process.join("fd").join(fd.to_string())).unwrap();
            }
        }
        // Skipped: a process without `fd`, and a directory whose name is not a number.
        fs::create_dir_all(root.join("13")).unwrap();
        fs::create_dir_all(root.join("self/fd")).unwrap();
        symlink("socket:[78]", root.join("self/fd/1")).unwrap();
        root
    }

    #[test]
    fn names_say_nothing_else() {
        let user = User {
            name: "a\nb\u{1b}[2J\"".into(),
            pid: 1,
            fd: 2,
        };
        assert_eq!(text(&[user]), "users:((\"a?b?[2J?\",pid=1,fd=2))");
    }

    #[test]
    fn users_by_inode() {
        let root = proc();
        let users = Users::read(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            text(users.of(77)),
            r#"users:(("a b",pid=9,fd=4),("redis-server",pid=12,fd=6))"#
        );
        assert_eq!(text(users.of(78)), r#"users:(("a b",pid=9,fd=3))"#);
        assert_eq!(text(users.of(0)), "");
    }

    #[test]
    fn our_own_socket_is_ours() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let target = fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        let inode = socket_inode(target.to_str().unwrap()).unwrap();
        let users = Users::read(Path::new("/proc"));
        assert!(users
            .of(inode)
            .iter()
            .any(|u| u.pid == std::process::id() && u.fd == fd as u32));
    }

    #[test]
    fn only_sockets_have_an_inode_here() {
        assert_eq!(socket_inode("socket:[0]"), Some(0));
        for other in [
            "",
            "socket:[]",
            "socket:[x]",
            "socket:[1",
            "pipe:[1]",
            "anon_inode:[1]",
        ] {
            assert_eq!(socket_inode(other), None, "{other}");
        }
    }
}
