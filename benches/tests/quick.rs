//! Every benchmark works: a quick run of all of them. Its figures are not judged.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn a_quick_run_measures_every_contender_of_every_benchmark() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let json = folder.path().join("figures.json");
    let status = Command::new(env!("CARGO_BIN_EXE_windlass-benches"))
        .args(["--quick", "--dir"])
        .arg(folder.path())
        .arg("--json")
        .arg(&json)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let figures = read(&json);
    let listed = Command::new(env!("CARGO_BIN_EXE_windlass-benches")).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for name in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        let comparisons = figures[name]["comparisons"].as_array().unwrap();
        assert!(!comparisons.is_empty(), "{name} compares nothing");
        for contender in
            comparisons.iter().flat_map(|comparison| comparison["contenders"].as_array().unwrap())
        {
            assert!(contender["median"].as_f64().is_some_and(f64::is_finite), "{name}: {contender}");
        }
    }
}

#[test]
fn a_name_that_no_benchmark_has_is_refused() {
    let status = Command::new(env!("CARGO_BIN_EXE_windlass-benches")).arg("nonesuch").status().unwrap();
    assert_eq!(status.code(), Some(2));
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
