//! `erd keygen`: a new key for a job, in a file that its owner alone can read.

use crate::KeygenArgs;
use anyhow::{Context, Result};
use erd_core::settings::JobKey;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

/// Writes the file, and says how to use it. An existing file stays as it is.
pub fn run(args: &KeygenArgs) -> Result<()> {
    let key = JobKey::generate().context("cannot make a key")?;
    let path = &args.file;
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = opened.with_context(|| format!("cannot create {}", path.display()))?;
    let written = file.write_all(key.text().as_bytes()).and_then(|()| file.sync_all());
    written.with_context(|| format!("cannot write {}", path.display()))?;
    let id: String = key.id().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{}: key {id}", path.display());
    println!("Set FI_ERD_KEY_FILE to this file, or to a copy of it, in every process of the job.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_once_and_can_be_read() {
        let dir = std::env::temp_dir().join(format!("erd-keygen-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let args = KeygenArgs { file: dir.join("key") };
        run(&args).unwrap();
        let key = JobKey::read(&args.file).expect("a key of the right mode");
        let again = run(&args).unwrap_err().to_string();
        assert!(again.contains("cannot create"), "{again}");
        assert_eq!(JobKey::read(&args.file).unwrap(), key, "an existing key stays");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
