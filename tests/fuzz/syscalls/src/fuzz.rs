// SPDX-License-Identifier: GPL-2.0
//! The loop: draw or change a program, run it, keep it if it covered something new, store it if
//! something went wrong.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::calls;
use crate::exec::{result_text, End, Exec, Ran};
use crate::gen;
use crate::klog::{is_bad, KernelLog};
use crate::mutate::mutate;
use crate::prog::Program;
use crate::rng::Rng;
use crate::text;
use crate::worker::{IDLE, RUNNING};

/// After this number of programs, the module must have freed all objects.
const BATCH: u64 = 100;
/// Programs in one file of recent ones.
const RECENT: u64 = 100;

/// Runs programs and examines their results.
pub struct Fuzzer {
    pub exec: Exec,
    log: KernelLog,
    scale: u32,
    out: Option<PathBuf>,
    recent: Option<File>,
    /// The coverage: points of the module, or without KCOV pairs of call and errno.
    pub seen: BTreeSet<u64>,
    pub corpus: Vec<Program>,
    pub programs: u64,
    pub calls: u64,
    pub findings: Vec<String>,
}

impl Fuzzer {
    /// `out`: the folder for findings, new programs and recent ones.
    pub fn new(scale: u32, out: Option<&Path>) -> io::Result<Self> {
        if let Some(out) = out {
            fs::create_dir_all(out.join("corpus"))?;
        }
        Ok(Self {
            exec: Exec::new(scale)?,
            log: KernelLog::new()?,
            scale,
            out: out.map(Path::to_owned),
            recent: None,
            seen: BTreeSet::new(),
            corpus: Vec::new(),
            programs: 0,
            calls: 0,
            findings: Vec::new(),
        })
    }

    /// Records the next program: the machine may not survive it.
    fn note(&mut self, program: &Program) -> io::Result<()> {
        let Some(out) = &self.out else {
            return Ok(());
        };
        if self.programs % RECENT == 0 {
            let path = out.join("recent.txt");
            let _ = fs::rename(&path, out.join("recent.old.txt"));
            self.recent = Some(File::create(path)?);
        }
        match &mut self.recent {
            Some(file) => file.write_all(format!("{program}---\n").as_bytes()),
            None => Ok(()),
        }
    }

    /// Runs a program; returns its coverage, and whether something went wrong.
    pub fn run(&mut self, program: &Program) -> io::Result<(Ran, bool)> {
        self.note(program)?;
        let ran = self.exec.run(program)?;
        self.programs += 1;
        self.calls += ran.results.iter().filter(|r| **r != IDLE).count() as u64;
        let mut wrong = false;
        match &ran.end {
            End::Stuck(stacks) => {
                let lines: Vec<String> = stacks.lines().map(str::to_owned).collect();
                wrong = true;
                self.found("a program does not die", &lines, program)?;
            }
            End::Bug(status) => {
                wrong = true;
                self.found(&format!("zrs-fuzz: exit status {status}"), &[], program)?;
            }
            _ => {}
        }
        let lines = self.log.take();
        if let Some(at) = lines.iter().position(|l| is_bad(l)) {
            wrong = true;
            let title = lines[at].clone();
            self.found(&title, &lines[at..], program)?;
        }
        Ok((ran, wrong))
    }

    /// The new features of a run.
    pub fn features(&self, program: &Program, ran: &Ran) -> BTreeSet<u64> {
        if self.exec.has_coverage() {
            return ran.pcs.clone();
        }
        let results = program.calls.iter().zip(&ran.results);
        let pairs = results.filter(|(_, r)| **r != IDLE).map(|(call, result)| {
            let call = calls::all().position(|d| d == call.desc).unwrap_or(0);
            let errno = match *result {
                RUNNING => 4096,
                r @ -4095..=-1 => -r,
                _ => 0,
            };
            ((call as u64) << 13) | errno as u64
        });
        pairs.collect()
    }

    /// Stores a finding. One with the same title as an earlier one is not stored again.
    fn found(&mut self, title: &str, lines: &[String], program: &Program) -> io::Result<()> {
        let title: String = title.chars().filter(|c| !c.is_ascii_digit()).collect();
        if self.findings.contains(&title) {
            return Ok(());
        }
        self.findings.push(title.clone());
        println!("finding {}: {title}", self.findings.len());
        lines
            .iter()
            .take(30)
            .for_each(|line| println!("    {line}"));
        let Some(out) = &self.out else {
            return Ok(());
        };
        let mut number = 1;
        while out.join(format!("finding-{number}.txt")).exists() {
            number += 1;
        }
        let name = format!("finding-{number}.txt");
        let mut text = format!("# {title}\n# zrs-fuzz run {name} replays it, on this kernel:");
        text += " make fuzz FUZZ_RUN=results/fuzz/";
        text += &format!(
            "{name}\n# What ran before it: {}\n",
            name.replace("txt", "before.txt")
        );
        for line in lines {
            text += &format!("#   {line}\n");
        }
        text += &program.to_string();
        fs::write(out.join(&name), text)?;
        let mut before = fs::read_to_string(out.join("recent.old.txt")).unwrap_or_default();
        before += &fs::read_to_string(out.join("recent.txt")).unwrap_or_default();
        fs::write(out.join(name.replace("txt", "before.txt")), before)?;
        println!(
            "    stored as {}, what ran before it beside it",
            out.join(&name).display()
        );
        Ok(())
    }

    /// All that programs had of the module must go soon after them.
    pub fn settle(&mut self) -> io::Result<()> {
        let zrs = zrs::Zrs::open()?;
        let end = Instant::now() + Duration::from_secs(20) * self.scale;
        loop {
            let stats = zrs.stats()?;
            let left = [
                ("pages_pinned", stats.pages_pinned),
                ("sockets", stats.sockets.saturating_sub(self.exec.keepers())),
                ("channels", stats.channels),
                ("pool_used", stats.pool_used),
            ];
            let left: Vec<_> = left.iter().filter(|(_, n)| *n != 0).collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                let lines: Vec<String> = left.iter().map(|(k, n)| format!("{k}: {n}")).collect();
                let title = format!("left behind by earlier programs: {}", lines.join(", "));
                return self.found(&title, &lines, &Program::default());
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// Runs a program and keeps it if it covers something new; whether it does.
    pub fn try_program(&mut self, program: Program, minimize: bool) -> io::Result<bool> {
        let (ran, wrong) = self.run(&program)?;
        let features = self.features(&program, &ran);
        let new: BTreeSet<u64> = features.difference(&self.seen).copied().collect();
        self.seen.extend(features);
        if new.is_empty() || wrong {
            return Ok(false);
        }
        let program = match minimize {
            true => self.minimize(program, |this, program| {
                let (ran, _) = this.run(program)?;
                let features = this.features(program, &ran);
                this.seen.extend(&features);
                Ok(new.is_subset(&features))
            })?,
            false => program,
        };
        if let Some(out) = &self.out {
            let text = program.to_string();
            // A program has one name, in whichever run it is found.
            let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            });
            fs::write(out.join("corpus").join(format!("{hash:016x}.txt")), text)?;
        }
        self.corpus.push(program);
        Ok(true)
    }

    /// Removes calls as long as `still` holds for the rest.
    pub fn minimize(
        &mut self,
        mut program: Program,
        mut still: impl FnMut(&mut Self, &Program) -> io::Result<bool>,
    ) -> io::Result<Program> {
        for at in (0..program.calls.len()).rev() {
            let mut less = program.clone();
            less.calls.remove(at);
            if !less.calls.is_empty() && still(self, &less)? {
                program = less;
            }
        }
        for at in 0..program.calls.len() {
            let mut less = program.clone();
            if std::mem::take(&mut less.calls[at].alone) && still(self, &less)? {
                program = less;
            }
        }
        Ok(program)
    }

    /// Whether a file "stop" is in the results' folder.
    fn stopped(&self) -> bool {
        let stop = self.out.as_ref().map(|out| out.join("stop"));
        stop.is_some_and(|stop| stop.exists())
    }

    /// Fuzzes until `end`, or until it is stopped.
    pub fn fuzz(&mut self, rng: &mut Rng, end: Instant, minimize: bool) -> io::Result<()> {
        let (begun, mut told) = (Instant::now(), Instant::now());
        let mut next = self.programs + BATCH;
        while Instant::now() < end && !self.stopped() {
            let program = if self.corpus.is_empty() || rng.chance(25) {
                gen::program(rng)
            } else {
                let all = self.corpus.len();
                // The newest programs have been changed least.
                let at = match rng.chance(40) {
                    true => all - 1 - rng.below(all.min(20)),
                    false => rng.below(all),
                };
                mutate(rng, &self.corpus[at], &self.corpus)
            };
            self.try_program(program, minimize)?;
            if self.programs >= next {
                self.settle()?;
                let keep = self.exec.keepers() == 0;
                self.exec.keep_links(keep)?;
                next = self.programs + BATCH;
            }
            if told.elapsed() > Duration::from_secs(20) {
                told = Instant::now();
                self.tell(begun.elapsed());
            }
        }
        self.settle()
    }

    fn tell(&self, time: Duration) {
        println!(
            "{} s: {} programs, {} calls, {} {}, corpus {}, {} findings",
            time.as_secs(),
            self.programs,
            self.calls,
            self.seen.len(),
            if self.exec.has_coverage() {
                "points"
            } else {
                "pairs of call and errno"
            },
            self.corpus.len(),
            self.findings.len()
        );
    }
}

/// The result of each call of a program.
pub fn describe(program: &Program, ran: &Ran) -> String {
    let mut text = String::new();
    for (call, result) in program.calls.iter().zip(&ran.results) {
        text += &format!("{call}  # {}\n", result_text(*result));
    }
    text + &format!("# {:?}, {} points\n", ran.end, ran.pcs.len())
}

/// The programs of files, and of the `*.txt` in folders, in the order of their names.
pub fn read_programs(paths: &[PathBuf]) -> Result<Vec<(PathBuf, Program)>, String> {
    let mut files = Vec::new();
    for path in paths {
        let say = |e: io::Error| format!("{}: {e}", path.display());
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        for entry in fs::read_dir(path).map_err(say)? {
            inside.push(entry.map_err(say)?.path());
        }
        inside.retain(|p| p.extension().is_some_and(|e| e == "txt"));
        inside.sort();
        files.extend(inside);
    }
    let mut all = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let programs = text::parse_all(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        all.extend(programs.into_iter().map(|p| (file.clone(), p)));
    }
    Ok(all)
}
