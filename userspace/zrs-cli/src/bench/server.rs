// SPDX-License-Identifier: GPL-2.0
//! The server: plays the other side of each job, for any number of clients.

use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread;

use zrs_bench::{Carrier, Measure};

use super::control::{boot_id, Answer, Control, Job, Values};
use super::{
    connect, dgram, echo, fair, hold, latency, load, memory, pool, stream, uploads, verbs,
};
use crate::transport::{Listener, Transport};
use crate::{said, Result};

/// Serves until it is ended.
pub fn run(addr: &str) -> Result<()> {
    let listener = said(TcpListener::bind(addr), || {
        format!("cannot listen on {addr}")
    })?;
    let own = said(listener.local_addr(), || {
        "cannot tell the own address".into()
    })?;
    eprintln!("listening on {own}");
    loop {
        let (stream, peer) = said(listener.accept(), || format!("cannot accept on {own}"))?;
        thread::spawn(move || {
            if let Err(reason) = serve(stream) {
                eprintln!("zrs bench: {peer}: {reason}");
            }
        });
    }
}

/// One client, until it goes.
pub fn serve(stream: TcpStream) -> Result<()> {
    let gone = || "the client is gone".to_string();
    let mut control = said(Control::new(stream), gone)?;
    while let Some(job) = said(control.hear::<Job>(), gone)? {
        let answer = match play(&job, &mut control) {
            Ok(values) => Answer::Done(values),
            Err(reason) => Answer::Failed(reason),
        };
        said(control.say(&answer), gone)?;
    }
    Ok(())
}

/// The transport that a carrier's streams use in programs.
pub fn transport(carrier: Carrier) -> Transport {
    match carrier {
        Carrier::Rsockets | Carrier::RsocketsSpin => Transport::Rsockets,
        Carrier::Smc => Transport::Smc,
        zrs if zrs.is_zrs() => Transport::Zrs,
        _ => Transport::Tcp,
    }
}

fn play(job: &Job, control: &mut Control) -> Result<Values> {
    if job.size > super::LARGEST || job.size == 0 && !sizeless(job.measure) {
        return Err(format!("no message of {} bytes is measured", job.size));
    }
    super::enough_descriptors(job)?;
    let ip = said(control.local_ip(), || "cannot tell the own address".into())?;
    if job.carrier.is_verbs() {
        let far = verbs::Far::start(job, ip)?;
        ready(control, far.port)?;
        return far.finish();
    }
    if job.measure.is_of_datagrams() {
        return dgram::far(job, ip, control);
    }
    let listener = listen(job.carrier, ip)?;
    let port = said(listener.local_addr(), || {
        "cannot tell the own address".into()
    })?
    .port();
    ready(control, port)?;
    match job.measure {
        Measure::Connect | Measure::Exchange => connect::far(&listener, job),
        Measure::Memory => memory::far(&listener, job, control),
        Measure::Hold => hold::far(&listener, job, control),
        Measure::Fair => fair::far(&listener, job),
        Measure::Mixed => fair::far_one(&listener, job),
        Measure::EpollEcho => echo::far(&listener, job),
        Measure::Uploads => uploads::far(&listener, job),
        Measure::Pool => pool::far(&listener, job, control),
        Measure::Load | Measure::Rate => load::far(&listener, job),
        Measure::Throughput
        | Measure::BothWays
        | Measure::Nonblocking
        | Measure::Cost
        | Measure::Latency
        | Measure::DgramLatency
        | Measure::DgramRate
        | Measure::DgramFlood => {
            let conn = said(listener.accept(), || "cannot accept".into())?;
            said(conn.set_nodelay(), || "cannot switch delays off".into())?;
            match job.measure {
                Measure::Latency => latency::far(&conn, job),
                _ => stream::far(&conn, job),
            }
        }
    }
}

fn sizeless(measure: Measure) -> bool {
    matches!(measure, Measure::Connect | Measure::Memory)
}

fn listen(carrier: Carrier, ip: IpAddr) -> Result<Listener> {
    transport(carrier).listen(&format!("{ip}:0"))
}

/// Tells the client the port of the job.
pub fn ready(control: &mut Control, port: u16) -> Result<()> {
    let boot = boot_id();
    said(control.say(&Answer::Ready { port, boot }), || {
        "the client is gone".into()
    })
}
