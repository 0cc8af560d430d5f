//! Tells the tests whether real sessions lie beside the workspace, so that those that need them are counted as ignored where
//! they do not, and not as passed.

use std::{env, path::PathBuf};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(real_sessions)");
    println!("cargo::rerun-if-env-changed=EPITOME_DATA");
    let beside =
        || PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../../shared/data");
    let manifest = env::var_os("EPITOME_DATA").map_or_else(beside, PathBuf::from).join("MANIFEST.json");
    // A path that does not exist counts as changed at every build, and a folder is read whole: where there are no
    // sessions, only this script is watched.
    println!("cargo::rerun-if-changed=build.rs");
    if manifest.is_file() {
        println!("cargo::rerun-if-changed={}", manifest.display());
        println!("cargo::rustc-cfg=real_sessions");
    }
}
