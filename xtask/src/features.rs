//! `cargo xtask check-features` and `cargo xtask check-minimal-versions`: the library builds with every combination of its
//! features, and with the oldest dependencies that its manifest permits.

use std::fs;

use crate::cargo::cargo;
use crate::package::{stdout, unpacked};
use crate::paths;

/// Features that combine freely.
const FREE: [&str; 3] = ["blocking", "redis-interop", "redisson-config"];

/// Features that only add a module, which the code of no other feature names. They are checked alone, and with all others.
const SEPARATE: [&str; 2] = ["metrics", "timeline"];

/// The choices for TLS. A crypto provider without `tls` adds nothing, so it occurs once.
const TLS: [&[&str]; 6] = [
    &[],
    &["ring", "aws-lc-rs"],
    &["tls"],
    &["tls", "ring"],
    &["tls", "aws-lc-rs"],
    &["tls", "ring", "aws-lc-rs"],
];

/// Runs clippy on the library with each combination, so that code which a combination does not use is an error.
pub fn check_all() -> Result<(), String> {
    let all = combinations();
    for (number, features) in all.iter().enumerate() {
        println!("features: {} of {}: {features:?}", number + 1, all.len());
        clippy(features)?;
    }
    Ok(())
}

fn clippy(features: &str) -> Result<(), String> {
    let status = cargo()
        .args(["clippy", "--quiet", "--package", "redisson-lock", "--lib", "--no-default-features"])
        .args(["--features", features, "--", "-D", "warnings"])
        // No combination is built twice, so what each would keep for the next build only fills the disk.
        .env("CARGO_INCREMENTAL", "0")
        .status();
    match status.map_err(|error| format!("cargo: {error}"))?.success() {
        true => Ok(()),
        false => {
            Err(format!("features: the library does not build with the features {features:?} (see above)"))
        }
    }
}

/// All combinations, each as cargo's option `--features` takes it.
fn combinations() -> Vec<String> {
    let subsets = (0..1_u32 << FREE.len()).map(|subset| {
        let chosen = FREE.iter().enumerate().filter(move |(at, _)| subset & (1 << at) != 0);
        chosen.map(|(_, feature)| *feature).collect::<Vec<_>>()
    });
    let combined = subsets.flat_map(|free| TLS.map(|tls| [&free, tls].concat().join(",")));
    let most = [&FREE, TLS[TLS.len() - 1]].concat().join(",");
    let separate = SEPARATE.iter().flat_map(|feature| [(*feature).to_owned(), format!("{most},{feature}")]);
    combined.chain(separate).collect()
}

/// Checks the package with the oldest version that the manifest permits of each of its own dependencies.
pub fn check_minimal_versions() -> Result<(), String> {
    let folder = unpacked()?;
    let lock = folder.join("Cargo.lock");
    paths::remove(fs::remove_file(&lock)).map_err(paths::at(&lock))?;
    // The option is unstable.
    let mut update = cargo();
    update.args(["update", "-Z", "direct-minimal-versions"]).current_dir(&folder).env("RUSTC_BOOTSTRAP", "1");
    stdout(&mut update)?;
    let checking = cargo()
        .args(["check", "--quiet", "--locked", "--lib", "--examples", "--all-features", "--target-dir"])
        .arg(paths::target().join("minimal-versions"))
        .current_dir(&folder)
        .status();
    match checking.map_err(|error| format!("cargo: {error}"))?.success() {
        true => Ok(()),
        false => Err(format!(
            "minimal versions: the package does not build with the versions of {}: raise the lower bounds in Cargo.toml",
            lock.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_name_every_feature_of_the_manifest() {
        let manifest = fs::read_to_string(paths::root().join("Cargo.toml")).unwrap();
        let (_, rest) = manifest.split_once("[features]\n").unwrap();
        let section = rest.split("\n[").next().unwrap();
        let features =
            section.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
        let all = combinations();
        for (feature, _) in features.filter(|(feature, _)| *feature != "default") {
            assert!(all.iter().any(|one| one.split(',').any(|word| word == feature)), "{feature}");
        }
        assert!(all.len() == 48 + 2 * SEPARATE.len() && all.contains(&String::new()), "{all:?}");
    }
}
