//! One image, salvaged: whatever is whole is there, once, as it was appended, and the folder stays as it is.

use std::collections::BTreeMap;

use windlass_log::{Lsn, RecordKind};
use windlass_store::disk::testing::TestDisk;
use windlass_store::{Inspection, OpenError};

use crate::oracle::{Entry, Found, Oracle};

/// Every whole record behind the trim point is one that was appended there, and of those that were acknowledged only these may be missing.
pub(crate) fn salvaged(disk: &TestDisk, oracle: &Oracle, missing: &[Lsn]) -> Result<(), String> {
    let steps = disk.steps();
    let (trimmed, found) = match read(disk) {
        Ok(read) => read,
        Err(OpenError::NoLog { .. }) if !oracle.created => return Ok(()),
        Err(error) => return Err(format!("salvage: {error}")),
    };
    if disk.steps() != steps {
        return Err("salvage: it has changed the folder".to_owned());
    }
    let is_known = |found: &Found| {
        let mut appended = oracle.records.iter().chain(oracle.before_cut.iter().flatten());
        appended.any(|entry| entry.start == found.lsn && entry.content.is(found))
    };
    if let Some(other) = found.iter().find(|found| !is_known(found)) {
        return Err(format!(
            "salvage: RESURRECTED: at {} is what was never appended there, or cut",
            other.lsn
        ));
    }
    if let Some(pair) = found.windows(2).find(|pair| pair[0].lsn >= pair[1].lsn) {
        return Err(format!("salvage: the record at {} comes behind that at {}", pair[1].lsn, pair[0].lsn));
    }
    all_there(&found, oracle, trimmed, missing)
}

/// The same where the superblock is gone as well: which log it is, its epochs and where it was trimmed is told by what is left, so what was cut or trimmed may come, too.
pub(crate) fn without_superblock(disk: &TestDisk, oracle: &Oracle) -> Result<(), String> {
    if !oracle.created || oracle.before_cut.is_some() {
        return Ok(());
    }
    disk.remove_file("superblock");
    let (_, found) = read(disk).map_err(|error| format!("salvage without a superblock: {error}"))?;
    all_there(&found, oracle, oracle.trimmed.1, &[]).map_err(|wrong| format!("without a superblock: {wrong}"))
}

fn read(disk: &TestDisk) -> Result<(Lsn, Vec<Found>), OpenError> {
    let inspection = Inspection::open_forgiving(disk.clone())?;
    let trimmed = inspection.superblock().trimmed;
    let failed = |error: windlass_store::ReadError| panic!("a disk in memory was not read: {error}");
    let mut walk = inspection.walk(trimmed).forgiving().unwrap_or_else(failed);
    let mut found = Vec::new();
    loop {
        match walk.step() {
            Ok(Ok(record)) => {
                let (lsn, kind) = (record.header.lsn, record.header.kind);
                if let (RecordKind::Data | RecordKind::Batch, Some(payload)) = (kind, record.payload) {
                    found.push(Found { lsn, kind, payload: payload.to_vec() });
                }
            }
            Ok(Err(_)) => match walk.skip_damage() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok((trimmed, found)),
                Err(error) => panic!("a disk in memory was not read: {error}"),
            },
            Err(error) => panic!("a disk in memory was not read: {error}"),
        }
    }
}

fn all_there(found: &[Found], oracle: &Oracle, trimmed: Lsn, missing: &[Lsn]) -> Result<(), String> {
    if oracle.damaged {
        return Ok(());
    }
    let by_lsn: BTreeMap<Lsn, &Found> = found.iter().map(|found| (found.lsn, found)).collect();
    let is_lost = |entry: &&Entry| {
        let is_owed = trimmed <= entry.start && entry.start < oracle.acknowledged;
        let is_there = by_lsn.get(&entry.start).is_some_and(|found| entry.content.is(found));
        is_owed && !is_there && !missing.contains(&entry.start)
    };
    match oracle.records.iter().find(is_lost) {
        None => Ok(()),
        Some(entry) => Err(format!("salvage: LOST: the record at {}, which is whole", entry.start)),
    }
}
