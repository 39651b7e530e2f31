// SPDX-License-Identifier: GPL-2.0
//! Turns the samples of `zrs bench` into `results/bench.json`, compares that with the targets, and
//! writes tables and plots for the documentation.
#![forbid(unsafe_code)]

mod baseline;
mod counts;
mod load;
mod locks;
mod marks;
mod page;
mod plot;
mod rows;
mod smc;
mod table;
mod targets;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde_json::Value;
use zrs_bench::Samples;

use baseline::Baseline;

/// Results, tables and plots of the benchmarks
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the rows of all medians, ratios and targets; "bench: N rows" is the last line
    Rows {
        #[command(flatten)]
        input: Input,
        /// The file to write
        #[arg(long)]
        out: PathBuf,
        /// The kernel's release
        #[arg(long)]
        kernel: String,
        /// The commit that was measured
        #[arg(long)]
        commit: String,
    },
    /// A line for each target of the results; fails if one is missed, or if the results are of
    /// another commit
    Check {
        /// What `rows` and tests/bench/mem.py wrote
        #[arg(required = true)]
        results: Vec<PathBuf>,
        /// The commit that is checked
        #[arg(long)]
        commit: String,
    },
    /// Write the plots into a folder, and the tables into a document between its two marks
    Page {
        #[command(flatten)]
        input: Input,
        /// The document
        #[arg(long)]
        document: PathBuf,
        /// The folder for the plots, relative to the document
        #[arg(long)]
        plots: PathBuf,
        /// A sentence on where and when this was measured
        #[arg(long)]
        about: String,
    },
    /// Draw the hit rates of the link table's tiers
    Table {
        /// The output of the host test (ZRS_TABLE_OUT)
        results: PathBuf,
        /// The plot to write
        #[arg(long)]
        out: PathBuf,
    },
    /// Write the rows of all medians of make bench-smc, and a table; "bench: N rows" is the last
    /// line
    Smc {
        /// What `zrs bench --samples` wrote
        #[arg(long)]
        samples: PathBuf,
        /// The programs' results: lines of round, measurement, carrier, value and unit, with tabs
        /// between
        #[arg(long)]
        programs: PathBuf,
        /// The file to write
        #[arg(long)]
        out: PathBuf,
        /// The file for the table
        #[arg(long)]
        table: PathBuf,
        /// The kernel's release
        #[arg(long)]
        kernel: String,
    },
    /// Compare deterministic counts with a baseline; a line each, "ok - " or "not ok - "
    Counts {
        /// The samples
        samples: PathBuf,
        /// The baseline
        baseline: PathBuf,
        /// The environment, the baseline's key
        #[arg(long)]
        key: String,
    },
    /// Compare figures, lines "KIND VALUE NUMBER", with a baseline
    Figures {
        /// The lines
        figures: PathBuf,
        /// The baseline
        baseline: PathBuf,
        /// The environment, the baseline's key
        #[arg(long)]
        key: String,
    },
    /// Count the lock acquisitions of a message by lock class, and compare them with a baseline
    Locks {
        /// The trace of lock_acquire while messages went one way, each with an acknowledgment
        trace: PathBuf,
        /// The trace of twice that number of acknowledgments alone
        #[arg(long)]
        idle: PathBuf,
        /// How many messages
        #[arg(long)]
        messages: u32,
        /// The baseline
        #[arg(long)]
        baseline: PathBuf,
        /// The environment, the baseline's key
        #[arg(long)]
        key: String,
    },
}

#[derive(clap::Args)]
struct Input {
    /// What `zrs bench --samples` wrote
    #[arg(long)]
    samples: PathBuf,
    /// The emulator's clock at the marks, if there is an emulator
    #[arg(long)]
    marks: Option<PathBuf>,
}

type Result<T> = std::result::Result<T, String>;

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| {
        format!(
            "cannot read {}: {e}; make bench writes the results",
            path.display()
        )
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

fn save(path: &Path, rows: &[Value]) -> Result<()> {
    let text = serde_json::to_string_pretty(rows).map_err(|e| e.to_string())?;
    write(path, &(text + "\n"))
}

fn samples(path: &Path) -> Result<Samples> {
    Samples::parse(&read(path)?).map_err(|e| format!("{}: {e}", path.display()))
}

fn json(path: &Path) -> Result<Value> {
    serde_json::from_str(&read(path)?).map_err(|e| format!("{}: {e}", path.display()))
}

impl Input {
    fn read(&self) -> Result<Samples> {
        let mut samples = samples(&self.samples)?;
        if let Some(path) = self.marks.as_ref().filter(|path| path.exists()) {
            marks::merge(&mut samples, &read(path)?);
        }
        Ok(samples)
    }
}

fn run(args: &Args) -> Result<bool> {
    match &args.command {
        Command::Rows {
            input,
            out,
            kernel,
            commit,
        } => {
            let rows = rows::rows(&input.read()?, kernel, commit);
            save(out, &rows)?;
            println!("bench: {} rows", rows.len());
            Ok(true)
        }
        Command::Check { results, commit } => {
            let mut rows = Vec::new();
            for path in results {
                let own = json(path)?;
                let own = own.as_array().ok_or_else(|| {
                    format!("{} is no list of rows: run make bench", path.display())
                })?;
                rows.extend_from_slice(own);
            }
            let (text, missed) = targets::check(&rows.into(), commit)?;
            print!("{text}");
            Ok(missed == 0)
        }
        Command::Page {
            input,
            document,
            plots,
            about,
        } => {
            let samples = input.read()?;
            fs::create_dir_all(plots)
                .map_err(|e| format!("cannot make {}: {e}", plots.display()))?;
            let pictures = plot::all(&samples, plots)?;
            let text = page::page(&samples, &pictures, about);
            write(document, &page::insert(&read(document)?, &text)?)?;
            Ok(true)
        }
        Command::Table { results, out } => {
            table::draw(&json(results)?, out)?;
            Ok(true)
        }
        Command::Smc {
            samples: path,
            programs,
            out,
            table,
            kernel,
        } => {
            let figures = smc::Figures::new(&samples(path)?, &read(programs)?)?;
            let rows = figures.rows(kernel);
            save(out, &rows)?;
            write(table, &figures.table().rst())?;
            print!("{}", figures.table().text());
            println!("bench: {} rows", rows.len());
            Ok(true)
        }
        Command::Counts {
            samples: path,
            baseline,
            key,
        } => {
            let (text, good) =
                counts::compare(&samples(path)?, &Baseline::new(&json(baseline)?, key)?);
            print!("{text}");
            Ok(good)
        }
        Command::Figures {
            figures,
            baseline,
            key,
        } => {
            let json = json(baseline)?;
            let baseline = Baseline::new(&json, key)?;
            let (text, good) = counts::figures(&read(figures)?, &baseline)?;
            print!("{text}");
            Ok(good)
        }
        Command::Locks {
            trace,
            idle,
            messages,
            baseline,
            key,
        } => {
            let (trace, idle) = (read(trace)?, read(idle)?);
            let json = json(baseline)?;
            let baseline = Baseline::new(&json, key)?;
            let (text, good) = locks::compare(&trace, &idle, f64::from(*messages), &baseline)?;
            print!("{text}");
            Ok(good)
        }
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("zrs-bench-report: {reason}");
            ExitCode::from(2)
        }
    }
}
