// SPDX-License-Identifier: GPL-2.0
//! A host of the protocol in userspace. It speaks correctly as long as a case does not tell it
//! otherwise; nothing that it sends is checked.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddrV4;
use std::thread::sleep;
use std::time::{Duration, Instant};

use zrs_core::dgram::wire::{DgramHeader, Message};
use zrs_core::proof::padded;
use zrs_core::wire::{Credit, Header, Hello, Type, Versions, HEADER_LEN, HELLO_MOST, SMALL_MAX};
use zrs_core::ChanId;

use crate::verbs::{self, Endpoint, Event, Op};

/// The link credit that we give the module at first, and never less.
pub const CREDIT: u32 = 64;
const RECVS: usize = 192;
/// Credit that [`Peer::stop_receiving`] leaves.
const SPARE: u32 = 8;
const SENDS: usize = 160;
const SLOT: usize = HEADER_LEN + SMALL_MAX as usize;
const SEND_AT: usize = RECVS * SLOT;
/// Where in our memory a window for the module begins, and its size.
pub const WINDOW_AT: usize = 2 << 20;
pub const WINDOW: usize = 1 << 19;
const MEMORY: usize = WINDOW_AT + WINDOW;

/// A hello that nothing is wrong with.
pub fn hello() -> Hello {
    Hello {
        versions: Versions::OURS,
        nonce: 0x6c69_7473_6f68,
        features: 0,
        link_credit: CREDIT,
        links: 1,
    }
}

/// The hello of a host that speaks these versions, and has all features but
/// the proof of a key.
pub fn speaks(lowest: u8, highest: u8) -> Hello {
    Hello {
        versions: Versions { lowest, highest },
        features: !zrs_core::proof::FEATURE,
        ..hello()
    }
}

/// A channel, as we see it.
#[derive(Clone, Debug)]
pub struct Chan {
    /// Our number.
    pub local: ChanId,
    /// The module's.
    pub remote: ChanId,
    pub tx_pos: u64,
    pub freed: Credit,
    /// The module's window: its lease, address, key, size, and the bytes written into it.
    pub window: Option<Window>,
}

/// A window of the module's.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub lease: u32,
    pub addr: u64,
    pub key: u32,
    pub size: u32,
    pub written: u64,
}

impl Chan {
    /// A message to the module's end of the channel.
    pub fn header(&self, kind: Type) -> Header {
        let mut h = Header::new(kind, self.remote, self.local);
        h.pos = self.tx_pos;
        h.credit = self.freed;
        h
    }
}

/// A link to the module.
pub struct Peer {
    pub ep: Endpoint,
    /// Our hello and the module's, as they were sent.
    pub hellos: [[u8; HELLO_MOST]; 2],
    /// Whether a receive is posted again for each message.
    pub reposts: bool,
    /// Receives that are posted.
    receives: usize,
    /// Whether the module hears of it when it has nothing else to hear.
    pub gives_credit: bool,
    told: u32,
    sent: u32,
    allowed: u32,
    arrived: u32,
    pending: usize,
    next_slot: usize,
    next_q: u32,
    inbox: VecDeque<(Header, Vec<u8>)>,
    /// Messages for datagrams that have arrived.
    pub dgrams: VecDeque<DgramHeader>,
    /// Why the link is no more, as we have noticed it.
    closed: Option<String>,
}

/// Room for everything that a link needs, and receives for the module's messages.
fn prepare(ep: &mut Endpoint, recvs: usize) -> io::Result<()> {
    ep.make_queues(MEMORY, 512)?;
    for slot in 0..recvs {
        ep.post_recv(slot as u64, slot * SLOT, SLOT)?;
    }
    Ok(())
}

impl Peer {
    fn new(ep: Endpoint, ours: &[u8], theirs: &[u8], receives: usize) -> io::Result<Self> {
        let hello = Hello::decode(theirs).map_err(|e| said(&format!("a hello with {e:?}")))?;
        Ok(Self {
            ep,
            hellos: [padded(ours), padded(theirs)],
            reposts: true,
            receives,
            gives_credit: true,
            told: CREDIT,
            sent: 0,
            allowed: hello.link_credit,
            arrived: 0,
            pending: 0,
            next_slot: 0,
            next_q: 1,
            inbox: VecDeque::new(),
            dgrams: VecDeque::new(),
            closed: None,
        })
    }

    /// A connection that has been asked for with this private data; what comes of it is not known.
    pub fn ask(
        from: SocketAddrV4,
        to: SocketAddrV4,
        data: &[u8],
        recvs: usize,
    ) -> io::Result<Endpoint> {
        let mut ep = Endpoint::resolve(from, to)?;
        prepare(&mut ep, recvs)?;
        ep.connect(data)?;
        Ok(ep)
    }

    /// A link, with our terms; ConnectionRefused if it is refused.
    pub fn connect(
        from: SocketAddrV4,
        to: SocketAddrV4,
        hello: Hello,
        recvs: bool,
        limit: Duration,
    ) -> io::Result<Self> {
        let recvs = if recvs { RECVS } else { 0 };
        let ep = Self::ask(from, to, &hello.encode(), recvs)?;
        match ep.event(limit)? {
            Some(event) if event.kind == verbs::ESTABLISHED => {
                Self::new(ep, &hello.encode(), event.data(), recvs)
            }
            Some(event) if event.kind == verbs::REJECTED => {
                Err(ErrorKind::ConnectionRefused.into())
            }
            Some(Event { kind, status, .. }) => {
                Err(said(&format!("event {kind}, status {status}")))
            }
            None => Err(ErrorKind::TimedOut.into()),
        }
    }

    /// A link that the module makes. `data` is what we say of ourselves.
    pub fn accept(
        mut ep: Endpoint,
        theirs: &[u8],
        data: &[u8],
        recvs: bool,
        limit: Duration,
    ) -> io::Result<Self> {
        let recvs = if recvs { RECVS } else { 0 };
        prepare(&mut ep, recvs)?;
        ep.accept(data)?;
        let mut peer = Self::new(ep, data, theirs, recvs)?;
        match peer.ep.event(limit)? {
            Some(event) if event.kind == verbs::ESTABLISHED => {}
            Some(event) => peer.closed = Some(format!("event {}", event.kind)),
            None => return Err(ErrorKind::TimedOut.into()),
        }
        Ok(peer)
    }

    /// SENDs that the module still allows.
    pub fn credit_left(&self) -> u32 {
        self.allowed.wrapping_sub(self.sent)
    }

    /// The link credit that we give with each message.
    pub fn credit_told(&self) -> u32 {
        CREDIT.wrapping_add(self.arrived)
    }

    /// Processes completions and events of the connection manager.
    pub fn pump(&mut self) -> io::Result<()> {
        while let Some(wc) = self.ep.poll()? {
            if wc.status != 0 {
                if wc.status != FLUSHED || self.closed.is_none() {
                    let what = if wc.is_receive { "receive" } else { "request" };
                    self.closed = Some(format!("a {what} failed with status {}", wc.status));
                }
                self.pending -= usize::from(wc.wr_id & SENT != 0);
                continue;
            }
            if wc.wr_id & SENT != 0 {
                self.pending -= 1;
                continue;
            }
            self.receives -= 1;
            let slot = wc.wr_id as usize;
            let bytes = self.ep.get(slot * SLOT, wc.len);
            let (head, payload) = bytes
                .split_first_chunk::<HEADER_LEN>()
                .ok_or_else(|| said(&format!("a message of {} bytes from the module", wc.len)))?;
            let len = payload.len() as u32;
            let message = match head[1] {
                32..48 => DgramHeader::decode(head, len).map(Message::Dgram),
                _ => Header::decode(head, len).map(Message::Stream),
            }
            .map_err(|e| said(&format!("a message with {e:?} from the module")))?;
            self.arrived = self.arrived.wrapping_add(1);
            self.allowed = message.link_credit();
            match message {
                Message::Dgram(h) => self.dgrams.push_back(h),
                Message::Stream(h)
                    if matches!(h.kind, Type::LinkCredit | Type::Credit | Type::Heartbeat) => {}
                Message::Stream(h) => self.inbox.push_back((h, payload.to_vec())),
            }
            if self.reposts {
                self.ep.post_recv(wc.wr_id, slot * SLOT, SLOT)?;
                self.receives += 1;
            }
        }
        while let Some(event) = self.ep.event(Duration::ZERO)? {
            if event.kind == verbs::DISCONNECTED {
                self.closed = Some("disconnected".into());
            }
        }
        let due = self.credit_told().wrapping_sub(self.told) >= CREDIT / 4;
        if due
            && self.gives_credit
            && self.closed.is_none()
            && self.pending < SENDS
            && self.credit_left() > 0
        {
            let mut h = Header::new(Type::LinkCredit, ChanId::default(), ChanId::default());
            h.link_credit = self.credit_told();
            self.told = h.link_credit;
            self.post_now(Op::Send, &h.encode(), 0, 0)?;
        }
        Ok(())
    }

    /// Waits until `done` returns a result.
    pub fn wait<T>(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> io::Result<T> {
        let end = Instant::now() + limit;
        loop {
            self.pump()?;
            if let Some(found) = done(self) {
                return Ok(found);
            }
            if Instant::now() > end {
                return Err(ErrorKind::TimedOut.into());
            }
            sleep(Duration::from_millis(1));
        }
    }

    /// Why the link is closed, if it is within the time.
    pub fn closed(&mut self, limit: Duration) -> Option<String> {
        self.wait(limit, |p| p.closed.clone()).ok()
    }

    /// Whether the link is closed, as far as is known now.
    pub fn is_closed(&mut self) -> bool {
        self.pump().is_err() || self.closed.is_some()
    }

    /// The next message, credit and heartbeats apart.
    pub fn recv(&mut self, limit: Duration) -> io::Result<(Header, Vec<u8>)> {
        let got = self.wait(limit, |p| match p.inbox.pop_front() {
            Some(message) => Some(Ok(message)),
            None => p.closed.clone().map(Err),
        })?;
        got.map_err(|why| said(&format!("the link is closed: {why}")))
    }

    /// The next message, which must be of this type.
    pub fn expect(&mut self, kind: Type, limit: Duration) -> io::Result<(Header, Vec<u8>)> {
        let (h, payload) = self.recv(limit)?;
        if h.kind != kind {
            return Err(said(&format!("{:?} where {kind:?} was expected", h.kind)));
        }
        Ok((h, payload))
    }

    /// Whether a received message is pending.
    pub fn has_message(&mut self) -> io::Result<bool> {
        self.pump()?;
        Ok(!self.inbox.is_empty())
    }

    /// Posts a request with these bytes. Takes no notice of credit.
    pub fn post(&mut self, op: Op, bytes: &[u8], raddr: u64, rkey: u32) -> io::Result<()> {
        self.wait(Duration::from_secs(20), |p| {
            (p.pending < SENDS || p.closed.is_some()).then_some(())
        })?;
        self.post_now(op, bytes, raddr, rkey)
    }

    fn post_now(&mut self, op: Op, bytes: &[u8], raddr: u64, rkey: u32) -> io::Result<()> {
        let offset = if bytes.len() <= SLOT {
            self.next_slot = (self.next_slot + 1) % SENDS;
            SEND_AT + self.next_slot * SLOT
        } else {
            WINDOW_AT
        };
        self.ep.send_bytes(SENT, op, offset, bytes, (raddr, rkey))?;
        self.pending += 1;
        if matches!(op, Op::Send | Op::SendImm | Op::SendInv | Op::WriteImm) {
            self.sent = self.sent.wrapping_add(1);
        }
        Ok(())
    }

    /// Sends a message, with our link credit in it, when the module allows.
    pub fn send(&mut self, h: impl Into<Message>, payload: &[u8]) -> io::Result<()> {
        // With room for it as well, so that no later credit can overtake it.
        self.wait(Duration::from_secs(20), |p| {
            let room = p.credit_left() > 1 && p.pending < SENDS;
            (room || p.closed.is_some()).then_some(())
        })?;
        self.told = self.credit_told();
        let h = h.into().with_credit(self.told);
        if self.closed.is_some() {
            return self.send_as_is(&h.encode(), payload);
        }
        self.post_now(Op::Send, &[&h.encode()[..], payload].concat(), 0, 0)
    }

    /// Sends the first half of a message. The queue pair breaks before the rest.
    pub fn send_half(&mut self) -> io::Result<()> {
        self.ep.post_cut(SENT, SEND_AT, 2048)?;
        self.pending += 1;
        Ok(())
    }

    /// Sends these bytes.
    pub fn send_as_is(&mut self, header: &[u8], payload: &[u8]) -> io::Result<()> {
        let bytes = [header, payload].concat();
        self.post(Op::Send, &bytes, 0, 0)
    }

    /// A CONNECT, as the next channel of ours says it.
    pub fn connect_header(&mut self, port: u16) -> Header {
        let local = ChanId {
            index: self.next_q,
            gen: 7,
        };
        self.next_q += 1;
        let mut h = Header::new(Type::Connect, ChanId::default(), local);
        h.arg0 = (u32::from(port) << 16) | 40_000;
        h.arg1 = 64;
        h.arg2 = 65_536;
        h
    }

    /// Opens a channel to a port that is listened on.
    pub fn open(&mut self, port: u16, limit: Duration) -> io::Result<Chan> {
        let h = self.connect_header(port);
        self.send(h, &[])?;
        let end = Instant::now() + limit;
        loop {
            // Messages of former channels are ignored.
            let (answer, _) = self.recv(end.saturating_duration_since(Instant::now()))?;
            match answer.kind {
                Type::Accept if answer.dst == h.src => return Ok(Chan::new(h.src, answer.src)),
                kind if answer.dst == h.src => return Err(said(&format!("{kind:?} to a CONNECT"))),
                _ => {}
            }
        }
    }

    /// Takes the module's CONNECT; our answer is still to be sent.
    pub fn take_connect(&mut self, limit: Duration) -> io::Result<Chan> {
        let (h, _) = self.expect(Type::Connect, limit)?;
        let local = ChanId {
            index: self.next_q,
            gen: 7,
        };
        self.next_q += 1;
        Ok(Chan::new(local, h.src))
    }

    /// Accepts the module's channel.
    pub fn say_accept(&mut self, chan: &Chan) -> io::Result<()> {
        self.send(accept_header(chan), &[])
    }

    /// Asks for a window and gets it.
    pub fn get_window(&mut self, chan: &mut Chan, limit: Duration) -> io::Result<Window> {
        self.send(chan.header(Type::WindowRequest), &[])?;
        let (h, _) = self.expect(Type::WindowGrant, limit)?;
        if h.arg1 == 0 {
            return Err(said("no window was granted"));
        }
        let window = Window {
            lease: h.lease,
            addr: h.arg2,
            key: h.arg0,
            size: h.arg1,
            written: 0,
        };
        chan.window = Some(window);
        Ok(window)
    }

    /// The next bytes of the stream, by Data.
    pub fn data(&mut self, chan: &mut Chan, bytes: &[u8]) -> io::Result<()> {
        let mut h = chan.header(Type::Data);
        h.len = bytes.len() as u32;
        chan.tx_pos += bytes.len() as u64;
        self.send(h, bytes)
    }

    /// The header of a Written of `len` bytes that comes next.
    pub fn written_header(chan: &Chan, len: u32) -> Header {
        let mut h = chan.header(Type::Written);
        let window = chan.window.expect("a window");
        h.len = len;
        h.woff = window.written;
        h.arg0 = window.lease;
        h
    }

    /// The next bytes of the stream, by WRITE and Written. Not beyond the window's end.
    pub fn write(&mut self, chan: &mut Chan, bytes: &[u8]) -> io::Result<()> {
        let h = Self::written_header(chan, bytes.len() as u32);
        let window = chan.window.as_mut().expect("a window");
        let to = window.addr + window.written % u64::from(window.size);
        window.written += bytes.len() as u64;
        chan.tx_pos += bytes.len() as u64;
        let key = window.key;
        self.post(Op::Write, bytes, to, key)?;
        self.send(h, &[])
    }

    /// Sends a message for a channel that is not there, which earns a Reset: for whom, and from
    /// whom.
    fn ask_nobody(&mut self) -> io::Result<(ChanId, ChanId)> {
        let nobody = ChanId {
            index: u32::MAX,
            gen: 1,
        };
        let me = ChanId {
            index: self.next_q,
            gen: 99,
        };
        self.next_q += 1;
        self.send(Header::new(Type::WindowRequest, nobody, me), &[])?;
        Ok((me, nobody))
    }

    /// Posts no receive any more, and has the module use up those that there are. Its next
    /// messages, as many as our credit causes, are on their way then, and all behind them wait.
    pub fn stop_receiving(&mut self, limit: Duration) -> io::Result<()> {
        self.reposts = false;
        while self.receives > 0 {
            let left = self.receives;
            self.ask_nobody()?;
            self.wait(limit, |p| (p.receives < left).then_some(()))?;
        }
        while self.credit_left() > SPARE {
            self.ask_nobody()?;
        }
        Ok(())
    }

    /// Receives one message more, if there is no receive.
    pub fn receive_one(&mut self) -> io::Result<()> {
        if self.receives == 0 {
            self.ep.post_recv(0, 0, SLOT)?;
            self.receives += 1;
        }
        Ok(())
    }

    /// Whether the link still answers.
    pub fn alive(&mut self, limit: Duration) -> io::Result<()> {
        let (me, nobody) = self.ask_nobody()?;
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let (h, _) = self.recv(left)?;
            if h.kind == Type::Reset && h.dst == me && h.src == nobody {
                return Ok(());
            }
        }
    }
}

impl Chan {
    /// A channel that is open.
    pub fn new(local: ChanId, remote: ChanId) -> Self {
        Self {
            local,
            remote,
            tx_pos: 0,
            freed: Credit::default(),
            window: None,
        }
    }
}

/// An Accept for the module's channel.
pub fn accept_header(chan: &Chan) -> Header {
    let mut h = chan.header(Type::Accept);
    h.arg1 = 64;
    h.arg2 = 65_536;
    h
}

/// A grant of our window to the module.
pub fn grant_header(peer: &Peer, chan: &Chan, lease: u32) -> Header {
    let mut h = chan.header(Type::WindowGrant);
    h.arg0 = peer.ep.rkey();
    h.arg1 = WINDOW as u32;
    h.arg2 = peer.ep.address() + WINDOW_AT as u64;
    h.lease = lease;
    h
}

const SENT: u64 = 1 << 63;
/// `IBV_WC_WR_FLUSH_ERR`.
const FLUSHED: u32 = 5;

/// An error with this text.
pub fn said(what: &str) -> io::Error {
    io::Error::other(what.to_string())
}
