// SPDX-License-Identifier: GPL-2.0
//! `zrs completions`.

use clap::CommandFactory;
use clap_complete::{generate, Shell};

use crate::report::out;
use crate::Result;

/// Print the completions for a shell
///
/// For bash, `source <(zrs completions bash)`, or the output as the file zrs in
/// /usr/share/bash-completion/completions; for zsh, as the file _zrs in a directory of $fpath; for
/// fish, as the file zrs.fish in ~/.config/fish/completions.
#[derive(clap::Args)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &Args) -> Result<()> {
    let mut text = Vec::new();
    generate(args.shell, &mut crate::Args::command(), "zrs", &mut text);
    out(&String::from_utf8_lossy(&text));
    Ok(())
}
