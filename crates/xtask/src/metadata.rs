//! The workspace as cargo sees it.

use std::path::PathBuf;

use serde::Deserialize;

use crate::Context;

/// What is read of `cargo metadata`.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    /// The packages of the workspace.
    pub(crate) packages: Vec<Package>,
    /// The ids of those that a plain build takes.
    pub(crate) workspace_default_members: Vec<String>,
}

/// A package of the workspace.
#[derive(Deserialize)]
pub(crate) struct Package {
    /// What `-p` takes.
    pub(crate) name: String,
    /// What the other lists name it by.
    pub(crate) id: String,
    /// Where its manifest lies.
    pub(crate) manifest_path: PathBuf,
    /// What its manifest declares, whether it is used here or not.
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency that a manifest declares.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    /// The package depended on.
    pub(crate) name: String,
    /// None for a normal one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// Only with a feature.
    pub(crate) optional: bool,
    /// Where it lies: only a dependency inside the repository has one.
    pub(crate) path: Option<String>,
}

impl Metadata {
    /// Asks cargo.
    ///
    /// # Errors
    ///
    /// What cargo said, or that it said something else than expected.
    pub(crate) fn read(context: &Context) -> Result<Metadata, String> {
        let output = std::process::Command::new("cargo")
            .args(["metadata", "--locked", "--no-deps", "--format-version", "1"])
            .current_dir(&context.root)
            .output()
            .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata's output: {error}"))
    }
}
