// SPDX-License-Identifier: GPL-2.0
//! A peer in a separate process that stops in some state, to be killed there.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use clap::ValueEnum;
use zrs_core::wire::Type;

use crate::peer::{hello, said, Peer};
use crate::verbs::Endpoint;
use crate::world::World;

/// Where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Pose {
    /// It knows its way and has asked for nothing.
    Asking,
    /// It has asked for a link and does not look at the answer.
    HalfOpen,
    Up,
    Channel,
    Window,
    /// It writes into its window as fast as it can.
    Writing,
    /// It sends data as fast as it can.
    Sending,
    /// It has ended its stream.
    Fin,
}

impl Pose {
    pub fn has_channel(self) -> bool {
        !matches!(self, Self::Asking | Self::HalfOpen | Self::Up)
    }

    /// The errors that the program at the other end gets.
    pub fn errno(self) -> &'static [i32] {
        if self == Self::Fin {
            &[0, libc::ECONNRESET]
        } else {
            &[libc::ECONNRESET]
        }
    }
}

/// Starts a process that stands there.
pub fn start(w: &mut World, pose: Pose, port: u16) -> io::Result<Child> {
    let name = pose.to_possible_value().expect("all have names");
    let mut child = Command::new(std::env::current_exe()?)
        .args([
            "--local",
            &w.local.to_string(),
            "--victim",
            &w.victim.to_string(),
        ])
        .args([
            "--scale",
            &w.scale.to_string(),
            "--source",
            &w.source().port().to_string(),
        ])
        .args(["--pose", name.get_name(), "--port", &port.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let stdout = child.stdout.take().ok_or_else(|| said("no stdout"))?;
    BufReader::new(stdout).read_line(&mut line)?;
    if line.trim() != "posed" {
        child.kill()?;
        child.wait()?;
        return Err(said(&format!(
            "the other process does not get there: {line}"
        )));
    }
    Ok(child)
}

fn posed() -> ! {
    println!("posed");
    loop {
        sleep(Duration::from_secs(100));
    }
}

/// Gets there and stays.
pub fn stand(w: &mut World, pose: Pose, port: u16) -> io::Result<()> {
    let limit = w.limit(10);
    if pose == Pose::Asking {
        let _ep = Endpoint::resolve(w.source(), w.service())?;
        posed();
    }
    if pose == Pose::HalfOpen {
        let _ep = Peer::ask(w.source(), w.service(), &hello().encode(), 0)?;
        posed();
    }
    let mut peer = w.link()?;
    if pose == Pose::Up {
        posed();
    }
    let mut chan = peer.open(port, limit)?;
    if matches!(pose, Pose::Window | Pose::Writing) {
        peer.get_window(&mut chan, limit)?;
    }
    if pose == Pose::Fin {
        peer.send(chan.header(Type::Fin), &[])?;
    }
    let bytes = vec![b'k'; 60_000];
    if pose == Pose::Writing {
        let window = chan.window.expect("a window");
        println!("posed");
        loop {
            peer.post(crate::verbs::Op::Write, &bytes, window.addr, window.key)?;
        }
    }
    if pose == Pose::Sending {
        println!("posed");
        loop {
            peer.data(&mut chan, &bytes[..4096])?;
        }
    }
    posed();
}
