// SPDX-License-Identifier: GPL-2.0
//! The code of a child: threads that make a program's calls.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, Instant};

use crate::desc::{Does, Field, Kind, Outs};
use crate::prog::{Base, Place, Program, Value, VARS};
use crate::special;
use crate::sys::{self, Kcov, Memory, Shared};
use crate::text::{element, written};

/// Threads of a child that make calls.
pub const WORKERS: usize = 4;
const NOBODY: u64 = 65534;
/// As an id: leave it.
const SAME: u64 = u64::MAX;

/// The state that a child gets from its parent.
pub struct World {
    pub memory: Memory,
    /// The result of each call, from 1 on; at 0 the number of calls begun.
    pub results: Shared,
    pub kcov: Vec<Kcov>,
    /// The namespaces of A and B. The parent is in A.
    pub namespaces: Vec<OwnedFd>,
    /// How long a call may take before the next one is made at the same time.
    pub patience: Duration,
}

/// Stands for "has not returned" in the results.
pub const RUNNING: i64 = i64::MIN;
/// Stands for "has not begun".
pub const IDLE: i64 = i64::MIN + 1;

/// A program that runs.
struct Run {
    world: &'static World,
    program: Program,
    vars: Vec<AtomicI64>,
}

/// Runs `program` and ends the process.
pub fn run(world: &'static World, program: Program) -> ! {
    sys::call(libc::SYS_setpgid, &[0, 0]);
    sys::call(
        libc::SYS_prctl,
        &[libc::PR_SET_PDEATHSIG as u64, libc::SIGKILL as u64],
    );
    sys::ignore_alarm();
    let run = Run {
        world,
        program,
        vars: (0..VARS).map(|_| AtomicI64::new(-1)).collect(),
    };
    // Borrowed by threads that may never end.
    dispatch(Box::leak(Box::new(run)));
    sys::exit(0)
}

/// Hands the calls to threads, one after the other. One that does not return in time keeps its
/// thread, and the next call is made by another.
fn dispatch(run: &'static Run) {
    let (told, tell) = channel::<usize>();
    let mut workers: Vec<Sender<usize>> = Vec::new();
    let mut idle: Vec<usize> = Vec::new();
    for (i, call) in run.program.calls.iter().enumerate() {
        // A connection takes its time, and the first to a host most; so does a memory link.
        let slow = match call.desc.name {
            "pair" | "regions" => 60,
            "mem_alloc" | "mem_open" => 20,
            "connect" => 10,
            _ => 1,
        };
        let patience = run.world.patience * slow;
        if idle.is_empty() && workers.len() == WORKERS {
            match tell.recv_timeout(patience) {
                Ok(worker) => idle.push(worker),
                Err(_) => break,
            }
        }
        let worker = idle.pop().unwrap_or_else(|| {
            let (jobs, todo) = channel();
            let (index, told) = (workers.len(), told.clone());
            std::thread::spawn(move || work(run, index, &todo, &told));
            workers.push(jobs);
            index
        });
        run.world.results[i + 1].store(RUNNING, Ordering::Relaxed);
        run.world.results[0].store(i as i64 + 1, Ordering::Relaxed);
        if workers[worker].send(i).is_err() {
            break;
        }
        let end = Instant::now() + patience;
        loop {
            if call.alone {
                break;
            }
            match tell.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(done) => {
                    idle.push(done);
                    if done == worker {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
    }
    // Running calls have some time; then the process ends under them.
    let end = Instant::now() + run.world.patience;
    while idle.len() < workers.len() {
        match tell.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(done) => idle.push(done),
            Err(_) => break,
        }
    }
}

fn work(run: &'static Run, index: usize, todo: &Receiver<usize>, told: &Sender<usize>) {
    let mut worker = Worker {
        run,
        index,
        ns: 0,
        used: 0,
        pipe: None,
    };
    if run.program.nobody {
        sys::call(libc::SYS_setgroups, &[0, 0]);
        sys::call(libc::SYS_setresgid, &[NOBODY, NOBODY, NOBODY]);
        // Root stays the saved one, so that the thread can go to another namespace.
        sys::call(libc::SYS_setresuid, &[NOBODY, NOBODY, 0]);
    }
    if let Some(kcov) = run.world.kcov.get(index) {
        kcov.enable();
    }
    for i in todo {
        let result = worker.make(i);
        run.world.results[i + 1].store(result, Ordering::Relaxed);
        if told.send(index).is_err() {
            return;
        }
    }
}

/// A thread that makes calls.
pub struct Worker {
    run: &'static Run,
    index: usize,
    ns: usize,
    /// Bytes of the scratch area that hold something.
    used: usize,
    pipe: Option<[u64; 2]>,
}

impl Worker {
    /// Makes call `i`.
    fn make(&mut self, i: usize) -> i64 {
        let call = &self.run.program.calls[i];
        let mut args = call.args.iter();
        let mut words = Vec::new();
        let mut ns = 0;
        self.used = 0;
        for kind in call.desc.args {
            let word = match kind {
                Kind::Fixed(n) => *n,
                _ => match args.next() {
                    Some(value) => self.lower(kind, value),
                    None => 0,
                },
            };
            match kind {
                Kind::Ns => ns = word as usize & 1,
                _ => words.push(word),
            }
        }
        self.enter(ns);
        let (result, outs) = match call.desc.does {
            Does::Call(nr) => {
                let result = sys::call(nr, &words);
                let outs = match call.desc.outs {
                    Outs::Two(arg, _) if result >= 0 => {
                        let two = self.get(words.get(arg).copied().unwrap_or(0), 8);
                        let int = |at: usize| {
                            let bytes = [two[at], two[at + 1], two[at + 2], two[at + 3]];
                            i64::from(i32::from_le_bytes(bytes))
                        };
                        [int(0), int(4)]
                    }
                    _ => [result; 2],
                };
                (result, outs)
            }
            Does::Special(special) => {
                let ran = special::run(special, self, &words);
                (ran.result, ran.outs)
            }
        };
        for (var, out) in call.outs.iter().zip(outs) {
            self.run.vars[usize::from(*var)].store(out, Ordering::Relaxed);
        }
        result
    }

    fn var(&self, var: u8) -> u64 {
        let var = self.run.vars.get(usize::from(var));
        var.map_or(u64::MAX, |v| v.load(Ordering::Relaxed) as u64)
    }

    /// The argument that the kernel gets for a value.
    fn lower(&mut self, kind: &Kind, value: &Value) -> u64 {
        let memory = &self.run.world.memory;
        match value {
            Value::Int(n) => *n,
            Value::Var(v) => self.var(*v),
            Value::Mem(base, off) => {
                let off = *off as usize;
                (match base {
                    Base::Null => 0,
                    Base::Bad => memory.end() + 4096,
                    Base::Kern => 0xffff_8880_0000_1000,
                    Base::Buf => memory.buf() + off,
                    Base::Ro => memory.ro() + off,
                    Base::End => memory.end().wrapping_sub(off),
                    Base::Var(v) => (self.var(*v) as usize).wrapping_add(off),
                }) as u64
            }
            Value::Seq(place, values) => {
                let mut bytes = Vec::new();
                self.encode(kind, values, &mut bytes);
                self.place(*place, &bytes)
            }
        }
    }

    fn encode(&mut self, kind: &Kind, values: &[Value], bytes: &mut Vec<u8>) {
        match kind {
            Kind::Struct(fields) => self.encode_fields(fields, values, bytes),
            _ => {
                for (i, value) in values.iter().enumerate() {
                    let (Some(inner), Value::Seq(_, values)) = (element(kind, i), value) else {
                        // An address in place of an element.
                        let size = match kind {
                            Kind::Array(fields) => fields.iter().map(|f| f.size).sum(),
                            _ => 0,
                        };
                        bytes.resize(bytes.len() + size, 0xff);
                        continue;
                    };
                    self.encode(&inner, values, bytes);
                }
            }
        }
    }

    fn encode_fields(&mut self, fields: &'static [Field], values: &[Value], bytes: &mut Vec<u8>) {
        debug_assert!(written(fields).count() == values.len());
        let mut values = values.iter();
        for field in fields {
            let word = match field.kind {
                Kind::Fixed(n) => n,
                _ => match values.next() {
                    Some(value) => self.lower(&field.kind, value),
                    None => 0,
                },
            };
            let (le, be) = (word.to_le_bytes(), word.to_be_bytes());
            let n = field.size.min(8);
            if field.big_endian {
                bytes.extend_from_slice(&be[8 - n..]);
            } else {
                bytes.extend_from_slice(&le[..n]);
            }
            bytes.resize(bytes.len() + field.size - n, 0);
        }
    }

    /// Puts a structure where it is to lie; its address.
    fn place(&mut self, place: Place, bytes: &[u8]) -> u64 {
        let memory = &self.run.world.memory;
        let end = memory.scratch_end(self.index);
        match place {
            Place::Aligned => self.put(bytes),
            Place::Odd => {
                let at = self.put(&vec![0; bytes.len() + 1]) + 1;
                memory.write(at as usize, bytes);
                at
            }
            Place::Edge => {
                memory.write(end - bytes.len(), bytes);
                (end - bytes.len()) as u64
            }
            Place::Cut => {
                let n = bytes.len().saturating_sub(1);
                memory.write(end - n, &bytes[..n]);
                (end - n) as u64
            }
        }
    }

    /// Puts bytes into the scratch area; their address.
    pub fn put(&mut self, bytes: &[u8]) -> u64 {
        let memory = &self.run.world.memory;
        let at = memory.scratch(self.index) + self.used;
        // A byte more, so that strings end.
        self.used = (self.used + bytes.len() + 1).next_multiple_of(16);
        memory.write(at, bytes);
        memory.write(at + bytes.len(), &[0]);
        at as u64
    }

    pub fn put_words(&mut self, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.put(&bytes)
    }

    /// Bytes of the scratch area.
    pub fn get(&self, at: u64, len: usize) -> Vec<u8> {
        self.run.world.memory.read(at as usize, len)
    }

    /// Where the buffer begins.
    pub fn buf(&self) -> u64 {
        self.run.world.memory.buf() as u64
    }

    /// The host that the thread is in: 0 for A, 1 for B.
    pub fn ns(&self) -> usize {
        self.ns
    }

    /// Goes to host `ns`.
    pub fn enter(&mut self, ns: usize) {
        let Some(fd) = self.run.world.namespaces.get(ns) else {
            return;
        };
        if self.ns == ns {
            return;
        }
        if self.run.program.nobody {
            sys::call(libc::SYS_setresuid, &[SAME, 0, SAME]);
        }
        let to = [fd.as_raw_fd() as u64, libc::CLONE_NEWNET as u64];
        if sys::call(libc::SYS_setns, &to) == 0 {
            self.ns = ns;
        }
        if self.run.program.nobody {
            sys::call(libc::SYS_setresuid, &[SAME, NOBODY, SAME]);
        }
    }

    fn pipe(&mut self) -> [u64; 2] {
        if let Some(pipe) = self.pipe {
            return pipe;
        }
        let at = self.put(&[0; 8]);
        sys::call(libc::SYS_pipe2, &[at, libc::O_NONBLOCK as u64]);
        let fds = self.get(at, 8);
        let pipe = [0, 4].map(|i| u64::from(fds[i]) | (u64::from(fds[i + 1]) << 8));
        self.pipe = Some(pipe);
        pipe
    }

    fn drop_pipe(&mut self) {
        for fd in self.pipe.take().into_iter().flatten() {
            sys::call(libc::SYS_close, &[fd]);
        }
    }

    /// Reads memory that may be gone: the kernel does it.
    pub fn peek(&mut self, at: u64, len: usize) -> Option<Vec<u8>> {
        let [from, to] = self.pipe();
        let here = self.put(&vec![0; len]);
        let n = sys::call(libc::SYS_write, &[to, at, len as u64]);
        let n = sys::call(libc::SYS_read, &[from, here, n.max(0) as u64]);
        if n != len as i64 {
            self.drop_pipe();
            return None;
        }
        Some(self.get(here, len))
    }

    /// Writes memory that may be gone.
    pub fn poke(&mut self, at: u64, bytes: &[u8]) -> i64 {
        let [from, to] = self.pipe();
        let here = self.put(bytes);
        let n = sys::call(libc::SYS_write, &[to, here, bytes.len() as u64]);
        let n = sys::call(libc::SYS_read, &[from, at, n.max(0) as u64]);
        if n != bytes.len() as i64 {
            self.drop_pipe();
        }
        n
    }
}
