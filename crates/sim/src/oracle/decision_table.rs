//! A copy of a log opens as recovery's decision table says (DESIGN.md section 6.1): to the row of the harm that was done to it, refused or repaired, or on by the row of what it is.

use windlass_log::{Action, Holder, Onward, OpenMode, Row};
use windlass_store::disk::testing::TestDisk;
use windlass_store::{Options, Store, Surroundings};

use super::{Checked, Invariant, Violation};

/// Opens a harmed disk, which must come to this row and be refused, or repaired, as the table says.
pub(crate) fn comes_to(
    row: Row,
    holder: Holder,
    disk: TestDisk,
    around: &Surroundings,
    options: &Options,
) -> Checked {
    let opened = Store::open(disk, around, options).map(|(_, opened)| opened);
    let found = match &opened {
        Ok(opened) => (Some(opened.verdict.row), Action::Repair),
        Err(error) => (error.row(), Action::Refuse),
    };
    let expected = (Some(row), row.action(OpenMode::Tail, holder));
    if found == expected {
        return Ok(());
    }
    Err(wrong(format!("{}: expected {expected:?}, found {found:?}: {opened:?}", row.label())))
}

/// Opens a disk, whose log must go on by this row.
pub(crate) fn goes_on(onward: Onward, disk: TestDisk, around: &Surroundings, options: &Options) -> Checked {
    match Store::open(disk, around, options) {
        Ok((_, opened)) if opened.onward == onward => Ok(()),
        Ok((_, opened)) => Err(wrong(format!("{}: goes on by {:?}", onward.label(), opened.onward))),
        Err(error) => Err(wrong(format!("{}: does not open: {error}", onward.label()))),
    }
}

fn wrong(what: String) -> Violation {
    Violation { invariant: Invariant::DecisionTable, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harms::ROWS;
    use crate::setting::SEGMENT_BYTES;
    use windlass::{LogId, MemberId};
    use windlass_store::Founding;

    /// A harm that does not come to its row, here as it was not done, ends a run.
    #[test]
    fn a_copy_that_does_not_come_to_its_row_is_told() {
        let disk = TestDisk::new();
        let founding = Founding {
            log_id: LogId([5; 16]),
            member: MemberId(0),
            incarnation: 7,
            segment_bytes: SEGMENT_BYTES,
            epoch: None,
            configuration: b"three members".to_vec(),
        };
        let around = Surroundings { boot_id: [7; 16], incarnation: 7 };
        let options = Options::default();
        drop(Store::create(disk.clone(), &founding, &around, &options).unwrap());
        for row in ROWS {
            let told = comes_to(row, Holder::Member, disk.copied_in_place(), &around, &options).unwrap_err();
            assert!(told.what.starts_with(&format!("{}: expected", row.label())), "{told}");
        }
        let told = goes_on(Onward::MemberCopied, disk.copied_in_place(), &around, &options).unwrap_err();
        assert_eq!(told.what, "D-33: goes on by MemberClosed");
        assert!(comes_to(Row::FolderCopied, Holder::Member, disk.copied(), &around, &options).is_ok());
    }
}
