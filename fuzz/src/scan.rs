//! The scan over segments, and recovery's verdict.
//!
//! ```text
//!  input  0      1 ...                        from the middle on
//!         | mode | what is appended ...       | what is damaged, the marks
//!  or     | 255  | a segment's bytes
//! ```

use std::collections::BTreeMap;

use windlass_log::{
    Chain, Class, Drain, DrainState, Epoch, EpochHistory, Extent, FORMAT_VERSION, Geometry, Handoff, Lsn,
    Marks, MemberId, Memory, MemoryImage, Record, RecordKind, ReserveError, SEGMENT_BYTES_MIN,
    SEGMENT_HEADER_BYTES, Salt, Scan, SegmentHeader, Shape, Tenure, Verdict, judge, locate,
};

use crate::input::Input;
use crate::record::LOG_ID;

/// The most segments of a log here.
const SEGMENTS_MAX: u64 = 3;
/// The most appends of one input.
const APPENDS_MAX: u8 = 24;
const MEMBER: MemberId = MemberId(1);

/// A log that the production code wrote, then damaged; or, behind a first byte of 255, a segment of any bytes at all.
pub fn segment_scan(data: &[u8]) {
    let mut input = Input::new(data);
    if input.u8() == u8::MAX {
        return any_bytes(input.rest());
    }
    let log = Log::write(&mut input);
    let whole = log.walk();
    log.holds_what_was_appended(&whole);
    let marks = log.marks(&mut input, &whole);
    let undamaged = log.judge(&marks, Extent::Whole, |_| {});
    assert_eq!(undamaged.tail(), log.tail, "{undamaged:?}");
    if marks.clean.is_none_or(|clean| clean == log.tail) {
        assert_eq!(undamaged.class(), Class::End, "{undamaged:?}");
    }
    let damage = log.damage(&mut input);
    log.verdict(&marks, Extent::FromMark);
    if damage.is_empty() {
        assert_eq!(log.judge(&marks, Extent::Whole, |_| {}), undamaged, "I-7");
        return;
    }
    let (found, verdict) = log.walk_and_judge(&marks);
    assert_eq!(log.judge(&marks, Extent::Whole, |_| {}), verdict, "I-7");
    assert!(whole.starts_with(&found), "records that nobody appended, or one that was changed");
    log.damage_was_found(&damage, &whole, &marks, &verdict);
}

/// A record as the scan shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    start: Lsn,
    end: Lsn,
    kind: RecordKind,
    record_bytes: u64,
    payload: Vec<u8>,
}

impl Seen {
    fn new(record: &Record<'_>) -> Seen {
        Seen {
            start: record.header.lsn,
            end: record.end,
            kind: record.header.kind,
            record_bytes: record.header.record_bytes(),
            payload: record.payload.unwrap_or_default().to_vec(),
        }
    }
}

struct Log {
    geometry: Geometry,
    segments: Vec<Memory>,
    /// The tenure has no segment from this one on yet.
    ready: u64,
    history: EpochHistory,
    tail: Lsn,
    /// The payloads of the application's own records.
    appended: Vec<(Lsn, Vec<u8>)>,
}

impl Log {
    /// Appends what `input` says, by the production code.
    fn write(input: &mut Input<'_>) -> Log {
        let geometry = Geometry::new(SEGMENT_BYTES_MIN).expect("the smallest");
        let genesis = Lsn(SEGMENT_HEADER_BYTES);
        let mut log = Log {
            geometry,
            segments: Vec::new(),
            ready: 0,
            history: EpochHistory::new(),
            tail: genesis,
            appended: Vec::new(),
        };
        let (mut handoff, mut drain) = log.tenure(1);
        for counter in 2..u64::from(input.u8() % APPENDS_MAX) + 2 {
            let (what, length, fill) = (input.u8(), input.u16(), input.u8());
            let payload = vec![fill; usize::from(if what & 8 == 0 { length % 600 } else { length })];
            let done = match what % 8 {
                0..=3 => log.append(&handoff, &mut drain, |handoff| {
                    handoff
                        .append(RecordKind::Data, &payload)
                        .map(|appended| Some((appended.start, payload.clone())))
                }),
                4 => log.append(&handoff, &mut drain, |handoff| {
                    let half = payload.len() / 2;
                    handoff.append_batch(&[&payload[..half], b"", &payload[half..]]).map(|_| None)
                }),
                5 => log.append(&handoff, &mut drain, |handoff| {
                    handoff.reserve(u64::from(length % 600)).map(|reservation| {
                        drop(reservation);
                        None
                    })
                }),
                6 => {
                    handoff.set_persisted(handoff.drained());
                    true
                }
                _ => {
                    handoff.seal();
                    log.drain(&mut drain);
                    (handoff, drain) = log.tenure(counter);
                    true
                }
            };
            if !done {
                break;
            }
        }
        handoff.seal();
        log.drain(&mut drain);
        assert_eq!(log.tail, handoff.tail(), "R-10: sealed, and drained to the tail");
        for segment in 0..log.count().min(SEGMENTS_MAX) {
            log.segment(segment);
        }
        log
    }

    /// How many segments there are to read. Each verdict looks through the zeros of a segment that is ready ahead, which takes most of its time: one log of eight has one.
    fn count(&self) -> u64 {
        self.geometry.segment_of(self.tail) + 1 + u64::from(self.tail.0.is_multiple_of(64))
    }

    /// A new epoch from the tail on.
    fn tenure(&mut self, counter: u64) -> (std::sync::Arc<Handoff>, Drain) {
        let epoch = Epoch::new(counter, MEMBER);
        self.history.extend(epoch, self.tail).expect("epochs rise");
        let key = Salt::new(LOG_ID).key(epoch);
        let (handoff, drain) = Handoff::new(Tenure {
            geometry: self.geometry,
            log_id: LOG_ID,
            epoch,
            tail: self.tail,
            chain: Chain::begin(&key, self.tail),
            persisted: self.tail,
            slots: 4,
        });
        handoff.set_limit(Lsn(self.geometry.base(SEGMENTS_MAX).0));
        self.ready = self.geometry.segment_of(self.tail);
        self.install(&handoff);
        (handoff, drain)
    }

    /// One more segment to append to, while there may be more: making one takes as long as all else that a small log needs. Whether there was.
    fn install(&mut self, handoff: &Handoff) -> bool {
        if self.ready >= SEGMENTS_MAX {
            return false;
        }
        let memory = self.segment(self.ready);
        handoff.install(self.ready, memory).expect("in order, and few enough");
        self.ready += 1;
        true
    }

    fn segment(&mut self, segment: u64) -> Memory {
        while u64::try_from(self.segments.len()).expect("few") <= segment {
            let base = self.geometry.base(u64::try_from(self.segments.len()).expect("few"));
            let memory = Memory::heap(self.geometry.segment_bytes());
            let header = SegmentHeader {
                log_id: LOG_ID,
                base,
                segment_bytes: self.geometry.segment_bytes(),
                features: 0,
            };
            memory.copy_in(0, &header.encode());
            self.segments.push(memory);
        }
        self.segments[usize::try_from(segment).expect("few")].clone()
    }

    /// One append, drained; false where the log is full.
    fn append(
        &mut self,
        handoff: &Handoff,
        drain: &mut Drain,
        append: impl Fn(&Handoff) -> Result<Option<(Lsn, Vec<u8>)>, ReserveError>,
    ) -> bool {
        let mut appended = append(handoff);
        while matches!(appended, Err(ReserveError::NotReady { .. })) && self.install(handoff) {
            appended = append(handoff);
        }
        match appended {
            Ok(appended) => self.appended.extend(appended),
            Err(ReserveError::TooLarge { .. }) => {}
            Err(ReserveError::Full { .. } | ReserveError::NotReady { .. }) => return false,
            Err(error @ ReserveError::Sealed { .. }) => panic!("nobody sealed it: {error}"),
        }
        self.drain(drain);
        true
    }

    fn drain(&mut self, drain: &mut Drain) {
        while matches!(drain.poll(100).expect("nothing is damaged yet").state, DrainState::More) {}
        self.tail = drain.handoff().drained();
    }

    fn shape(&self) -> Shape {
        Shape { geometry: self.geometry, log_id: LOG_ID, history: self.history.clone() }
    }

    /// What there is to read.
    fn image(&self) -> MemoryImage {
        let count = usize::try_from(self.count()).expect("few");
        MemoryImage::new(self.geometry, 0, self.segments.iter().take(count).cloned().map(Some).collect())
    }

    fn judge(&self, marks: &Marks, extent: Extent, visit: impl FnMut(&Record<'_>)) -> Verdict {
        judge(&mut self.image(), &self.shape(), marks, extent, visit).expect("memory can be read")
    }

    /// The verdict, which has to be the same each time (I-7).
    fn verdict(&self, marks: &Marks, extent: Extent) -> Verdict {
        let verdict = self.judge(marks, extent, |_| {});
        assert_eq!(self.judge(marks, extent, |_| {}), verdict, "I-7");
        verdict
    }

    fn walk_and_judge(&self, marks: &Marks) -> (Vec<Seen>, Verdict) {
        let mut seen = Vec::new();
        let verdict = self.judge(marks, Extent::Whole, |record| seen.push(Seen::new(record)));
        (seen, verdict)
    }

    fn walk(&self) -> Vec<Seen> {
        let nothing_flushed = Marks {
            trimmed: Lsn(SEGMENT_HEADER_BYTES),
            persisted: Lsn(SEGMENT_HEADER_BYTES),
            live: Lsn(0),
            clean: None,
            member: MEMBER,
        };
        self.walk_and_judge(&nothing_flushed).0
    }

    fn holds_what_was_appended(&self, whole: &[Seen]) {
        let found: Vec<(Lsn, Vec<u8>)> = whole
            .iter()
            .filter(|seen| seen.kind == RecordKind::Data)
            .map(|seen| (seen.start, seen.payload.clone()))
            .collect();
        // A scan for a verdict does not show payloads beyond 64 KiB; none here is that long.
        assert_eq!(found, self.appended, "what was appended is what is read");
        let mut at = Lsn(SEGMENT_HEADER_BYTES);
        for seen in whole {
            assert_eq!(seen.start, at, "records follow one another");
            at = seen.end;
            assert_eq!(self.geometry.normalize(seen.end), seen.end, "R-1");
        }
        assert_eq!(at, self.tail);
        if let Some(last) = whole.last() {
            let inside = locate(&mut self.image(), &self.shape(), Lsn(0), Lsn(last.start.0 + 8), self.tail)
                .expect("memory can be read");
            assert!(matches!(inside, windlass_log::Located::Inside { .. }), "{inside:?}");
        }
    }

    /// Marks on ends of records.
    fn marks(&self, input: &mut Input<'_>, whole: &[Seen]) -> Marks {
        let mut end = || match usize::from(input.u8()) % (whole.len() + 1) {
            0 => Lsn(SEGMENT_HEADER_BYTES),
            number => whole[number - 1].end,
        };
        let (persisted, live, clean) = (end(), end(), end());
        Marks {
            trimmed: Lsn(SEGMENT_HEADER_BYTES),
            persisted,
            live,
            clean: (clean == self.tail).then_some(clean),
            member: MEMBER,
        }
    }

    /// Changes up to four bytes below the tail.
    fn damage(&self, input: &mut Input<'_>) -> BTreeMap<u64, u8> {
        let mut damage = BTreeMap::new();
        for _ in 0..input.u8() % 5 {
            // A full log's tail is in a segment that is not there.
            let end = self.tail.0.min(self.geometry.base(SEGMENTS_MAX).0);
            let at = u64::from(input.u32()) % end;
            *damage.entry(at).or_insert(0) ^= input.u8();
        }
        damage.retain(|_, change| *change != 0);
        for (at, change) in &damage {
            let (memory, offset) = self.place(*at);
            let mut byte = [0];
            memory.copy_out(offset, &mut byte);
            memory.copy_in(offset, &[byte[0] ^ change]);
        }
        damage
    }

    fn place(&self, at: u64) -> (&Memory, u64) {
        let segment = usize::try_from(self.geometry.segment_of(Lsn(at))).expect("few");
        (&self.segments[segment], self.geometry.offset_of(Lsn(at)))
    }

    /// The scan stopped at the first damaged record, and at nothing else; if that was flushed, it is damage.
    fn damage_was_found(&self, damage: &BTreeMap<u64, u8>, whole: &[Seen], marks: &Marks, verdict: &Verdict) {
        let in_header = |at: &u64| self.geometry.offset_of(Lsn(*at)) < SEGMENT_HEADER_BYTES;
        let in_record =
            |seen: &&Seen| damage.range(seen.start.0..seen.start.0 + seen.record_bytes).next().is_some();
        let first = whole.iter().find(in_record).map(|seen| seen.start);
        let expected = first.unwrap_or(self.tail);
        if damage.keys().any(in_header) {
            assert!(verdict.tail() <= expected, "read on behind damage: {verdict:?}");
        } else {
            assert_eq!(verdict.tail(), expected, "{verdict:?}");
        }
        let flushed = marks.clean.unwrap_or(marks.persisted).max(marks.persisted).max(marks.live);
        if verdict.tail() < flushed {
            let class = verdict.class();
            assert!(
                matches!(class, Class::Damage | Class::Foreign),
                "flushed, lost, and called {class:?}: {verdict:?}"
            );
        }
    }
}

/// A first segment of these bytes: nothing panics, and every step leads on.
fn any_bytes(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let geometry = Geometry::new(SEGMENT_BYTES_MIN).expect("the smallest");
    let memory = Memory::heap(geometry.segment_bytes());
    let header =
        SegmentHeader { log_id: LOG_ID, base: Lsn(0), segment_bytes: SEGMENT_BYTES_MIN, features: 0 };
    memory.copy_in(0, &header.encode());
    let epoch = Epoch::from_bits(input.u64().max(1));
    let start = Lsn(SEGMENT_HEADER_BYTES);
    let mut history = EpochHistory::new();
    history.extend(epoch, start).expect("the first");
    let from = geometry.normalize(Lsn(u64::from(input.u16()) & !7).max(start));
    let persisted = Lsn(u64::from(input.u32()) & !7).max(start);
    let rest = input.rest();
    let room = usize::try_from(SEGMENT_BYTES_MIN - SEGMENT_HEADER_BYTES).expect("small");
    memory.copy_in(SEGMENT_HEADER_BYTES, &rest[..rest.len().min(room)]);
    let shape = Shape { geometry, log_id: LOG_ID, history };
    let mut image = MemoryImage::new(geometry, 0, vec![Some(memory)]);

    let mut scan = Scan::new(shape.clone(), from, None);
    loop {
        let before = scan.at();
        let step = scan.step(&mut image).expect("memory can be read");
        let windlass_log::Step::Record(record) = step else { break };
        assert!(record.end > before, "a step that does not lead on");
    }
    let stopped = scan.at();
    let behind = scan.resync(&mut image, 1).expect("memory can be read");
    assert!(behind.is_none_or(|lsn| lsn >= stopped));
    let marks = Marks { trimmed: start, persisted, live: Lsn(0), clean: None, member: epoch.member() };
    for extent in [Extent::Whole, Extent::FromMark] {
        let first = judge(&mut image, &shape, &marks, extent, |_| {}).expect("memory can be read");
        let second = judge(&mut image, &shape, &marks, extent, |_| {}).expect("memory can be read");
        assert_eq!(first, second, "I-7");
    }
    assert_eq!(FORMAT_VERSION, 1, "a new format: look at the seeds again");
}
