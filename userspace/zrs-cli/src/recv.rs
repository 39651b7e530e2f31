// SPDX-License-Identifier: GPL-2.0
//! `zrs recv`.

use std::io::Read;
use std::path::PathBuf;

use zrs::{PageBuf, View};

use crate::report::{self, Report};
use crate::sink::Sink;
use crate::transport::{Conn, Transport};
use crate::{said, Result};

/// Receive a file from `zrs send`
///
/// Accepts one connection and receives until its end. With ZRS the bytes are taken where the RDMA
/// device put them (the receive ring) and written to the file from there; --copy receives by plain
/// recv() instead.
///
/// The timed part goes from the first byte to the end of the stream, without the time spent in
/// writing to the file, although the transfer may go on then; the hash is made afterwards, from the
/// file. wall_seconds (--json) has the writing in it. With --discard nothing is written or hashed,
/// every cache line of the data is touched, and all of it is timed.
#[derive(clap::Args)]
pub struct Args {
    /// Where to listen; port 0 chooses one. When ready, "listening on ADDR:PORT" is on stderr
    #[arg(long, value_name = "ADDR:PORT")]
    listen: String,
    /// The file to write; - is stdout
    #[arg(long, value_name = "PATH", required_unless_present = "discard")]
    output: Option<PathBuf>,
    /// Receive without storing: measures throughput alone
    #[arg(long, conflicts_with = "output")]
    discard: bool,
    /// Print one JSON object as the last line on stdout (on stderr when the file goes to stdout)
    #[arg(long)]
    json: bool,
    /// The transport of the bytes
    #[arg(long, value_enum, default_value = "zrs")]
    transport: Transport,
    /// With ZRS: copy by plain recv() instead of reading the ring
    #[arg(long)]
    copy: bool,
}

/// The buffer of plain recv().
const BUFFER: usize = 1 << 20;

pub fn run(args: &Args) -> Result<()> {
    let mut sink = Sink::new(args.output.as_deref())?;
    let listener = args.transport.listen(&args.listen)?;
    let addr = said(listener.local_addr(), || {
        "cannot tell the own address".into()
    })?;
    eprintln!("listening on {addr}");
    let mut conn = said(listener.accept(), || format!("cannot accept on {addr}"))?;
    drop(listener);

    match &conn {
        Conn::Zrs(stream) if !args.copy => by_ring(stream, &mut sink)?,
        _ => by_recv(&mut conn, &mut sink)?,
    }
    let (timed, wall) = sink.elapsed();
    let info = said(conn.info(), || "cannot read the socket's counters".into())?;
    // The sender's clock runs until it sees our end, so hash only then. One that is gone already
    // does not matter: everything is here.
    let _ = conn.shutdown_write();
    drop(conn);

    let report = Report {
        bytes: sink.bytes(),
        timed,
        wall,
        hash: sink.finish()?,
        copied: info.map(|i| i.rx_copied),
    };
    let to_stderr = args
        .output
        .as_deref()
        .is_some_and(|path| path.as_os_str() == "-");
    let text = match args.json {
        true => format!("{}\n", report.json("rx_copied")),
        false => report.text("received"),
    };
    match to_stderr {
        true => eprint!("{text}"),
        false => report::out(&text),
    }
    Ok(())
}

fn by_ring(stream: &zrs::Stream, sink: &mut Sink) -> Result<()> {
    let hint = "; --copy receives without a ring";
    let ring = stream.rx_ring().map_err(|e| format!("{e}{hint}"))?;
    loop {
        match ring.recv().map_err(|e| broken(sink, &e))? {
            Some(segment) => sink.take(segment.view())?,
            None => return Ok(()),
        }
    }
}

fn by_recv(conn: &mut Conn, sink: &mut Sink) -> Result<()> {
    let mut buf = said(PageBuf::new(BUFFER), || "no memory".into())?;
    loop {
        match conn.read(&mut buf) {
            Ok(0) => return Ok(()),
            Ok(len) => sink.take(View::from(&buf[..len]))?,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(broken(sink, &e)),
        }
    }
}

fn broken(sink: &Sink, error: &std::io::Error) -> String {
    format!(
        "the transfer broke off after {} bytes: {}",
        sink.bytes(),
        zrs::reason(error)
    )
}
