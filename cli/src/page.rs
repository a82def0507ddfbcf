//! Completions and man pages, made from the command line itself.

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::write_out;
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::Path;

/// Writes the completions of a shell.
pub fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "redisson-lock", &mut text);
    write_out(text)?;
    Ok(0)
}

/// Writes a man page for each command.
pub fn man_pages(folder: &Path) -> Result<u8, Failure> {
    let written = clap_mangen::generate_to(Cli::command(), folder);
    written.map_err(|error| {
        Failure::System(format!(
            "cannot write the man pages to {}: {error}: name a folder that exists",
            folder.display()
        ))
    })?;
    Ok(0)
}
