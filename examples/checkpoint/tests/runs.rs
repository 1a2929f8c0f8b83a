//! The example as a user runs it; and the table's own promises.

use std::process::Command;

use checkpoint_example::{Shared, Table};
use windlass::{CheckpointPosition, Checkpoints, Lsn};

#[test]
fn the_member_that_was_away_is_brought_a_checkpoint_and_has_the_same_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Command::new(env!("CARGO_BIN_EXE_checkpoint")).arg(folder.path()).output().expect("to start");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    for wanted in ["is brought a checkpoint of", "their tables of 1500 keys are the same"] {
        assert!(said.contains(wanted), "{wanted:?} is missing: {said}");
    }
}

#[test]
fn a_checkpoint_that_was_not_finished_is_not_seen_and_what_a_crash_left_is_written_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = Table::open(folder.path()).expect("an empty table");
    assert_eq!(table.checkpoint().expect("a checkpoint"), Lsn(0));
    std::fs::write(folder.path().join("checkpoint.incoming"), "8192 1\na=b\nhalf a li").expect("a file");
    std::fs::write(folder.path().join("checkpoint.new"), "81").expect("a file");
    let table = Table::open(folder.path()).expect("the table");
    assert_eq!(Shared(table.clone()).position().expect("a position"), CheckpointPosition::NOTHING);
    assert!(table.pairs().is_empty());
    table.checkpoint().expect("another one");
    assert_eq!(Table::open(folder.path()).expect("the table").applied(), Lsn(0));
}
